// SPDX-License-Identifier: Apache-2.0
// Rounds over two levels: exact inside a group, encoded between groups. Against a sequential oracle in fp32, to the bit, against
// the same training over one level, and in bytes.
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/collective/hierarchical.hpp>

#include "support/counting.hpp"
#include "support/problem.hpp"

namespace {

/// Groups of `m` neighbours.
void run(int m, int g, auto&& function) {
  acco::threads_backend::run(m * g,
                             [&](acco::threads_backend const& world) { function(acco::hierarchical_world(world, m, 20)); });
}

// A step's gradients are known beforehand, the weights of all ranks are 1 together and the rate is 1: parameters are sums.

constexpr std::size_t count = 777;
float gradient(int rank, std::size_t step, std::size_t i) {
  return static_cast<float>(std::sin(static_cast<double>(i * 7 + step * 31) + 2 * rank) + 0.25 * problem::unit(i + 1000 * step));
}

struct story {
  std::size_t steps = 4;
  std::size_t bucket = 300;
  int silent_rank = -1;   ///< brings nothing to step 2
  int silent_group = -1;  ///< nor does this group
  bool poisoned = false;  ///< step 2 is not finite, and left out
  double loss_scale = 0;  ///< in step 0, doubled after every other one; 0: none
  [[nodiscard]] bool brings(int rank, int groups, std::size_t step) const {
    return step != 2 || (rank != silent_rank && rank % groups != silent_group);
  }
};

/// The parameters, by the definition: e and q of group j in float, in the order of the groups.
template <class Wire>
std::vector<float> expected(Wire const& wire, story const& s, int m, int g) {
  const acco::partition shares(count, m * g, s.bucket);
  const std::size_t size = shares.padded_size();
  std::vector<float> theta(size, 0.0F);
  const auto store = [] {
    if constexpr (requires { typename Wire::store_type; }) {
      return acco::coding::residual<typename Wire::store_type, float, Wire::block_size>();
    } else {
      return acco::coding::residual<acco::full, float, Wire::block_size>();
    }
  }();
  std::vector<std::vector<std::byte>> lost(static_cast<std::size_t>(g), std::vector<std::byte>(4 * size + 4096));
  for (std::size_t step = 0; step < s.steps; ++step) {
    if (s.poisoned && step == 2) {
      for (auto& each : lost) each.assign(each.size(), std::byte());
      continue;
    }
    std::vector<float> sums(size, 0.0F);
    for (int group = 0; group < g; ++group) {
      std::vector<float> of_group(size, 0.0F), arrived(size, 0.0F);
      bool brings = false;
      for (int place = 0; place < m; ++place) {
        const int rank = place * g + group;
        if (!s.brings(rank, g, step)) continue;
        brings = true;
        for (std::size_t i = 0; i < count; ++i) of_group[i] += gradient(rank, step, i);
      }
      std::vector<std::byte> bytes(acco::encoded_size<Wire>(shares[0].share));
      unsigned long long found = 0, first = 0;
      const acco::coding::refused bad{&found, &first};
      std::byte* next = lost[static_cast<std::size_t>(group)].data();
      for (std::size_t k = 0; k < shares.buckets(); ++k) {
        const acco::bucket b = shares[k];
        for (int rank = 0; rank < m * g; ++rank) {
          const std::size_t at = b.begin + static_cast<std::size_t>(rank) * b.share;
          const auto kept = store.at(std::exchange(next, next + store.bytes(b.share)));
          acco::with_chosen(wire, [&](auto const& code) {
            if (acco::feeds_back<Wire> && brings) {
              double keep = 1;
              if constexpr (acco::feeds_back<Wire>) keep = static_cast<double>(wire.keep);
              acco::coding::encode_with_lost(code, of_group.data() + at, kept, keep, 0, b.share, bytes.data(), bad);
            } else {
              acco::coding::encode_values(code, of_group.data() + at, 0, b.share, bytes.data(), bad);
            }
            acco::coding::decode_sum(code, 1, [&](int) { return bytes.data(); }, arrived.data() + at, b.share, false);
          });
        }
      }
      for (std::size_t i = 0; i < size; ++i) sums[i] = group == 0 ? arrived[i] : sums[i] + arrived[i];
    }
    const double weight = [&] {
      int bringing = 0;
      for (int rank = 0; rank < m * g; ++rank) bringing += s.brings(rank, g, step) ? 1 : 0;
      return static_cast<double>(bringing) / (m * g);
    }();
    for (std::size_t i = 0; i < count; ++i) theta[i] -= static_cast<float>(static_cast<double>(sums[i]) / weight);
  }
  theta.resize(count);
  return theta;
}

/// The same by the library.
template <class Wire>
std::vector<float> found(Wire const& wire, story const& s, int m, int g) {
  std::vector<float> result(count);
  run(m, g, [&](auto backend) {
    acco::options chosen;
    chosen.bucket_elements = s.bucket;
    chosen.on_non_finite = acco::non_finite::skip;
    if (s.loss_scale > 0) chosen.loss_scale = acco::loss_scaling{.initial = s.loss_scale, .growth = 2, .interval = 2};
    acco::optimizer training{acco::synchronous{.commit = acco::coded<Wire, acco::full>{wire}},
                             acco::sgd{.learning_rate = 1},
                             acco::host_storage<float>{},
                             backend,
                             count,
                             chosen};
    training.initialize(std::vector<float>(count, 0.0F));
    for (std::size_t step = 0; step < s.steps; ++step) {
      const bool brings = s.brings(backend.rank(), g, step);
      for (std::size_t i = 0; i < count && brings; ++i)
        training.gradients()[i] += static_cast<float>(training.loss_scale()) * gradient(backend.rank(), step, i);
      if (s.poisoned && step == 2 && backend.rank() == 1) training.gradients()[5] = std::numeric_limits<float>::infinity();
      training.accumulated(brings ? 1.0 / (m * g) : 0);
    }
    training.finish();
    if (backend.rank() == 0) result.assign(training.parameters().begin(), training.parameters().end());
  });
  return result;
}
using feedback = acco::with_error_feedback<acco::block_gauss3>;

}  // namespace

TEST_CASE("the mean over groups of what is decoded of each group's exact sum, to the bit") {
  CHECK(found(acco::block_int4{}, {}, 2, 2) == expected(acco::block_int4{}, {}, 2, 2));
  const story whole{.bucket = 0};
  CHECK(found(acco::block_int8{}, whole, 3, 2) == expected(acco::block_int8{}, whole, 3, 2));
  CHECK(found(acco::block_int4{}, {}, 1, 4) == expected(acco::block_int4{}, {}, 1, 4));
  CHECK(found(acco::block_int4{}, {}, 4, 1) == expected(acco::block_int4{}, {}, 4, 1));
}
TEST_CASE("what a group loses it sends later, to the bit") {
  for (const float keep : {1.0F, 0.5F}) {
    const feedback wire(acco::block_gauss3{}, keep);
    CHECK(found(wire, {}, 2, 2) == expected(wire, {}, 2, 2));
    CHECK(found(wire, {.steps = 6, .loss_scale = 64}, 2, 2) == expected(wire, {.steps = 6}, 2, 2));
    CHECK(found(wire, {.poisoned = true}, 2, 2) == expected(wire, {.poisoned = true}, 2, 2));
    CHECK(found(wire, {.bucket = 0}, 4, 1) == expected(wire, {.bucket = 0}, 4, 1));
  }
  const auto kept_in = [](auto wire) {
    CHECK(found(wire, {.steps = 6}, 2, 2) == expected(wire, {.steps = 6}, 2, 2));
    CHECK(found(wire, {.steps = 6, .loss_scale = 64}, 2, 2) == expected(wire, {.steps = 6}, 2, 2));
  };
  kept_in(acco::with_error_feedback<acco::block_gauss3, acco::bfloat16>{});
  kept_in(acco::with_error_feedback<acco::block_gauss3, acco::int8_blocks>{});
  const feedback wire;
  const story rank{.silent_rank = 3}, group{.silent_group = 1};  // whose group goes on; which keeps what it has lost
  const auto three = found(wire, rank, 2, 2), right = expected(wire, rank, 2, 2);
  for (std::size_t i = 0; i < count; ++i) CHECK(std::abs(three[i] - right[i]) < 1e-5F);  // a weight of 3/4 rounds
  CHECK(found(wire, group, 2, 2) == expected(wire, group, 2, 2));
}
TEST_CASE("telescoping: what has arrived of all groups is what was brought, but for what they keep now") {
  constexpr int m = 2, g = 2;
  const story s{.steps = 8};
  const std::vector<float> theta = found(feedback{}, s, m, g);
  double furthest = 0, unfed = 0;
  const std::vector<float> without = found(acco::without_feedback<acco::block_gauss3>{}, s, m, g);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (std::size_t step = 0; step < s.steps; ++step)
      for (int rank = 0; rank < m * g; ++rank) sum += static_cast<double>(gradient(rank, step, i));
    furthest = std::max(furthest, std::abs(static_cast<double>(theta[i]) + sum));
    unfed = std::max(unfed, std::abs(static_cast<double>(without[i]) + sum));
  }
  CHECK(furthest < 2);  // what two groups lose of one step
  CHECK(unfed > furthest);
}

TEST_CASE("back to a snapshot: what a group had lost is what it was then") {
  std::atomic<int> same = 0;
  run(2, 2, [&](auto backend) {
    const auto train = [&](acco::options const& chosen, auto&& then) {
      acco::optimizer training{acco::synchronous{.commit = acco::coded<feedback, acco::full>{}},
                               acco::sgd{.learning_rate = 1},
                               acco::host_storage<float>{},
                               backend,
                               count,
                               chosen};
      training.initialize(std::vector<float>(count, 0.0F));
      const auto step = [&](std::size_t which) {
        for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += gradient(backend.rank(), which, i);
        training.accumulated(0.25);
      };
      then(training, step);
      training.finish();
      return std::vector<float>(training.parameters().begin(), training.parameters().end());
    };
    acco::options snapshots;
    snapshots.snapshots = 3;
    snapshots.snapshot_every = 1;
    const auto back = train(snapshots, [&](auto& training, auto&& step) {
      step(0);
      step(1);
      step(2);
      REQUIRE(training.rewind(2).undone == 2);
      step(3);
    });
    const auto straight = train({}, [&](auto&, auto&& step) {
      step(0);
      step(3);
    });
    same += back == straight ? 1 : 0;
  });
  CHECK(same == 4);
}

TEST_CASE("gradients that are not finite are named by rank and tensor, though a group has summed them") {
  acco::parameter_layout layout;
  layout.add("embedding", {500}).add("head", {30, 20});
  const auto schedule =
      acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::block_int8{}, .pace = acco::fixed_pace{3, 1}};
  for (const int when : {1, 3}) {  // in the part that the estimate carries, in the other
    std::atomic<int> named = 0;
    run(2, 2, [&](auto backend) {
      acco::optimizer training{schedule, acco::sgd{.learning_rate = 1e-3}, acco::host_storage<float>{}, backend, layout};
      training.initialize(std::vector<float>(layout.size(), 1.0F));
      try {
        for (int m = 0; m < 40; ++m) {
          for (std::size_t i = 0; i < layout.size(); ++i) training.gradients()[i] += 0.25F;
          if (backend.rank() == 2 && m == 8 + when) training.gradients()[503] = std::numeric_limits<float>::quiet_NaN();
          training.accumulated(1);
        }
        training.finish();
      } catch (acco::non_finite_error const& e) {
        CHECK(e.peer() == 2);
        CHECK(std::string(e.what()).find("rank 2 brought 1 gradients") != std::string::npos);
        CHECK(std::string(e.what()).find("'head' at element 3") != std::string::npos);
        ++named;
      }
    });
    CHECK(named == 4);
  }
}

TEST_CASE("bytes by level, and memory") {
  constexpr std::size_t n = 102400;  // whole blocks on every rank
  constexpr int m = 2, g = 2;
  run(m, g, [&](auto backend) {
    counting::resource resource;
    acco::host_storage<float> storage;
    storage.memory = &resource;
    const acco::options unchecked{.check_habits = acco::habit_checks::off};
    const auto make = [&](auto schedule) { return acco::optimizer{schedule, acco::sgd{}, storage, backend, n, unchecked}; };
    const acco::coded<acco::with_error_feedback<acco::block_int8<>>, acco::block_int4<>> fed;
    auto training = make(acco::two_phase{.estimate = acco::block_int4{}, .commit = fed, .pace = acco::fixed_pace{3, 1}});
    auto unfed = make(acco::two_phase{.estimate = acco::block_int4{},
                                      .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{},
                                      .pace = acco::fixed_pace{3, 1}});
    auto plain = make(acco::two_phase{.pace = acco::fixed_pace{3, 1}});
    auto late = make(acco::delayed{.commit = fed});
    const auto about = [](std::size_t bytes, std::size_t right) {
      CHECK(bytes >= right);
      CHECK(bytes < right + 8192);
    };
    constexpr std::size_t int8 = n / 256 * 260, int4 = n / 256 * 132;
    about(training.memory().encoded - unfed.memory().encoded, n / m * sizeof(float));                // what is lost: an m-th
    about(unfed.memory().encoded, int8 / m + int8 / m + n / m * sizeof(float) + n * sizeof(float));  // out, in, sums, a copy
    about(late.memory().encoded, int8 / m + int4 + 2 * n / m * sizeof(float));
    about(plain.memory().messages, n / m * sizeof(float));  // between the levels
    CHECK(training.memory().messages < 4096);
    CHECK(late.memory().messages < 4096);
    const std::size_t promised = training.memory().total() - training.memory().messages;
    training.initialize(std::vector<float>(n, 1.0F));
    std::size_t before = 0;
    for (int k = 0; k < 24; ++k) {
      if (k == 12) {
        std::vector<double> nothing(1);
        training.sum_over_ranks(nothing);
        before = counting::news();
      }
      for (std::size_t i = 0; i < n; i += 100) training.gradients()[i] += 1;
      const auto report = training.accumulated(1);
      if (!report || k >= 12) continue;
      // counts, squares, what diverged, and the group's weight where it is fed back
      const std::uint64_t numbers = (13 + 1 + 1) * sizeof(double);
      const std::uint64_t gradients = report->committed ? int8 : int4;
      CHECK(report->bytes_between == (gradients / m + int4 / m) * (g - 1) / g + numbers * (g - 1));
      const std::uint64_t weight = report->committed ? sizeof(double) * (m - 1) : 0;
      CHECK(report->bytes_sent - report->bytes_between == (n * sizeof(float) + int4) * (m - 1) / m + numbers * (m - 1) + weight);
    }
    const std::size_t after = counting::news();
    training.finish();
    CHECK(after == before);
    CHECK(resource.now == promised);
    const std::size_t between_levels = plain.memory().messages;
    plain.initialize(std::vector<float>(n, 1.0F));
    for (int k = 0; k < 4; ++k) {
      plain.gradients()[0] += 1;
      plain.accumulated(1);
    }
    plain.finish();
    CHECK(plain.memory().messages == between_levels);
  });
}

TEST_CASE("a rank that leaves a training is heard of by all, at both levels") {
  std::vector<std::string> heard(6);
  try {
    run(3, 2, [&](auto backend) {
      auto& mine = heard[static_cast<std::size_t>(backend.rank())];
      try {
        acco::optimizer training{acco::delayed{.commit = acco::coded<acco::block_int8<>, acco::full>{}}, acco::sgd{},
                                 acco::host_storage<float>{}, backend, count};
        training.initialize(std::vector<float>(count, 1.0F));
        for (int step = 0; step < 50; ++step) {
          if (backend.rank() == 4 && step == 7) throw std::runtime_error("bad batch");
          for (float& each : training.gradients()) each += 1;
          training.accumulated(1);
        }
        training.finish();
      } catch (std::exception const& e) {
        mine = e.what();
        throw;
      }
    });
  } catch (std::exception const& e) {
    CHECK(std::string(e.what()) == "bad batch");
  }
  for (std::size_t rank = 0; rank < 6; ++rank) {
    CAPTURE(heard[rank]);
    if (rank == 4) continue;
    CHECK(heard[rank].find("(rank 4 of the whole) it destroyed its optimizer") != std::string::npos);
  }
}
