// SPDX-License-Identifier: Apache-2.0
// Dynamic loss scaling: which scale gradients have that are under way, what overflows and what vanishes.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/every_schedule.hpp"

namespace {

constexpr std::size_t count = 300;
constexpr int ranks = 2;

struct history {
  std::vector<double> parameters;
  std::vector<double> scales;    // of each micro-batch
  std::vector<double> reported;  // of each report
  std::vector<bool> skipped;
  std::vector<double> norms;
};
/// Trains with gradients multiplied by the scale; micro-batch `bad` of rank 1 brings an infinite one.
template <class Schedule>
history trained(Schedule schedule, std::optional<acco::loss_scaling> const& scaling, std::set<std::size_t> const& bad) {
  history found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule,
                             acco::adamw{.learning_rate = 0.05},
                             acco::host_storage<double>{},
                             world,
                             count,
                             acco::options{.clip_norm = 2.0, .on_non_finite = acco::non_finite::skip, .loss_scale = scaling}};
    training.initialize(std::vector<double>(count, 1.0));
    const bool tells = world.rank() == 0;
    for (std::size_t m = 0; m < 60; ++m) {
      const double scale = training.loss_scale();
      auto const p = training.parameters();
      auto const g = training.gradients();
      for (std::size_t i = 0; i < count; ++i)
        g[i] += scale * (p[i] - static_cast<double>((i + m + static_cast<std::size_t>(world.rank())) % 7));
      if (world.rank() == 1 && bad.contains(m)) g[3] = std::numeric_limits<double>::infinity();
      auto const report = training.accumulated(1);
      if (tells) found.scales.push_back(scale);
      if (tells && report) {
        found.reported.push_back(report->loss_scale);
        found.skipped.push_back(report->skipped);
        found.norms.push_back(report->gradient_norm);
      }
    }
    training.finish();
    if (tells) found.parameters.assign(training.parameters().begin(), training.parameters().end());
  });
  return found;
}

}  // namespace

TEST_CASE("powers of two change no bit of a training, whenever they change, in any schedule, with skipped updates too") {
  every_schedule([](auto schedule) {
    for (std::set<std::size_t> const& bad : {std::set<std::size_t>{}, std::set<std::size_t>{7, 8, 20, 33, 34, 35}}) {
      auto const plain = trained(schedule, {}, bad);
      auto const scaled = trained(schedule, acco::loss_scaling{.initial = 4096, .interval = 3}, bad);
      CHECK(plain.parameters == scaled.parameters);
      CHECK(plain.skipped == scaled.skipped);
      CHECK(plain.norms == scaled.norms);
      std::set<double> used(scaled.scales.begin(), scaled.scales.end());
      CHECK(used.size() > 2);
      CHECK(plain.scales == std::vector<double>(60, 1.0));
    }
  });
}

TEST_CASE("all gradients of a step have one scale, and each report says which") {
  auto const found =
      trained(acco::two_phase{.pace = acco::fixed_pace{1}}, acco::loss_scaling{.initial = 1024, .interval = 2}, {9, 10, 30});
  for (std::size_t m = 0; m + 1 < found.scales.size(); m += 2) CHECK(found.scales[m] == found.scales[m + 1]);
  for (std::size_t k = 0; k < found.reported.size(); ++k) CHECK(found.reported[k] == found.scales[k]);
}

TEST_CASE("the scale backs off once for what overflows together, grows after an interval, and stays within its bounds") {
  const auto of = [](acco::loss_scaling const& scaling, std::set<std::size_t> const& bad) {
    return trained(acco::synchronous{}, scaling, bad).scales;
  };
  // One update a micro-batch: the scale of micro-batch m is known at once.
  auto grows = of({.initial = 8, .growth = 4, .interval = 10, .most = 100}, {});
  CHECK(std::vector<double>(grows.begin(), grows.begin() + 31) == [] {
    std::vector<double> expected(10, 8.0);
    expected.insert(expected.end(), 10, 32.0);
    expected.insert(expected.end(), 11, 100.0);
    return expected;
  }());
  auto falls = of({.initial = 8, .backoff = 0.25, .interval = 1000, .least = 1}, {4, 5, 6});
  CHECK(std::vector<double>(falls.begin(), falls.begin() + 9) == std::vector<double>{8, 8, 8, 8, 8, 2, 1, 1, 1});
  auto again = of({.initial = 8, .interval = 4}, {2});  // counts anew after an overflow
  CHECK(std::vector<double>(again.begin(), again.begin() + 9) == std::vector<double>{8, 8, 8, 4, 4, 4, 4, 8, 8});
  // Hidden rounds: the micro-batches of the next step, which were under way, have the old scale and overflow, too.
  auto const hidden = trained(acco::delayed{}, acco::loss_scaling{.initial = 8, .interval = 1000}, {4, 5});
  CHECK(std::vector<double>(hidden.scales.begin(), hidden.scales.begin() + 10) ==
        std::vector<double>{8, 8, 8, 8, 8, 8, 4, 4, 4, 4});
}

TEST_CASE_TEMPLATE("half: what would vanish trains, and what overflows backs off until it fits", Schedule, acco::synchronous<>,
                   acco::delayed<>, acco::weight_prediction<>, acco::two_phase<>) {
  constexpr double small = 1e-9, large = 40;  // half: from 6e-8 to 65504
  const auto run = [](double size, std::optional<acco::loss_scaling> const& scaling, int steps) {
    double end = 0;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      acco::optimizer training{Schedule{},
                               acco::sgd{.learning_rate = 1 / size},
                               acco::host_storage<float, acco::half>{},
                               world,
                               100,
                               acco::options{.loss_scale = scaling, .check_habits = acco::habit_checks::off}};
      training.initialize(std::vector<float>(100, 1.0F));
      while (training.steps() < static_cast<std::uint64_t>(steps)) {
        auto const p = training.parameters();
        auto const g = training.gradients();
        for (std::size_t i = 0; i < p.size(); ++i)
          g[i] =
              acco::half(static_cast<float>(static_cast<double>(static_cast<float>(g[i])) + training.loss_scale() * size * 0.01));
        training.accumulated(1);
      }
      training.finish();
      if (world.rank() == 0) end = static_cast<double>(training.parameters()[50]);
    });
    return end;
  };
  CHECK(run(small, {}, 10) == 1.0);                                                   // nothing was learned
  CHECK(run(small, acco::loss_scaling{}, 10) == doctest::Approx(0.9).epsilon(0.02));  // 10 steps of 0.01, or 11
  CHECK(run(large, acco::loss_scaling{.initial = 16777216}, 10) == doctest::Approx(0.9).epsilon(0.02));
}

TEST_CASE("a scale that overflows for ever ends with an error, and bad settings are refused") {
  CHECK_THROWS_WITH_AS(acco::threads_backend::run(2,
                                                  [](acco::threads_backend const& world) {
                                                    acco::optimizer training{
                                                        acco::two_phase{.pace = acco::fixed_pace{1}},
                                                        acco::sgd{},
                                                        acco::host_storage<float>{},
                                                        world,
                                                        10,
                                                        acco::options{.skip_limit = 30, .loss_scale = acco::loss_scaling{}}};
                                                    training.initialize(std::vector<float>(10, 1.0F));
                                                    for (;;) {
                                                      training.gradients()[0] = std::numeric_limits<float>::quiet_NaN();
                                                      training.accumulated(1);
                                                    }
                                                  }),
                       doctest::Contains("31 updates in a row were skipped"), acco::non_finite_error);
  const auto refused = [](acco::loss_scaling const& bad, char const* what) {
    CAPTURE(std::string(what));
    CHECK_THROWS_WITH_AS(acco::options{.loss_scale = bad}.check(), doctest::Contains(what), acco::usage_error);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused({.initial = 0}, "loss_scaling::initial is 0, least 1, most");
  refused({.initial = nan}, "loss_scaling::initial is nan");
  refused({.least = 0}, "loss_scaling::least is 0");
  refused({.most = nan}, "loss_scaling::most is nan");
  refused({.growth = 0.5}, "growth 0.5");
  refused({.backoff = 1}, "backoff 1");
  refused({.interval = 0}, "interval 0");
}

TEST_CASE("a rank that finishes early divides by the scale that the gradients have, in every schedule") {
  every_schedule([](auto schedule) {
    const auto run = [&](std::optional<acco::loss_scaling> const& scaling) {
      std::vector<double> found;
      acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
        acco::optimizer training{schedule, acco::sgd{.learning_rate = 0.1},     acco::host_storage<double>{}, world,
                                 count,    acco::options{.loss_scale = scaling}};
        training.initialize(std::vector<double>(count, 1.0));
        for (int m = 0; m < (world.rank() == 1 ? 6 : 30); ++m) {
          for (double& g : training.gradients()) g += training.loss_scale();
          training.accumulated(1);
        }
        training.finish();
        if (world.rank() == 0) found.assign(training.parameters().begin(), training.parameters().end());
      });
      return found;
    };
    CHECK(run(acco::loss_scaling{.initial = 2, .interval = 1}) == run({}));
  });
}
