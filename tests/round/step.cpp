// SPDX-License-Identifier: Apache-2.0
// A step as the trainer sees it: step(), the loss of a whole step, what finish() does with a step that lacks
// micro-batches, and a learning rate that differs between ranks.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

constexpr std::size_t count = 130;
constexpr int ranks = 3;

/// One micro-batch of this rank, whose gradients depend on the parameters and on its number in the training.
struct trainer {
  acco::any_optimizer<double> training;
  int rank;
  std::size_t number = 0;  // of the next micro-batch

  [[nodiscard]] double weight(std::size_t m) const { return static_cast<double>(1 + (m + static_cast<std::size_t>(rank)) % 3); }
  [[nodiscard]] double loss(std::size_t m) const { return static_cast<double>(10 * m) + rank; }  // of a sample
  acco::micro_batch_sums operator()(std::span<double const> p, std::span<double> g) {
    const std::size_t m = number++;
    for (std::size_t i = 0; i < p.size(); ++i)
      g[i] += weight(m) * (p[i] - static_cast<double>((i + m + static_cast<std::size_t>(rank)) % 7));
    return {.weight = weight(m), .loss_sum = weight(m) * loss(m)};
  }
  std::optional<acco::round_report> micro_batch() {
    const auto sums = (*this)(training.parameters(), training.gradients());
    return training.accumulated(sums.weight, sums.loss_sum);
  }
};

/// Calls visit(make, micro-batches of a step) for every schedule; make(world, options) makes a trainer.
template <class Visitor>
void every_schedule(Visitor&& visit) {
  const auto with = [&](char const* name, auto schedule, std::size_t first, std::size_t second) {
    CAPTURE(name);
    const auto make = [=](acco::threads_backend const& world, acco::options const& options = {}) {
      trainer made{acco::optimizer{schedule, acco::adamw{.learning_rate = 0.05, .weight_decay = 0.1},
                                   acco::host_storage<double>{}, world, count, options},
                   world.rank()};
      made.training.initialize(std::vector<double>(count, 0.5));
      return made;
    };
    visit(make, first, second);
  };
  using acco::fixed_pace;
  with("synchronous", acco::synchronous{.pace = fixed_pace{2}}, 2, 0);
  with("delayed", acco::delayed{.pace = fixed_pace{3}}, 3, 0);
  with("weight_prediction", acco::weight_prediction{.pace = fixed_pace{2}}, 2, 0);
  with("two_phase", acco::two_phase{.pace = acco::fixed_pace{1}}, 1, 1);
  with("two_phase 3 + 2", acco::two_phase{.pace = fixed_pace{.first = 3, .second = 2}}, 3, 2);
  with("two_phase int4 2 + 3", acco::two_phase{.estimate = acco::block_int4{}, .pace = fixed_pace{.first = 2, .second = 3}}, 2,
       3);
  with("two_phase coded",
       acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}}, 3,
       1);  // the usual split
}

/// Over all ranks, of micro-batches [from, from + n).
struct sums {
  double weight = 0, loss = 0;
};
sums of_micro_batches(std::size_t from, std::size_t n) {
  sums all;
  for (int rank = 0; rank < ranks; ++rank) {
    const trainer each{{}, rank};
    for (std::size_t m = from; m < from + n; ++m) {
      all.weight += each.weight(m);
      all.loss += each.weight(m) * each.loss(m);
    }
  }
  return all;
}

/// What a training ends with.
struct result {
  std::vector<double> parameters;
  std::uint64_t digest, steps;
  double samples, dropped;
};
result result_of(trainer& t) {
  auto const p = t.training.parameters();
  return {{p.begin(), p.end()}, t.training.state_digest(), t.training.steps(), t.training.samples(), t.training.totals().dropped};
}
/// Of rank 0.
template <class Train>
result trained(Train&& train) {
  result found{};
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto const mine = train(world);
    if (world.rank() == 0) found = mine;
  });
  return found;
}

}  // namespace

TEST_CASE("step() runs micro-batches until a step is committed; step_loss is that of the whole step in every schedule") {
  every_schedule([](auto const& make, std::size_t first, std::size_t second) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      trainer t = make(world);
      const std::size_t whole = first + second;
      for (std::size_t step = 0; step < 6; ++step) {
        const acco::round_report report = t.training.step(t);
        auto const expected = of_micro_batches(step * whole, whole);
        CHECK(report.step == step + 1);
        CHECK(acco::commits(report.plan));
        CHECK(report.step_weight == expected.weight);
        CHECK(report.step_loss == doctest::Approx(expected.loss / expected.weight).epsilon(1e-12));
        CHECK(report.samples == of_micro_batches(0, (step + 1) * whole).weight);
        const bool waits = report.plan.meanwhile == acco::computation::waits;
        CHECK(t.number == (step + 1) * whole + (waits ? 0 : first));  // and the part that hid the round
      }
      t.training.finish();
    });
  });
}

TEST_CASE("step_loss of a round that estimates is that of the step so far; a skipped estimate takes its part out of it") {
  for (const bool poisoned : {false, true}) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      trainer t{
          acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{.learning_rate = 0.1},
                          acco::host_storage<double>{}, world, count, acco::options{.on_non_finite = acco::non_finite::skip}},
          world.rank()};
      t.training.initialize(std::vector<double>(count, 0.5));
      for (std::size_t m = 0; m < 7; ++m) {
        // the first part of the second step
        if (poisoned && m == 2 && world.rank() == 1) t.training.gradients()[3] = HUGE_VAL;
        auto const report = t.micro_batch();
        if (!report) continue;
        const std::size_t round = m - 1, begin = round / 2 * 2;
        const bool without_first = poisoned && round == 3;
        auto const expected = without_first ? of_micro_batches(3, 1) : of_micro_batches(begin, round - begin + 1);
        CHECK(report->skipped == (poisoned && round == 2));
        CHECK(report->step_weight == expected.weight);
        CHECK(report->step_loss == doctest::Approx(expected.loss / expected.weight).epsilon(1e-12));
        auto const alone = of_micro_batches(round, 1);
        CHECK(report->mean_loss == doctest::Approx(alone.loss / alone.weight).epsilon(1e-12));
      }
      t.training.finish();
    });
  }
}

TEST_CASE("step() takes callables without arguments, and those that return a weight alone; their exceptions pass") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer training{
        acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{.learning_rate = 1}, acco::host_storage<float>{}, world, 4,
        acco::options{.stable_addresses = true}};
    CHECK_THROWS_WITH_AS(training.step([] { return 1; }), doctest::Contains("step() was called before initialize"),
                         acco::usage_error);
    training.initialize(std::vector<float>(4, 0.0F));
    auto const gradients = training.gradients();
    int calls = 0;
    const auto report = training.step([&] {
      ++calls;
      gradients[1] += 2;
      return 2;
    });
    CHECK(calls == 3);
    CHECK(report.step_weight == 8);
    CHECK(report.step_loss == 0);
    CHECK(training.parameters()[1] == -1);
    CHECK_THROWS_AS(training.step([]() -> int { throw std::out_of_range("no more data"); }), std::out_of_range);
    CHECK(training.step([] { return std::size_t{3}; }).step == 2);  // the training goes on
    training.finish();
  });
}

TEST_CASE("finish() drops a step that lacks micro-batches: as many updates as synchronous makes, and nothing of it stays") {
  for (const bool stable : {false, true}) {
    CAPTURE(stable);
    every_schedule([stable](auto const& make, std::size_t first, std::size_t second) {
      const std::size_t whole = first + second;
      const acco::options options{.clip_norm = 1, .stable_addresses = stable};
      // Some micro-batches more than whole steps, finish(), and as many steps again.
      const auto with = [&](std::size_t more) {
        return trained([&](acco::threads_backend const& world) {
          trainer t = make(world, options);
          for (std::size_t m = 0; m < 4 * whole + more; ++m) t.micro_batch();
          t.training.finish();
          CHECK(t.training.steps() == 4);
          CHECK(t.training.samples() == of_micro_batches(0, 4 * whole).weight);
          CHECK(t.training.totals().dropped == of_micro_batches(4 * whole, more).weight);
          std::vector<double> committed(count);
          t.training.gather_committed(committed);
          CHECK(committed == std::vector<double>(t.training.parameters().begin(), t.training.parameters().end()));
          for (const double g : t.training.gradients()) CHECK(g == 0);
          t.number = 4 * whole;
          for (std::size_t m = 0; m < 4 * whole; ++m) t.micro_batch();
          t.training.finish();
          return result_of(t);
        });
      };
      const result without = with(0);
      CHECK(without.steps == 8);
      for (std::size_t more = 1; more < whole; ++more) {
        CAPTURE(more);
        const result also = with(more);
        CHECK(also.steps == without.steps);
        CHECK(also.samples == without.samples);
        CHECK(also.digest == without.digest);
        CHECK(also.parameters == without.parameters);
      }
    });
  }
}

TEST_CASE("finish(unfinished::commit) makes an update of what there is; one rank that asks for it suffices") {
  every_schedule([](auto const& make, std::size_t first, std::size_t second) {
    const std::size_t whole = first + second;
    for (const int asks : {-1, 0, 2}) {  // -1: all
      CAPTURE(asks);
      const result got = trained([&](acco::threads_backend const& world) {
        trainer t = make(world);
        for (std::size_t m = 0; m < 2 * whole + 1; ++m) t.micro_batch();
        t.training.finish(asks < 0 || asks == world.rank() ? acco::unfinished::commit : acco::unfinished::drop);
        return result_of(t);
      });
      CHECK(got.steps == 3);
      CHECK(got.samples == of_micro_batches(0, 2 * whole + 1).weight);
      CHECK(got.dropped == 0);
    }
  });
}

TEST_CASE("a rank without more data: what it has of a step counts as long as another rank completes it") {
  every_schedule([](auto const& make, std::size_t first, std::size_t second) {
    const std::size_t whole = first + second;
    const result got = trained([&](acco::threads_backend const& world) {
      trainer t = make(world);
      const std::size_t mine = world.rank() == 1 ? whole + 1 : 3 * whole;  // rank 1 has begun a second step
      for (std::size_t m = 0; m < mine; ++m) t.micro_batch();
      t.training.finish();
      return result_of(t);
    });
    double expected = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t m = 0; m < (rank == 1 ? whole + 1 : 3 * whole); ++m) expected += trainer{{}, rank}.weight(m);
    }
    CHECK(got.steps == 3);
    CHECK(got.samples == expected);
    CHECK(got.dropped == 0);
  });
}

TEST_CASE("a learning rate that differs between ranks: all throw alike, with both values, before any update from it") {
  every_schedule([](auto const& make, std::size_t, std::size_t) {
    std::vector<std::string> what(ranks);
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      const bool odd = world.rank() == 2;
      trainer t = make(world, {.learning_rate = [odd](double samples) { return odd && samples > 20 ? 0.5 : 0.25; }});
      std::vector<double> before;
      double samples = 0;
      try {
        for (std::size_t m = 0; m < 60; ++m) {
          if (auto const report = t.micro_batch()) {
            samples = t.training.samples();
            before.assign(t.training.parameters().begin(), t.training.parameters().end());
          }
        }
        FAIL_CHECK("nothing was thrown");
      } catch (acco::mismatch_error const& e) {
        what[static_cast<std::size_t>(world.rank())] = e.what();
        CHECK(e.peer() == (odd ? 0 : 2));
      }
      CHECK(std::vector<double>(t.training.parameters().begin(), t.training.parameters().end()) == before);
      CHECK(t.training.samples() == samples);
      std::vector<double> committed(count);
      t.training.gather_committed(committed);  // all ranks are in step
    });
    for (std::string const& words : what) {
      CAPTURE(words);
      CHECK(words.find("options::learning_rate returned 0.25 on rank 0 and 0.5 on rank 2, at ") != std::string::npos);
      CHECK(words.find(", round ") != std::string::npos);
    }
  });
}

TEST_CASE("a learning rate in steps: that of the coming update, in every round of it, also one that is skipped") {
  every_schedule([](auto const& make, std::size_t, std::size_t) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      const acco::in_steps rate{acco::warmup_linear{.warmup = 4, .total = 9}};
      trainer t = make(world, {.learning_rate = rate, .on_non_finite = acco::non_finite::skip});
      std::uint64_t skipped = 0, before = 0;
      for (std::size_t m = 0; m < 60 && before < 10; ++m) {
        if (m == 11 && world.rank() == 1) t.training.gradients()[3] = HUGE_VAL;
        auto const report = t.micro_batch();
        if (!report) continue;
        CHECK(report->learning_rate_scale == rate({.steps = before}));
        skipped += report->skipped ? 1 : 0;
        before = t.training.steps();
      }
      CHECK(skipped > 0);
      CHECK(before == 10);
      t.training.finish();
    });
  });
}

TEST_CASE("learning rates that differ by rounding pass") {
  acco::threads_backend::run(ranks, [](acco::threads_backend const& world) {
    const double mine = 0.3 * (1 + 1e-9 * world.rank());
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::sgd{},
                             acco::host_storage<float>{},
                             world,
                             4,
                             acco::options{.learning_rate = [mine](double samples) { return samples > 0 ? mine : 1; }}};
    training.initialize(std::vector<float>(4, 0.0F));
    for (int step = 0; step < 5; ++step) training.step([](auto, auto g) { return g[0] += 1.0F, 1; });
    training.finish();
    CHECK(training.steps() == 5);
  });
}

TEST_CASE("one learning rate of many that differs by a few millionths is found") {
  acco::threads_backend::run(16, [](acco::threads_backend const& world) {
    const double mine = 0.3 * (world.rank() == 11 ? 1 + 3e-6 : 1);
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::sgd{},
                             acco::host_storage<float>{},
                             world,
                             4,
                             acco::options{.learning_rate = [mine](double samples) { return samples > 0 ? mine : 1; }}};
    training.initialize(std::vector<float>(4, 0.0F));
    const auto run = [&] {
      for (int step = 0; step < 5; ++step) training.step([](auto, auto g) { return g[0] += 1.0F, 1; });
    };
    CHECK_THROWS_AS(run(), acco::mismatch_error);
  });
}

TEST_CASE("skip_limit counts steps, whatever rounds they take") {
  const auto steps_until_the_end = [](auto schedule) {
    acco::optimizer training{schedule,
                             acco::sgd{},
                             acco::host_storage<float>{},
                             acco::solo_backend{},
                             8,
                             acco::options{.on_non_finite = acco::non_finite::skip, .skip_limit = 5}};
    training.initialize(std::vector<float>(8, 1.0F));
    int committing = 0;
    try {
      for (int m = 0; m < 100; ++m) {
        training.gradients()[3] = std::numeric_limits<float>::infinity();
        if (auto const report = training.accumulated(1); report && acco::commits(report->plan)) ++committing;
      }
    } catch (acco::non_finite_error const& e) {
      CHECK(std::string(e.what()).find("6 updates in a row were skipped") != std::string::npos);
    }
    return committing;
  };
  CHECK(steps_until_the_end(acco::synchronous{}) == 5);
  CHECK(steps_until_the_end(acco::delayed{}) == 5);
  CHECK(steps_until_the_end(acco::weight_prediction{}) == 5);
  CHECK(steps_until_the_end(acco::two_phase{.pace = acco::fixed_pace{1}}) == 5);
  CHECK(steps_until_the_end(acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{1}}) == 5);
}
