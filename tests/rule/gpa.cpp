// SPDX-License-Identifier: Apache-2.0
// Generalized primal averaging around rules: against its three sequences written out, under schedules of every kind.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "conformance/rule.hpp"
#include "support/every_schedule.hpp"

namespace {
constexpr double mu_y = 0.6, mu_x = 0.8;
constexpr acco::primal_averaging averaging{.interpolation = mu_y, .average_decay = mu_x};
}  // namespace

TEST_CASE("gpa around adamw, sgd and lion is what every rule must be") {
  conformance::rule_suite(acco::gpa{acco::adamw{}, averaging});
  conformance::rule_suite(acco::gpa{acco::sgd{.momentum = 0.9, .nesterov = true}, averaging});
  conformance::rule_suite(acco::gpa{acco::lion{}, averaging});
}

namespace {
/// Trains sum (w - c)^2 / 2 and tells, step by step: `see(y, x)`.
template <class Rule, class See>
void train(auto schedule, Rule rule, int ranks, std::size_t count, std::size_t micro_batches, See&& see,
           double average_decay = 0) {
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule, rule,  acco::host_storage<double>{},
                             world,    count, acco::options{.average_decay = average_decay, .bucket_elements = 8}};
    std::vector<double> initial(count), y(count), x(count);
    for (std::size_t i = 0; i < count; ++i) initial[i] = problem::unit(i);
    training.initialize(initial);
    training.gather_average(x);
    CHECK(x == initial);
    for (std::size_t m = 0; m < micro_batches; ++m) {
      auto const p = training.parameters();
      auto const g = training.gradients();
      for (std::size_t i = 0; i < count; ++i)
        g[i] += p[i] - problem::unit(i + 7 * (m % 5) + static_cast<std::size_t>(world.rank()));
      training.accumulated(1);
      training.gather_committed(y);
      training.gather_average(x);
      if (world.rank() == 0) see(y, x);
    }
    training.finish();
  });
}
}  // namespace

TEST_CASE("under every schedule x is the average of what the rule does to z, and y lies between them") {
  constexpr std::size_t count = 37;
  every_schedule([&](auto schedule) {
    std::vector<double> x(count), z(count), before(count);
    for (std::size_t i = 0; i < count; ++i) before[i] = z[i] = x[i] = problem::unit(i);
    std::size_t commits = 0;
    train(schedule, acco::gpa{acco::sgd{.learning_rate = 0.2}, averaging}, 3, count, 24,
          [&](std::vector<double> const& y, std::vector<double> const& found) {
            if (y == before) return;
            before = y;
            ++commits;
            double worst = 0;
            for (std::size_t i = 0; i < count; ++i) {
              z[i] = (y[i] - mu_y * found[i]) / (1 - mu_y);
              x[i] = mu_x * x[i] + (1 - mu_x) * z[i];
              worst = std::max(worst, std::abs(found[i] - x[i]));
            }
            CHECK(worst < 1e-12);
          });
    CHECK(commits >= 4);
  });
}

TEST_CASE("without interpolation y is the plain rule's, in every bit, and x its moving average") {
  constexpr std::size_t count = 37;
  std::vector<std::vector<double>> plain, averaged, of_y, of_x;
  const acco::adamw rule{.learning_rate = 0.1};
  const acco::two_phase schedule{.pace = acco::fixed_pace{1}};
  train(
      schedule, rule, 2, count, 12,
      [&](std::vector<double> const& y, std::vector<double> const& x) { plain.push_back(y), averaged.push_back(x); }, mu_x);
  train(schedule, acco::gpa{rule, {.interpolation = 0, .average_decay = mu_x}}, 2, count, 12,
        [&](std::vector<double> const& y, std::vector<double> const& x) { of_y.push_back(y), of_x.push_back(x); });
  CHECK(plain == of_y);
  REQUIRE(averaged.size() == of_x.size());
  for (std::size_t m = 0; m < averaged.size(); ++m)
    for (std::size_t i = 0; i < count; ++i) CHECK(std::abs(averaged[m][i] - of_x[m][i]) < 1e-12);
}

TEST_CASE("an outer Nesterov step of momentum mu_y over one worker, every step, is gpa around the inner rule") {
  // The paper's primal form: with inner gradient descent, a step H = 1, mu_x = mu_y = mu and the step (1 - mu)^-1 times
  // the outer one. Written out: u <- mu u + d, y <- y - rate (d + mu u), d the step of the inner rule.
  constexpr double mu = 0.7, inner = 0.2, outer = 0.5;
  constexpr std::size_t count = 5;
  std::vector<double> y(count), u(count, 0.0);
  for (std::size_t i = 0; i < count; ++i) y[i] = problem::unit(i);
  std::size_t m = 0;
  double worst = 0;
  train(acco::synchronous{.pace = acco::fixed_pace{1}},
        acco::gpa{acco::sgd{.learning_rate = inner * outer / (1 - mu)}, {.interpolation = mu, .average_decay = mu}}, 1, count, 30,
        [&](std::vector<double> const& found, std::vector<double> const&) {
          for (std::size_t i = 0; i < count; ++i) {
            const double d = inner * (y[i] - problem::unit(i + 7 * (m % 5)));
            u[i] = mu * u[i] + d;
            y[i] -= outer * (d + mu * u[i]);
            worst = std::max(worst, std::abs(y[i] - found[i]));
          }
          ++m;
        });
  CHECK(m == 30);
  CHECK(worst < 1e-12);
}

TEST_CASE("around muon, and around several rules, x and y are averages, too") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::parameter_layout layout;
    const auto others = layout.add_group({.rule = 1});
    layout.add("matrix", {6, 4}).add("vector", {5}, others);
    acco::optimizer training{acco::delayed{.pace = acco::fixed_pace{1}},
                             acco::gpa{acco::rules{acco::muon{.learning_rate = 0.1}, acco::sgd{.learning_rate = 0.1}}, averaging},
                             acco::host_storage<double>{}, world, layout};
    std::vector<double> x(29), z(29), y(29), found(29), before(29);
    for (std::size_t i = 0; i < 29; ++i) before[i] = x[i] = problem::unit(i);
    training.initialize(x);
    std::size_t commits = 0;
    for (std::size_t m = 0; m < 12; ++m) {
      for (std::size_t i = 0; i < 29; ++i) training.gradients()[i] += training.parameters()[i] - problem::unit(i + m);
      training.accumulated(1);
      training.gather_committed(y);
      training.gather_average(found);
      if (y == before) continue;
      before = y;
      ++commits;
      for (std::size_t i = 0; i < 29; ++i) {
        z[i] = (y[i] - mu_y * found[i]) / (1 - mu_y);
        x[i] = mu_x * x[i] + (1 - mu_x) * z[i];
        CHECK(std::abs(found[i] - x[i]) < 1e-12);
      }
    }
    CHECK(commits >= 8);
    training.finish();
  });
}

TEST_CASE("parameters that the trainer replaces take x and z along; the average is there in the masters' type") {
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::gpa{acco::sgd{.learning_rate = 0.5}, averaging},
                           acco::host_storage<acco::bfloat16, acco::bfloat16, float>{}, acco::solo_backend{}, 2};
  training.initialize(std::vector<acco::bfloat16>{acco::bfloat16(1.0F), acco::bfloat16(2.0F)});
  for (int m = 0; m < 4; ++m) {
    training.gradients()[0] = acco::bfloat16(1.0F);
    training.accumulated(1);
  }
  training.finish();
  std::vector<float> y(2), x(2);
  training.gather_masters(y);
  training.gather_masters(x, acco::weights::average);
  CHECK(x[0] > y[0]);  // x is behind on the way down
  CHECK(x[1] == y[1]);
  const float ahead = x[0] - y[0];
  training.set_parameters(std::vector<acco::bfloat16>{acco::bfloat16(16.0F), acco::bfloat16(4.0F)});
  training.gather_masters(x, acco::weights::average);
  CHECK(x[0] == doctest::Approx(16 + ahead));
  CHECK(x[1] == 4);
  std::vector<acco::bfloat16> rounded(2);
  training.gather_average(rounded);
  CHECK(static_cast<float>(rounded[0]) == static_cast<float>(acco::bfloat16(x[0])));
}

TEST_CASE("settings that mean nothing, and a second average, are refused") {
  const auto made = [](acco::primal_averaging given, acco::options chosen = {}) {
    acco::optimizer training{
        acco::synchronous{}, acco::gpa{acco::sgd{}, given}, acco::host_storage<float>{}, acco::solo_backend{}, 3, chosen};
  };
  for (const double bad : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_WITH_AS(made({.interpolation = bad}), doctest::Contains("primal_averaging::interpolation is "),
                         acco::usage_error);
    CHECK_THROWS_WITH_AS(made({.average_decay = bad}), doctest::Contains("primal_averaging::average_decay is "),
                         acco::usage_error);
  }
  CHECK_THROWS_WITH_AS(made({}, {.average_decay = 0.9}),
                       doctest::Contains("options::average_decay is set, and the rule keeps an average itself"),
                       acco::usage_error);
  CHECK_NOTHROW(made({.interpolation = 0, .average_decay = 0}));
}
