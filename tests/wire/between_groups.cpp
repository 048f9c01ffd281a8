// SPDX-License-Identifier: Apache-2.0
// Gradients that a group sums before they travel in a code: in every bit the training of a world of as many ranks as
// there are groups, each of which brings a group's sum.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/hierarchical.hpp>

#include "support/counting.hpp"
#include "support/problem.hpp"
#include "support/worlds.hpp"

namespace {

float gradient(int place, int group, std::size_t step, std::size_t i) {
  const double slow = std::sin(static_cast<double>(i * 7 + step * 31) + 2 * place + 5 * group);
  return static_cast<float>(slow + 0.25 * problem::unit(i + 1000 * step));
}
/// Of all places, in their order.
float gradient_of_group(int places, int group, std::size_t step, std::size_t i) {
  float sum = gradient(0, group, step, i);
  for (int place = 1; place < places; ++place) sum += gradient(place, group, step, i);
  return sum;
}

struct story {
  std::size_t elements = 6144, bucket = 3072;  // whole blocks on each of four ranks, and on each of two
  bool poisoned = false;                       // the gradients of step 2 are not finite: it is left out
  double loss_scale = 1;
};
constexpr std::size_t steps = 6;

/// One training; gradient_at(step, element) is what this rank brings. Its parameters in the end, and its digest.
struct outcome {
  std::vector<float> parameters;
  double norm = 0;
};
template <class Schedule, class Backend, class Gradient>
outcome trained(Schedule const& schedule, Backend const& backend, story const& s, double weight, Gradient&& gradient_at) {
  acco::options chosen;
  chosen.bucket_elements = s.bucket;
  chosen.on_non_finite = acco::non_finite::skip;
  chosen.loss_scale = s.loss_scale;
  chosen.learning_rate = [](double samples) { return 1 / (1 + 0.1 * samples); };
  acco::optimizer training{schedule, acco::adamw{.learning_rate = 1e-2}, acco::host_storage<float>{}, backend, s.elements,
                           chosen};
  training.initialize(std::vector<float>(s.elements, 0.5F));
  outcome made;
  for (std::size_t step = 0; step < 2 * steps; ++step) {
    for (std::size_t i = 0; i < s.elements; ++i)
      training.gradients()[i] += static_cast<float>(s.loss_scale) * gradient_at(step, i) / 8;
    if (s.poisoned && step == 2 && backend.rank() == 1) training.gradients()[5] = std::numeric_limits<float>::infinity();
    if (const auto report = training.accumulated(weight)) made.norm = report->gradient_norm;
  }
  training.finish();
  made.parameters.assign(training.parameters().begin(), training.parameters().end());
  return made;
}

/// Over m x g ranks; over g, of which each brings the sum of m.
template <class Schedule>
outcome over_groups(Schedule const& schedule, story const& s, int m, int g) {
  outcome made;
  acco::threads_backend::run(m * g, [&](acco::threads_backend const& world) {
    auto const backend = acco::hierarchical_world(world, m, 60);
    const auto mine = trained(schedule, backend, s, 1.0 / (m * g), [&](std::size_t step, std::size_t i) {
      return gradient(backend.place(), backend.group(), step, i);
    });
    if (backend.rank() == 0) made = mine;
  });
  return made;
}
template <class Schedule>
outcome over_sums(Schedule const& schedule, story const& s, int m, int g) {
  outcome made;
  acco::threads_backend::run(g, [&](acco::threads_backend const& world) {
    const auto mine = trained(schedule, world, s, 1.0 / g,
                              [&](std::size_t step, std::size_t i) { return gradient_of_group(m, world.rank(), step, i); });
    if (world.rank() == 0) made = mine;
  });
  return made;
}
template <class Wire>
void same(Wire const& wire, story const& s = {}, int m = 2, int g = 2) {
  CAPTURE(m);
  CAPTURE(g);
  const outcome found =
      over_groups(acco::synchronous{.commit = acco::coded<acco::between_groups<Wire>, acco::full>{{wire}}}, s, m, g);
  const outcome right = over_sums(acco::synchronous{.commit = acco::coded<Wire, acco::full>{wire}}, s, m, g);
  CHECK(found.parameters == right.parameters);
  CHECK(found.norm == doctest::Approx(right.norm).epsilon(1e-12));  // its squares are summed by other ranks
}
template <class Policy, class Code = acco::block_gauss3>
auto fed(Policy policy = {}, Code code = {}) {
  return acco::with_feedback<Code, Policy>{code, policy};
}

}  // namespace

TEST_CASE("codes of groups' sums: the training of a world of groups, in every bit") {
  same(acco::without_feedback<acco::block_gauss3>{});
  same(acco::block_int4{});  // which rounds at random
  same(acco::block_int8<>{}, {.bucket = 0}, 4, 1);
  same(acco::block_int8<>{}, {}, 1, 4);
  same(acco::block_int4{}, {.elements = 9216, .bucket = 4608}, 3, 2);
  same(acco::block_int4{}, {.elements = 9216, .bucket = 4608}, 2, 3);
}
TEST_CASE("what a group loses it sends later, whichever its feedback") {
  same(fed<acco::error_feedback>());
  same(fed(acco::error_feedback{.decay = 0.5}), {.loss_scale = 64});
  same(fed<acco::error_feedback>(), {.poisoned = true});
  same(fed<acco::ef21>());
  same(fed<acco::decoupled_momentum>(), {.poisoned = true});
  same(acco::with_error_feedback<acco::block_gauss3, acco::bfloat16>{});
  same(acco::with_error_feedback<acco::block_top<16, 256, 8>, acco::int8_blocks>{});
  same(acco::loosely<acco::without_feedback<acco::block_sign>>{});  // whose padding arrives as another number
}

TEST_CASE("two_phase: estimates and commits in codes of groups, parameters as differences") {
  constexpr acco::fixed_pace pace{1, 1};
  const auto with = [pace]<class Estimate, class Commit>(Estimate estimate, Commit commit) {
    using parameters = std::conditional_t<std::is_same_v<Estimate, acco::full>, acco::full, acco::block_int4<>>;
    return acco::two_phase{.estimate = acco::coded<Estimate, parameters>{estimate},
                           .commit = acco::coded<Commit, acco::block_gauss3>{commit},
                           .pace = pace};
  };
  using estimate = acco::block_int4<>;
  using commit = acco::with_error_feedback<acco::block_gauss2>;
  const outcome found = over_groups(with(acco::between_groups<estimate>{}, acco::between_groups<commit>{}), {}, 2, 2);
  CHECK(found.norm > 0);
  // blocks of parameters are those of more ranks: the same bits where shares are whole blocks, as here
  CHECK(found.parameters == over_sums(with(estimate{}, commit{}), {}, 2, 2).parameters);
  // a code of the second part alone, added to sums of the first part in full
  CHECK(over_groups(with(acco::full{}, acco::between_groups<commit>{}), {}, 2, 2).parameters ==
        over_sums(with(acco::full{}, commit{}), {}, 2, 2).parameters);
}
TEST_CASE("whatever does not divide: a code without blocks") {
  for (const std::size_t elements : {1U, 63U, 777U, 6145U}) {
    CAPTURE(elements);
    same(acco::bfloat16_wire{}, {.elements = elements, .bucket = 300}, 3, 2);
    same(acco::with_error_feedback<acco::bfloat16_wire>{}, {.elements = elements, .bucket = 0}, 2, 2);
  }
}
TEST_CASE("a code with feedback, and ranks and groups without samples: nothing is lost for ever") {
  using wire = acco::between_groups<acco::with_error_feedback<acco::block_gauss3>>;
  constexpr std::size_t elements = 777, rounds = 40;
  double furthest = 0;
  acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
    auto const backend = acco::hierarchical_world(world, 2, 60);
    acco::optimizer training{acco::synchronous{.commit = acco::coded<wire, acco::full>{}}, acco::sgd{.learning_rate = 1},
                             acco::host_storage<float>{}, backend, elements};
    training.initialize(std::vector<float>(elements, 0.0F));
    const auto brings = [](int place, int group, std::size_t step) {
      return step % 3 == 0 || (group == static_cast<int>(step % 2) && place != static_cast<int>(step % 5 % 2));
    };
    std::vector<double> sum(elements);
    for (std::size_t step = 0; step < rounds; ++step) {
      int all = 0;
      for (int rank = 0; rank < 4; ++rank) all += brings(rank / 2, rank % 2, step) ? 1 : 0;
      for (std::size_t i = 0; i < elements; ++i) {
        for (int rank = 0; rank < 4; ++rank)
          sum[i] += brings(rank / 2, rank % 2, step) ? static_cast<double>(gradient(rank / 2, rank % 2, step, i)) / all : 0;
        if (brings(backend.place(), backend.group(), step))
          training.gradients()[i] += gradient(backend.place(), backend.group(), step, i);
      }
      training.accumulated(brings(backend.place(), backend.group(), step) ? 1 : 0);
    }
    training.finish();
    if (backend.rank() != 0) return;
    for (std::size_t i = 0; i < elements; ++i)
      furthest = std::max(furthest, std::abs(static_cast<double>(training.parameters()[i]) + sum[i]));
  });
  CHECK(furthest < 2);  // what two groups keep of a few steps; of forty whose losses were not sent later it would be ten
}

TEST_CASE("gradients that are not finite are named by rank and tensor, though a group has summed them") {
  acco::parameter_layout layout;
  layout.add("embedding", {500}).add("head", {30, 20});
  const auto schedule = acco::two_phase{.estimate = acco::between_groups<acco::block_int4<>>{},
                                        .commit = acco::between_groups<acco::block_int8<>>{},
                                        .pace = acco::fixed_pace{3, 1}};
  for (const int when : {1, 3}) {  // in the part that the estimate carries, in the other
    std::atomic<int> named = 0;
    acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
      auto const backend = acco::hierarchical_world(world, 2, 60);
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

TEST_CASE("bytes by level, memory, and nothing allocated in a steady round") {
  constexpr std::size_t n = 102400;  // whole blocks on every rank
  constexpr int m = 2, g = 2;
  acco::threads_backend::run(m * g, [&](acco::threads_backend const& world) {
    auto const backend = acco::hierarchical_world(world, m, 60);
    const acco::coded<acco::between_groups<acco::with_error_feedback<acco::block_int8<>>>, acco::block_int4<>> commit;
    acco::optimizer training{
        acco::two_phase{.estimate = acco::between_groups<acco::block_int4<>>{}, .commit = commit, .pace = acco::fixed_pace{3, 1}},
        acco::sgd{},
        acco::host_storage<float>{},
        backend,
        n,
        acco::options{.check_habits = acco::habit_checks::off}};
    constexpr std::size_t int8 = n / 256 * 260, int4 = n / 256 * 132;
    const auto about = [](std::size_t bytes, std::size_t right) {
      CHECK(bytes >= right);
      CHECK(bytes < right + 8192);
    };
    // codes of a group's part that leave and arrive, or those of parameters; a group's sums; what is kept
    about(training.memory().encoded, int8 / m + int4 + n / m * sizeof(float) + n * sizeof(float));
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
      const std::uint64_t of_arrays = ((report->committed ? int8 : int4) + int4) / m * (g - 1) / g;
      const std::uint64_t numbers = report->bytes_between - of_arrays;  // counts, squares, what diverged: the same on both levels
      CHECK(numbers < 512);
      CHECK(report->bytes_sent - report->bytes_between == (n * sizeof(float) + int4) * (m - 1) / m + numbers);
    }
    const std::size_t after = counting::news();
    training.finish();
    CHECK(after == before);
    CHECK(training.totals().bytes_between > 0);
    CHECK(training.totals().bytes_between < training.totals().bytes_sent / 2);
  });
}

TEST_CASE("a rank that leaves a training is heard of by all, at both levels") {
  std::vector<std::string> heard(6);
  try {
    acco::threads_backend::run(6, [&](acco::threads_backend const& world) {
      auto const backend = acco::hierarchical_world(world, 3, 60);
      auto& mine = heard[static_cast<std::size_t>(backend.rank())];
      try {
        acco::optimizer training{acco::delayed{.commit = acco::between_groups<acco::block_int8<>>{}}, acco::sgd{},
                                 acco::host_storage<float>{}, backend, 777};
        training.initialize(std::vector<float>(777, 1.0F));
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
    if (rank != 4) CHECK(heard[rank].find("(rank 4 of the whole) it destroyed its optimizer") != std::string::npos);
  }
}
