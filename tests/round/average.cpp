// SPDX-License-Identifier: Apache-2.0
// The exponential moving average of the committed weights.
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/counting.hpp"
#include "support/every_schedule.hpp"

namespace {
constexpr std::size_t count = 5000;
constexpr double decay = 0.75;
}  // namespace

TEST_CASE("the average follows the committed weights, in every schedule; a skipped update is none") {
  every_schedule([](auto schedule) {
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      acco::parameter_layout layout;
      layout.add("first", {4000}).add("still", {300}, layout.add_group({.frozen = true})).add("last", {700});
      counting::resource memory;
      acco::optimizer training{schedule,
                               acco::adamw{.learning_rate = 0.1},
                               acco::host_storage<double>{&memory},
                               world,
                               layout,
                               acco::options{.on_non_finite = acco::non_finite::skip, .average_decay = decay}};
      std::vector<double> initial(count), expected(count), weights(count), average(count);
      for (std::size_t i = 0; i < count; ++i) initial[i] = static_cast<double>(i % 13);
      training.initialize(initial);
      CHECK(memory.now == training.memory().total());
      CHECK(training.memory().averages != 0);
      training.gather_average(average);
      CHECK(average == initial);  // frozen ones, too
      expected = weights = initial;
      std::vector<double> before = initial;
      std::size_t commits = 0, skipped = 0;
      for (std::size_t m = 0; m < 30; ++m) {
        auto const p = training.parameters();
        auto const g = training.gradients();
        for (std::size_t i = 0; i < count; ++i) g[i] += p[i] - static_cast<double>((i + m) % 7);
        if (m == 13 && world.rank() == 1) g[2] = std::numeric_limits<double>::infinity();
        auto const report = training.accumulated(1);
        skipped += report && report->skipped ? 1U : 0U;
        training.gather_committed(weights);  // of the round in flight, too, which is at most one commit
        training.gather_average(average);
        if (weights != before) {
          ++commits;
          for (std::size_t i = 0; i < count; ++i) expected[i] = decay * expected[i] + (1 - decay) * weights[i];
        }
        before = weights;
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += std::abs(average[i] - expected[i]) < 1e-12 ? 0U : 1U;
        CHECK(wrong == 0);
        CHECK(average[4100] == initial[4100]);
      }
      CHECK(commits >= 6);
      CHECK(skipped >= 1);
      training.finish();
    });
  });
}

TEST_CASE("weights that are set leave the average as it is; where none is kept, asking for it is refused and nothing lost") {
  acco::optimizer training{
      acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, 3,
      acco::options{.average_decay = 0.5}};
  training.initialize(std::vector<float>{1, 2, 3});
  training.set_parameters(std::vector<float>{10, 20, 30});
  std::vector<float> out(3);
  training.gather_average(out);
  CHECK(out == std::vector<float>{1, 2, 3});
  std::vector<float> small(2);
  CHECK_THROWS_WITH_AS(training.gather_average(small),
                       doctest::Contains("gather_average got room for 2 parameters, the layout has 3"), acco::usage_error);

  acco::optimizer without{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                          acco::solo_backend{}, 3};
  without.initialize(out);
  CHECK_THROWS_WITH_AS(without.gather_average(out),
                       doctest::Contains("no average of the weights is kept. Set options::average_decay"), acco::usage_error);
  CHECK(without.memory().averages == 0);
  CHECK_NOTHROW(without.finish());
  for (const double bad : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_WITH_AS((acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                                          acco::solo_backend{}, 3, acco::options{.average_decay = bad}}),
                         doctest::Contains("options::average_decay is "), acco::usage_error);
}

TEST_CASE("after an error of all ranks the average is still there, as the committed weights are") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer training{acco::delayed{}, acco::sgd{}, acco::host_storage<float>{},
                             world,           3,           acco::options{.average_decay = 0.5}};
    training.initialize(std::vector<float>{1, 2, 3});
    const auto run = [&] {
      for (int m = 0; m < 5; ++m) {
        training.gradients()[0] = std::numeric_limits<float>::infinity();
        training.accumulated(1);
      }
    };
    CHECK_THROWS_AS(run(), acco::non_finite_error);
    std::vector<float> out(3);
    CHECK_NOTHROW(training.gather_committed(out));
    CHECK_NOTHROW(training.gather_average(out));
    CHECK(out == std::vector<float>{1, 2, 3});
  });
}
