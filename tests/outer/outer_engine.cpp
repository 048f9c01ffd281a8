// SPDX-License-Identifier: Apache-2.0
// What a trainer sees of local updates: counts, reports, memory, bytes, gathering, finishing at different times, what
// is refused, and who is named when a rank goes.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "support/counting.hpp"

namespace {

constexpr std::size_t count = 200;

/// Adds the gradient of a quadratic around a number of this rank's.
void micro_batch(acco::any_optimizer<float>& training, int rank) {
  auto const at = training.parameters();
  auto const g = training.gradients();
  for (std::size_t i = 0; i < at.size(); ++i) g[i] += at[i] - static_cast<float>(rank) - 0.01F * static_cast<float>(i);
}
template <class Level, class World>
acco::any_optimizer<float> made(Level const& level, World const& world, acco::options const& options = {}) {
  return acco::optimizer{level, acco::sgd{.learning_rate = 0.1}, acco::host_storage<float>{}, world, count, options};
}
bool says(std::exception const& e, char const* what) { return std::string(e.what()).find(what) != std::string::npos; }

}  // namespace

TEST_CASE("samples, steps and reports tell of what the anchor holds, the same on every rank; groups of two") {
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {
    auto training = made(acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = 3}, world);
    training.initialize(std::vector<float>(count, 1.0F));
    for (int step = 1; step <= 9; ++step) {
      micro_batch(training, world.rank());
      auto const report = training.accumulated(world.rank() + 1);
      REQUIRE(report);
      CHECK(report->weight == (world.rank() < 2 ? 3 : 7));  // the worker's
      CHECK(report->outer.has_value() == (step % 3 == 0));
      CHECK(report->committed == (step % 3 == 0));
      CHECK(report->step == static_cast<std::uint64_t>(step / 3 * 3));
      CHECK(training.steps() == report->step);
      CHECK(training.samples() == 10.0 * (step / 3 * 3));
      CHECK(report->samples == training.samples());
      if (report->outer) {
        CHECK(report->outer->exchange == static_cast<std::size_t>(step / 3 - 1));
        CHECK(report->outer->weight == 2);
        CHECK(report->outer->samples == 30);
        CHECK(report->outer->bytes_sent > 0);
        CHECK(report->bytes_sent > report->outer->bytes_sent);
        CHECK(report->outer->communication_seconds >= 0);
      }
    }
    micro_batch(training, world.rank());
    (void)training.accumulated(world.rank() + 1);
    training.finish();
    CHECK(training.steps() == 10);
    CHECK(training.samples() == 100);
    std::vector<double> sums{1, static_cast<double>(world.rank())};
    training.sum_over_ranks(sums);
    CHECK(sums == std::vector<double>{4, 6});
  });
}

TEST_CASE("gather_committed gives the anchor on every rank, the exchange under way included, and changes nothing") {
  for (const bool late : {false, true}) {
    acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
      acco::local_updates<acco::keeping<>> level{.ranks_a_group = 2, .steps = 2};
      if (!late) level.method.delay = 0;
      auto training = made(level, world);
      training.initialize(std::vector<float>(count, 1.0F));
      for (int step = 0; step < 5; ++step) {
        micro_batch(training, world.rank());
        (void)training.accumulated(1);
      }
      const std::vector<float> shown(training.parameters().begin(), training.parameters().end());
      const std::uint64_t before = training.state_digest(), all = training.world_digest();
      std::vector<float> anchor(count), masters(count);
      training.gather_committed(anchor);
      training.gather_masters(masters);
      CHECK(masters == anchor);
      CHECK(training.state_digest() == before);
      CHECK(training.world_digest() == all);
      std::vector<double> half{static_cast<double>(all >> 32U), static_cast<double>(all & 0xffffffffU)}, sums = half;
      training.sum_over_ranks(sums);
      CHECK((sums[0] == 4 * half[0] && sums[1] == 4 * half[1]));  // the same on every rank
      CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == shown);
      CHECK(shown != anchor);
      // the mean over the workers after four steps, at the first element: both targets' mean is 1.5
      const double mean = 1.5 - 0.5 * std::pow(0.9, 4);
      CHECK(static_cast<double>(anchor[0]) == doctest::Approx(mean).epsilon(1e-6));
      training.finish();
      training.gather_committed(anchor);
      CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == anchor);
      std::vector<double> sum(1, static_cast<double>(anchor[7])), mine(1, static_cast<double>(anchor[7]));
      training.sum_over_ranks(sum);
      CHECK(sum[0] == doctest::Approx(4 * mine[0]).epsilon(1e-15));
    });
  }
}

TEST_CASE("a worker that finishes earlier takes part without weight until all do") {
  for (const bool late : {false, true}) {
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      const acco::local_updates level{.method = acco::keeping{.delay = late ? 1U : 0U}, .steps = 2};
      auto training = made(level, world);
      training.initialize(std::vector<float>(count, 0.0F));
      const int steps = world.rank() == 0 ? 3 : 8;
      for (int step = 0; step < steps; ++step) {
        micro_batch(training, world.rank());
        (void)training.accumulated(2);
      }
      training.finish();
      CHECK(training.samples() == 2 * (3 + 8 + 8));
      CHECK(training.steps() == 8);
      std::vector<double> sum(1, static_cast<double>(training.parameters()[0]));
      const double mine = sum[0];
      training.sum_over_ranks(sum);
      CHECK(sum[0] == doctest::Approx(3 * mine).epsilon(1e-15));
      if (!late) {  // two exchanges of all, and two of the others, around 1.5; the weights halve the rate
        const double all = 1 - 0.9025, with_three = (all * 0.95 + (1 - (1 - all) * 0.9025) + (2 - (2 - all) * 0.9025)) / 3;
        CHECK(mine == doctest::Approx(1.5 - (1.5 - with_three) * 0.9025 * 0.9025).epsilon(1e-6));
      }
      CHECK(mine > 0.4);
      micro_batch(training, world.rank());  // and it goes on
      (void)training.accumulated(2);
      training.finish();
      CHECK(training.samples() == 2 * (3 + 8 + 8 + 3));
    });
  }
}

TEST_CASE("behind a finish that exchanged only the first round is not late: a compensation corrects the second one") {
  constexpr std::size_t size = 20;
  const auto trained = [](auto schedule) {
    acco::optimizer training{schedule, acco::sgd{.learning_rate = 0.1}, acco::host_storage<double>{}, acco::solo_backend{}, size};
    training.initialize(std::vector<double>(size, 0.0));
    for (int segment = 0; segment < 2; ++segment) {
      for (int m = 0; m < 7; ++m) {
        auto const p = training.parameters();
        auto const g = training.gradients();
        for (std::size_t i = 0; i < size; ++i) g[i] += p[i] - 1 - static_cast<double>(i % 5);
        training.accumulated(1);
      }
      training.finish();
    }
    return std::vector<double>(training.parameters().begin(), training.parameters().end());
  };
  const acco::delayed inner{.compensation = acco::delay_compensation{}};
  auto const alone = trained(inner),
             averaged = trained(acco::local_updates{.method = acco::local_sgd, .inner = inner, .steps = 100});
  for (std::size_t i = 0; i < size; ++i) CHECK(averaged[i] == doctest::Approx(alone[i]).epsilon(1e-12));
  CHECK(trained(acco::delayed{}) != alone);
}

TEST_CASE("set_parameters drops what encodings have lost; finish does not") {
  for (const bool set : {false, true}) {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const auto run = [&](acco::any_optimizer<float>& training, double slope) {
        for (int step = 0; step < 2; ++step) {
          for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += static_cast<float>(slope * static_cast<double>(i));
          (void)training.accumulated(1);
        }
        training.finish();
        return std::vector<float>(training.parameters().begin(), training.parameters().end());
      };
      const acco::local_updates level{
          .method = acco::local_sgd, .steps = 2, .exchange = acco::coded<acco::block_int4<>, acco::full>{}};
      auto used = made(level, world), fresh = made(level, world);
      used.initialize(std::vector<float>(count, 1.0F));
      fresh.initialize(std::vector<float>(count, 0.0F));
      run(used, 0.7);
      if (set) {
        used.set_parameters(std::vector<float>(count, 0.0F));
        CHECK(run(used, 1) == run(fresh, 1));
      } else {
        const auto coarse = run(used, 0);  // nothing but what was lost before: the second exchange sends it
        for (std::size_t i = 0; i < count; ++i) {
          const float whole = 1.0F - 0.2F * 0.7F * static_cast<float>(i);
          CHECK(std::abs(coarse[i] - whole) <= 0.2F * 0.7F * count / 13.8F / 13.0F);
        }
        run(fresh, 0);
      }
    });
  }
}

TEST_CASE("who takes part without weight keeps what encodings have lost until it counts again") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    auto training = made(
        acco::local_updates{.method = acco::local_sgd, .steps = 2, .exchange = acco::coded<acco::block_int4<>, acco::full>{}},
        world);
    training.initialize(std::vector<float>(count, 1.0F));
    const auto run = [&](int steps, float slope) {
      for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += slope * static_cast<float>(i);
        (void)training.accumulated(1);
      }
      return std::vector<float>(training.parameters().begin(), training.parameters().end());
    };
    const bool first = world.rank() == 0;
    auto const coarse = run(2, first ? 0.7F : 0.0F);
    if (!first) CHECK(run(2, 0) == coarse);  // while the other one is in finish
    training.finish();
    CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == coarse);
    auto const then = run(2, 0);
    training.finish();
    const auto error = [](std::vector<float> const& x) {
      float most = 0;
      for (std::size_t i = 0; i < count; ++i)
        most = std::max(most, std::abs(x[i] - 1.0F + 0.5F * 0.2F * 0.7F * static_cast<float>(i)));
      return most;
    };
    CHECK(error(coarse) > 0.2F);
    CHECK(error(then) < error(coarse) / 13);
  });
}

TEST_CASE("set_parameters, adopted arrays and masters reach every worker from rank 0, frozen ones too") {
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {
    acco::parameter_layout layout;
    layout.add("a", {90});
    layout.add("still", {20}, layout.add_group({.frozen = true}));
    layout.add("b", {90});
    const auto value = static_cast<float>(world.rank() + 1);
    acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = 2},
                             acco::sgd{.learning_rate = 0.1}, acco::host_storage<float>{}, world, layout};
    std::vector<float> parameters(count, value), gradients(count, 0.0F);
    training.adopt(parameters, gradients);
    CHECK(parameters == std::vector<float>(count, 1.0F));
    for (int step = 0; step < 2; ++step) {
      micro_batch(training, world.rank());
      (void)training.accumulated(1);
    }
    CHECK(training.parameters().data() == parameters.data());
    CHECK(parameters[95] == 1.0F);
    CHECK(parameters[0] != 1.0F);
    CHECK_THROWS_AS(acco::optimizer(acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 3}, acco::sgd{},
                                    acco::host_storage<float>{}, world, count),
                    acco::usage_error);
    training.finish();
    training.set_parameters(std::vector<float>(count, 5 * value));
    CHECK(parameters == std::vector<float>(count, 5.0F));
    std::vector<float> anchor(count);
    training.gather_committed(anchor);
    CHECK(anchor == parameters);

    acco::optimizer<acco::local_updates<>, acco::sgd, acco::host_storage<acco::bfloat16>, acco::threads_backend> coarse(
        acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = 2}, acco::sgd{.learning_rate = 0.1},
        acco::host_storage<acco::bfloat16>{}, world, layout);
    const float third = 1.0F / 3;  // more bits than a bfloat16 has
    coarse.initialize(std::span<float const>(std::vector<float>(count, third * value)));
    std::vector<float> masters(count);
    coarse.gather_masters(masters);
    CHECK(masters[0] == third);
    CHECK(masters[95] == static_cast<float>(acco::bfloat16(third)));
    coarse.finish();

    acco::optimizer<acco::local_updates<>, acco::sgd, acco::host_storage<acco::bfloat16>, acco::threads_backend> adopting(
        acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = 2}, acco::sgd{.learning_rate = 0.1},
        acco::host_storage<acco::bfloat16>{}, world, layout);
    std::vector<acco::bfloat16> p(count, acco::bfloat16(9.0F)), g(count);
    adopting.adopt(p, g, std::vector<float>(count, third * value));
    adopting.gather_masters(masters);
    CHECK(masters[0] == third);
    CHECK(p == std::vector<acco::bfloat16>(count, acco::bfloat16(third)));
    adopting.finish();
  });
}

TEST_CASE("wherever parameters and gradients lie, the training is the same") {
  const auto with = [](auto storage, bool stable) {
    using parameter = typename decltype(storage)::parameter_type;
    std::vector<parameter> end;
    acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
      const acco::local_updates level{
          .method = acco::keeping{.delay = 1}, .inner = acco::two_phase{}, .ranks_a_group = 2, .steps = 2};
      acco::optimizer training{level, acco::sgd{.learning_rate = 0.1},          storage, world,
                               count, acco::options{.stable_addresses = stable}};
      training.initialize(std::vector<parameter>(count, parameter(1.0F)));
      for (int t = 0; t < 30; ++t) {
        auto const at = training.parameters();
        auto const g = training.gradients();
        for (std::size_t i = 0; i < count; ++i)
          g[i] = static_cast<float>(g[i]) + static_cast<float>(at[i]) - static_cast<float>(world.rank());
        (void)training.accumulated(1);
      }
      training.finish();
      if (world.rank() == 3) end.assign(training.parameters().begin(), training.parameters().end());
    });
    return end;
  };
  const auto whole = with(acco::host_storage<float>{}, false);
  CHECK(whole == with(acco::host_storage<float>{}, true));
  CHECK(whole[0] != 1.0F);
  const auto coarse = with(acco::host_storage<acco::bfloat16, float>{}, false);
  CHECK(coarse == with(acco::host_storage<acco::bfloat16, float>{}, true));
  CHECK(static_cast<float>(coarse[5]) == doctest::Approx(static_cast<double>(whole[5])).epsilon(0.02));
}

TEST_CASE("the outer level is in memory(), and what an exchange sends is its formula") {
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {
    constexpr std::size_t large = 4096 * 4;
    const auto memory_of = [&](auto const& level) {
      return acco::optimizer{level, acco::sgd{}, acco::host_storage<float>{}, world, large}.memory();
    };
    const std::size_t slice = large / 2 * sizeof(float);  // of a worker of two
    const auto near = [](std::size_t found, double wanted) {
      CHECK(static_cast<double>(found) >= wanted);
      CHECK(static_cast<double>(found) <= wanted + 4096);
    };
    // anchor and changes, and masters, momentum and sums of the half that this rank owns of them
    near(memory_of(acco::local_updates{.method = acco::diloco, .ranks_a_group = 2}).outer,
         static_cast<double>(slice) * (2 + 3 * 0.5));
    near(memory_of(acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2}).outer,
         static_cast<double>(slice) * (2 + 2 * 0.5));
    near(memory_of(acco::local_updates{.method = acco::delayed_diloco, .ranks_a_group = 2}).outer,
         static_cast<double>(slice) * (3 + 3 * 0.5));
    near(memory_of(acco::local_updates{.method = acco::eager_diloco, .ranks_a_group = 2}).outer,
         static_cast<double>(slice) * (4 + 3 * 0.5));
    near(memory_of(acco::local_updates{.method = acco::streaming_diloco, .ranks_a_group = 2, .fragments = 2}).outer,
         static_cast<double>(slice) * (3 + 3 * 0.5));
    // encoded: what leaves, what arrives, and what changes have lost
    constexpr std::size_t encoded = acco::encoded_size<acco::block_int4<>>(large / 2);
    near(memory_of(acco::local_updates{.method = acco::diloco, .ranks_a_group = 2, .exchange = acco::block_int4{}}).outer,
         static_cast<double>(slice) * (3 + 3 * 0.5) + 2 * encoded);
    near(memory_of(acco::local_updates{
                       .method = acco::diloco, .ranks_a_group = 2, .exchange = acco::coded<acco::full, acco::block_int4<>>{}})
             .outer,
         static_cast<double>(slice) * (2 + 3 * 0.5) + encoded);
    CHECK(memory_of(acco::synchronous{}).outer == 0);

    acco::optimizer training{acco::local_updates{.method = acco::diloco, .ranks_a_group = 2, .steps = 2}, acco::sgd{},
                             acco::host_storage<float>{}, world, large};
    training.initialize(std::vector<float>(large, 1.0F));
    for (int step = 0; step < 2; ++step) {
      for (float& g : training.gradients()) g += 1;
      auto const report = training.accumulated(1);
      if (report && report->outer) {
        const double sent = static_cast<double>(report->outer->bytes_sent);
        CHECK(sent >= static_cast<double>(slice));  // half of it to reduce, half of it to gather
        CHECK(sent <= static_cast<double>(slice) + 1024);
      }
    }
    training.finish();
    CHECK(training.totals().bytes_sent > slice);
  });
}

TEST_CASE("fragments take turns: a burst is one of them, a round sends as much as ever; steps and samples are what all hold") {
  constexpr std::size_t large = 64 * 4 * 30;
  constexpr unsigned steps = 8;
  const auto sent_by = [](unsigned fragments, unsigned delay = 0) {
    std::vector<double> sent;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const acco::local_updates level{.method = acco::keeping{.delay = delay}, .steps = steps, .fragments = fragments};
      acco::optimizer training{level, acco::sgd{.learning_rate = 0.1}, acco::host_storage<float>{}, world, large};
      training.initialize(std::vector<float>(large, 1.0F));
      double whole = 0;
      for (unsigned step = 1; step <= 3 * steps; ++step) {
        micro_batch(training, world.rank());
        auto const report = training.accumulated(1);
        REQUIRE(report);
        const unsigned stretch = steps / fragments, landed = step - delay;
        const bool ends = step > delay && landed % stretch == 0;
        CHECK(report->outer.has_value() == ends);
        CHECK(report->committed == (fragments == 1 && step % steps == 0 && delay == 0));
        std::uint64_t least = ~std::uint64_t{0};
        for (unsigned p = 0; p < fragments; ++p) {  // the last step not after `landed` at which this one was exchanged
          const unsigned due = (p + 1) * stretch;
          least = std::min<std::uint64_t>(least, step > delay && landed >= due ? due + (landed - due) / steps * steps : 0);
        }
        CHECK(training.steps() == least);
        CHECK(training.samples() == 2.0 * static_cast<double>(least));
        if (!report->outer) continue;
        CHECK(report->outer->fragment == (landed / stretch - 1) % fragments);
        CHECK(report->outer->exchange == (landed / stretch - 1) / fragments);
        const auto bytes = static_cast<double>(report->outer->bytes_sent);
        CHECK(bytes >= static_cast<double>(large * 4 / fragments));
        CHECK(bytes <= static_cast<double>(large * 4 / fragments) + 400);
        if (landed > steps && landed <= 2 * steps) whole += bytes;
      }
      training.finish();
      CHECK(training.steps() == 3 * steps);
      if (world.rank() == 1) sent.push_back(whole);
    });
    return sent.at(0);
  };
  const double one = sent_by(1), four = sent_by(4), late = sent_by(2, 3);
  CHECK(four >= one);
  CHECK(four <= one + 4 * 400);
  CHECK(late == doctest::Approx(one).epsilon(0.03));
}

namespace {

/// Of a worker's steps, as many as `found` has, for one element of fragment p, from x on: averaging without a delay.
double averaged(double x, double offset, std::vector<int> const& found, int due, int steps) {
  std::vector<double> w(found.size(), x);
  std::vector<int> done(found.size(), 0);
  for (int end = due;; end += steps) {
    double sum = 0;
    int brought = 0;
    for (std::size_t m = 0; m < found.size(); ++m) {
      const int now = std::min(found[m], end);
      if (now == done[m]) continue;
      const double want = static_cast<double>(m) + offset;
      sum += want + (w[m] - want) * std::pow(0.95, now - done[m]);
      ++brought;
      done[m] = now;
    }
    if (brought == 0) return x;
    x = sum / brought;
    w.assign(w.size(), x);
  }
}

}  // namespace

TEST_CASE("workers that finish at different times take part in every fragment's exchanges") {
  constexpr int steps = 6, fragments = 3;
  const auto check = [](auto method, int early, double most, auto exchange) {
    CAPTURE(early);
    const acco::local_updates level{.method = method, .steps = steps, .fragments = fragments, .exchange = exchange};
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      auto training = made(level, world, {.deadline = 20});
      training.initialize(std::vector<float>(count, 0.0F));
      std::vector<double> x(count, 0.0);
      int all = 0;
      for (const int later : {20, 7}) {  // and once more
        const std::vector<int> found{early, later, later - 3};
        for (int step = 0; step < found[static_cast<std::size_t>(world.rank())]; ++step) {
          micro_batch(training, world.rank());
          (void)training.accumulated(2);
        }
        training.finish();
        all += early + later + later - 3;
        CHECK(training.samples() == 2 * all);
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t fragment = ((i + 1) * fragments - 1) / 256;  // the slice has padding
          x[i] = averaged(x[i], 0.01 * static_cast<double>(i), found, static_cast<int>(fragment + 1) * steps / fragments, steps);
          REQUIRE(std::abs(static_cast<double>(training.parameters()[i]) - x[i]) <= most);
        }
        std::vector<double> sum(1, static_cast<double>(training.parameters()[count - 1]));
        training.sum_over_ranks(sum);
        CHECK(sum[0] == doctest::Approx(3.0 * static_cast<double>(training.parameters()[count - 1])).epsilon(1e-15));
      }
    });
  };
  constexpr acco::full exact;
  for (const int early : {0, 1, 5, 6, 11}) {
    check(acco::waiting{}, early, 1e-5, exact);
    // which steps are in which exchange is not what the closed form has
    check(acco::keeping{.delay = 1}, early, 1, exact);
    check(acco::keeping{}, early, 1, exact);
    check(acco::waiting{}, early, 0.02, acco::block_int8{});
    check(acco::restarting{.delay = 5, .keep_local = 0.5}, early, 1, acco::block_int8{});
  }
}

namespace {
constexpr std::size_t usual = 256 * 60;  // whole blocks, and whole shares, of two and of three ranks
}
TEST_CASE("an exchange in four bits sends 1/H byte a parameter and step, a sparse one 0.0028 where H is 30") {
  constexpr unsigned steps = 4;
  const auto sent_by = [](auto const& level, int workers, std::size_t large = usual) {
    std::vector<double> sent;
    acco::threads_backend::run(workers, [&](acco::threads_backend const& world) {
      acco::optimizer training{level, acco::sgd{.learning_rate = 0.1}, acco::host_storage<float>{}, world, large};
      training.initialize(std::vector<float>(large, 1.0F));
      for (unsigned step = 0; step < 3 * steps; ++step) {
        micro_batch(training, world.rank());
        auto const report = training.accumulated(1);
        if (report && report->outer && world.rank() == 1) {
          sent.push_back(static_cast<double>(report->outer->bytes_sent));
          CHECK(report->bytes_sent >= report->outer->bytes_sent);
        }
      }
      training.finish();
    });
    return sent;
  };
  for (const int workers : {2, 3}) {
    const double others = workers - 1.0, share = static_cast<double>(usual) / workers;
    const auto check = [&](std::vector<double> const& sent, std::size_t exchanges, double wanted) {
      REQUIRE(sent.size() == exchanges);
      for (const double bytes : sent) {
        CHECK(bytes >= wanted);
        CHECK(bytes <= wanted + 400 * others);  // sums
      }
    };
    constexpr double four = 0.5 + 4.0 / 256, eight = 1 + 4.0 / 256;
    check(sent_by(acco::local_updates{.method = acco::diloco, .steps = steps, .exchange = acco::block_int4{}}, workers), 3,
          others * share * 2 * four);
    check(sent_by(acco::local_updates{.method = acco::delayed_diloco, .steps = steps, .exchange = acco::block_int4{}}, workers),
          2, others * share * 2 * four);
    check(sent_by(acco::local_updates{.method = acco::local_sgd,
                                      .steps = steps,
                                      .exchange = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}}},
                  workers),
          3, others * share * (eight + four));
    check(sent_by(
              acco::local_updates{
                  .method = acco::local_sgd, .steps = steps, .exchange = acco::coded<acco::full, acco::block_int4<>>{}},
              workers),
          3, others * share * (4 + four));
    check(sent_by(acco::local_updates{.method = acco::local_sgd, .steps = steps}, workers), 3, others * share * 8);

    constexpr std::size_t large = 4096 * 60;
    auto const sparse = sent_by(acco::local_updates{.method = acco::local_sgd, .steps = steps, .exchange = acco::sparse_exchange},
                                workers, large);
    const double blocks = static_cast<double>(large / 4096) / workers;
    check(sparse, 3, others * blocks * (acco::block_top<64, 4096, 2>::block_bytes + acco::block_top<128, 4096, 2>::block_bytes));
    CHECK(sparse.back() / (static_cast<double>(large) * others / workers) / 30 < 0.003);
  }
}

TEST_CASE("nothing is allocated once it runs") {
  for (const int kind : {0, 1, 2}) {
    std::barrier everybody(2);
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const auto with = [&](auto method, unsigned fragments) {
        return made(
            acco::local_updates{
                .method = method, .inner = acco::two_phase{}, .steps = 2, .fragments = fragments, .exchange = acco::block_int4{}},
            world);
      };
      auto training = kind == 0   ? with(acco::waiting{}, 1)
                      : kind == 1 ? with(acco::keeping{.delay = 1}, 2)
                                  : with(acco::eager{}, 1);
      training.initialize(std::vector<float>(count, 1.0F));
      const auto run = [&](int steps) {
        for (int step = 0; step < steps; ++step) {
          micro_batch(training, world.rank());
          (void)training.accumulated(1);
        }
      };
      run(12);
      everybody.arrive_and_wait();
      const std::size_t before = counting::news();
      everybody.arrive_and_wait();
      run(24);
      everybody.arrive_and_wait();
      const std::size_t after = counting::news();
      everybody.arrive_and_wait();
      CHECK(after == before);
      training.finish();
    });
  }
}

TEST_CASE("what local updates do not have is refused in words") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    const auto refused = [&](auto const& level, acco::options const& options, char const* what) {
      CAPTURE(what);
      try {
        (void)made(level, world, options);
        FAIL("was not refused");
      } catch (acco::usage_error const& e) {
        CAPTURE(e.what());
        CHECK(says(e, what));
      }
    };
    using level = acco::local_updates<>;
    refused(level{.ranks_a_group = 0}, {}, "ranks_a_group is 0");
    refused(level{.ranks_a_group = 4}, {}, "the world has 2 ranks");
    refused(level{.steps = 0}, {}, "steps is 0");
    refused(acco::local_updates{.method = acco::keeping{.delay = 4}, .steps = 3}, {}, "the delay of local updates is 4");
    refused(level{.fragments = 0}, {}, "fragments is 0");
    refused(level{.steps = 100, .fragments = 3}, {}, "fragments is 3, and a round has 100 steps");
    refused(level{.steps = 512, .fragments = 512}, {}, "fragments is 512, and a rank's slice has 256 numbers");
    refused(level{.method = {.keep_local = 1.5}}, {}, "keep_local of local updates is 1.5");
    refused(acco::local_updates{.method = acco::co2, .fragments = 2}, {}, "by_gap");
    refused(acco::local_updates{.method = acco::co2, .ranks_a_group = 2}, {}, "by_gap");
    refused(acco::local_updates{.method = acco::restarting{.rule = acco::sgd{}, .delay = 1, .by_gap = true}}, {}, "by_gap");
    refused(acco::local_updates{.method = acco::restarting{.by_gap = true}}, {}, "by_gap");
    refused(acco::local_updates{.method = acco::waiting{.rule = acco::sgd{.momentum = 1.5}}}, {}, "momentum");
    refused(level{}, {.digest_every = 2}, "digest_every");
    refused(level{}, {.deadline = -1}, "deadline");

    auto training = made(level{}, world);
    training.initialize(std::vector<float>(count, 1.0F));
    micro_batch(training, world.rank());
    CHECK(training.accumulated(1));
    training.finish();
  });
}

TEST_CASE("workers that were constructed differently are told so") {
  CHECK_THROWS_AS(acco::threads_backend::run(
                      2,
                      [](acco::threads_backend const& world) {
                        auto training =
                            world.rank() == 0
                                ? made(acco::local_updates{.method = acco::diloco, .exchange = acco::block_int4{}}, world)
                                : made(acco::local_updates{.method = acco::diloco, .exchange = acco::block_int8{}}, world);
                        training.initialize(std::vector<float>(count, 1.0F));
                      }),
                  acco::mismatch_error);
  CHECK_THROWS_AS(acco::threads_backend::run(3,
                                             [](acco::threads_backend const& world) {
                                               acco::local_updates level{.method = acco::diloco, .steps = 3};
                                               if (world.rank() == 2) level.method.rule.momentum = 0.5;
                                               auto training = made(level, world);
                                               training.initialize(std::vector<float>(count, 1.0F));
                                             }),
                  acco::mismatch_error);
}

TEST_CASE("the learning rate is asked at samples as the world has them") {
  std::vector<double> asked;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::options options;
    const bool first = world.rank() == 0;
    options.learning_rate = [&asked, first](double samples) {
      if (first) asked.push_back(samples);
      return 1.0;
    };
    auto training = made(acco::local_updates{.method = acco::local_sgd, .steps = 2}, world, options);
    training.initialize(std::vector<float>(count, 1.0F));
    if (first) asked.clear();
    for (int step = 0; step < 3; ++step) {
      micro_batch(training, world.rank());
      (void)training.accumulated(4);
    }
    if (first) CHECK(asked == std::vector<double>{0, 12, 24});
    training.finish();
  });
}

TEST_CASE("a rank that dies in an exchange, or throws beside it, is named by the others, by its rank in the world") {
  for (const int groups_of : {1, 2}) {
    for (const bool late : {false, true}) {
      CAPTURE(groups_of);
      CAPTURE(late);
      int told = 0;
      CHECK_THROWS(acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
        acco::local_updates<acco::keeping<>> level{.ranks_a_group = groups_of, .steps = 2};
        if (!late) level.method.delay = 0;
        try {
          auto training = made(level, world);
          training.initialize(std::vector<float>(count, 1.0F));
          for (int step = 0; step < 40; ++step) {
            if (world.rank() == 3 && step == 5) throw std::runtime_error("this one's disk is full");
            micro_batch(training, world.rank());
            (void)training.accumulated(1);
          }
        } catch (acco::peer_error const& e) {
          if (world.rank() == 1) {  // it exchanges with rank 3 in either case
            CHECK(e.peer() >= 0);
            if (groups_of == 2) CHECK((e.peer() == 3 || e.peer() == 0));
            CHECK(e.rank() == 1);
            ++told;
          }
          throw;
        }
      }));
      CHECK(told == 1);
    }
  }
}

TEST_CASE("a rank that vanishes while it exchanges is missed, and named") {
  int told = 0;
  acco::mock_options options;
  // late: initialize is over, steps are under way
  options.fault = [](acco::mock_event const& e) {
    return e.rank == 2 && e.operation == acco::collective::reduce_scatter && e.round == 1 ? acco::mock_fault::death
                                                                                          : acco::mock_fault::none;
  };
  acco::mock_world world(3, options);
  CHECK_THROWS(world.run([&](acco::mock_backend const& mine) {
    try {
      auto training = made(acco::local_updates{.method = acco::local_sgd, .steps = 3}, mine, {.deadline = 1});
      training.initialize(std::vector<float>(count, 1.0F));
      for (int step = 0; step < 30; ++step) {
        micro_batch(training, mine.rank());
        (void)training.accumulated(1);
      }
    } catch (acco::error const& e) {
      if (mine.rank() == 0) {
        CAPTURE(e.what());
        CHECK(e.peer() == 2);
        CHECK(says(e, "between workers"));
        ++told;
      }
      throw;
    }
  }));
  CHECK(told == 1);
}

TEST_CASE("gradients that are not finite are one worker's error, and end all") {
  int causes = 0;
  CHECK_THROWS_AS(acco::threads_backend::run(2,
                                             [&](acco::threads_backend const& world) {
                                               auto training =
                                                   made(acco::local_updates{.method = acco::local_sgd, .steps = 2}, world);
                                               training.initialize(std::vector<float>(count, 1.0F));
                                               for (int step = 0; step < 10; ++step) {
                                                 micro_batch(training, world.rank());
                                                 if (world.rank() == 1 && step == 3) training.gradients()[5] = INFINITY;
                                                 try {
                                                   (void)training.accumulated(1);
                                                 } catch (acco::non_finite_error const& e) {
                                                   CHECK(e.rank() == 1);
                                                   CHECK(e.peer() == 1);
                                                   CHECK(says(e, "within the worker"));
                                                   ++causes;
                                                   throw;
                                                 }
                                               }
                                             }),
                  acco::non_finite_error);
  CHECK(causes == 1);
}

TEST_CASE("a worker that goes on without data is told to finish: the others wait for it") {
  CHECK_THROWS_WITH_AS(
      acco::threads_backend::run(2,
                                 [](acco::threads_backend const& world) {
                                   acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = 2},
                                                            acco::sgd{.learning_rate = 0.1},
                                                            acco::host_storage<float>{},
                                                            world,
                                                            std::size_t{4},
                                                            acco::options{.deadline = 20, .empty_limit = 3}};
                                   training.initialize(std::vector<float>(4, 1.0F));
                                   for (int step = 0; step < 30; ++step) {
                                     if (world.rank() == 0) training.gradients()[0] += 1;
                                     (void)training.accumulated(world.rank() == 0 ? 1 : 0);
                                   }
                                   training.finish();
                                 }),
      doctest::Contains("4 steps in a row weighed nothing on any rank of this worker. Without samples it "
                        "comes to no exchange, and the other workers wait for it: where its data have run out, call finish"),
      acco::usage_error);
}
TEST_CASE("a worker that has failed is heard of at once, though its optimizer lives on") {
  for (const bool late : {false, true}) {
    std::latch heard(1);
    CHECK_THROWS_AS(acco::threads_backend::run(2,
                                               [&](acco::threads_backend const& world) {
                                                 acco::local_updates<acco::keeping<>> level{.steps = 2};
                                                 if (!late) level.method.delay = 0;
                                                 auto training = made(level, world, {.deadline = 5});
                                                 training.initialize(std::vector<float>(count, 1.0F));
                                                 try {
                                                   for (int step = 0; step < 10; ++step) {
                                                     micro_batch(training, world.rank());
                                                     if (world.rank() == 1 && step == 3) training.gradients()[5] = NAN;
                                                     (void)training.accumulated(1);
                                                   }
                                                 } catch (acco::peer_error const& e) {
                                                   CHECK(world.rank() == 0);
                                                   CHECK(e.peer() == 1);
                                                   heard.count_down();
                                                   throw;
                                                 } catch (acco::deadline_error const&) {
                                                   FAIL_CHECK("was not told");
                                                   heard.count_down();
                                                   throw;
                                                 } catch (acco::non_finite_error const&) {
                                                   heard.wait();
                                                   throw;
                                                 }
                                               }),
                    acco::non_finite_error);
  }
}
