// SPDX-License-Identifier: Apache-2.0
// The delayed update with its gradients corrected.
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "conformance/schedule.hpp"

namespace {

constexpr auto pace = [](unsigned first, unsigned second) { return acco::fixed_pace{.first = first, .second = second}; };

/// strength / sqrt(s + epsilon) in place of a constant, s <- decay s + (1 - decay) g g: DC-ASGD's adaptive form (arXiv
/// 1609.08326, section 5).
struct adaptive {
  double strength, decay = 0.95, epsilon = 1e-7;

  static constexpr std::size_t slot_count = 1;
  struct constants {
    double strength, keep, take, epsilon;
  };
  [[nodiscard]] constexpr constants prepare(acco::update_step const& step) const {
    return {step.late ? strength : 0.0, decay, 1 - decay, epsilon};
  }
  template <class Real>
  static constexpr Real correct(Real gradient, Real moved, std::array<Real, slot_count>& slots, constants const& c) {
    using acco::square_root;
    slots[0] = Real(c.keep) * slots[0] + Real(c.take) * gradient * gradient;
    return gradient + Real(c.strength) * gradient * (gradient * moved) / square_root(slots[0] + Real(c.epsilon));
  }
};

using of_one = acco::any_optimizer<double>;

/// A training of one parameter whose gradient is curvature * parameter, on one rank, at a rate of `rate`.
template <class Schedule>
of_one one_parameter(Schedule schedule, double rate, acco::options options = {}) {
  options.check_habits = acco::habit_checks::off;
  return acco::optimizer{
      schedule, acco::sgd{.learning_rate = rate}, acco::host_storage<double>{}, acco::threads_backend::world(1)[0], 1, options};
}

}  // namespace

TEST_CASE("delay_compensation: late gradients move with the parameters") {
  conformance::short_suite(reference::algorithm::compensated,
                           [](unsigned first, unsigned second) {
                             return acco::delayed{.pace = pace(first, second),
                                                  .compensation = acco::delay_compensation{.strength = 0.8}};
                           },
                           {.micro_batches = {}, .strength = 0.8, .squares = -1});
}
TEST_CASE("a compensation of one's own, with a slot") {
  conformance::short_suite<false>(reference::algorithm::compensated,
                                  [](unsigned first, unsigned second) {
                                    return acco::delayed{.pace = pace(first, second), .compensation = adaptive{.strength = 0.8}};
                                  },
                                  {.micro_batches = {}, .strength = 0.8, .squares = 0.95});
}
TEST_CASE("without strength it is the plain delayed update, bit by bit") {
  const auto s = conformance::setting(3, 11, 2, 1);
  const auto parameters = [&](auto schedule) {
    return library::train<acco::host_storage<double>>(worlds::threads{}, schedule, acco::adamw{.learning_rate = 0.02},
                                                      conformance::mixed_layout(), s)
        .parameters;
  };
  CHECK(parameters(acco::delayed{.pace = pace(2, 1), .compensation = acco::delay_compensation{.strength = 0}}) ==
        parameters(acco::delayed{.pace = pace(2, 1)}));
}

// Where strength g^2 is the curvature, the corrected gradient is that of the parameters it updates: so of a gradient of
// 1 everywhere in a valley g(p) = p - 1 + ..., here with the parameter moved by hand.
TEST_CASE("a gradient is corrected by what its parameter has moved since, and by no more than that") {
  auto t = one_parameter(acco::delayed{.compensation = acco::delay_compensation{.strength = 1}}, 1.0);
  t.initialize(std::vector{0.0});
  const auto step = [&](double gradient) {
    t.gradients()[0] += gradient;
    return t.accumulated(1);
  };
  (void)step(1);  // of theta[0] = 0, and used there: theta[1] = -1
  (void)step(1);  // of theta[0], used at -1: 1 + 1 * (-1) = 0: theta[2] = -1
  (void)step(1);  // of theta[1] = -1, used at theta[2] = -1, which has not moved: theta[3] = -2
  t.finish();
  CHECK(t.parameters()[0] == -2.0);
  SUBCASE("after finish() the next gradient is of the parameters that it updates") {
    (void)step(1);
    t.finish();
    CHECK(t.parameters()[0] == -3.0);  // and not 1 + 1 * (-1) = 0
  }
  SUBCASE("after set_parameters too") {
    t.set_parameters(std::vector{5.0});
    (void)step(1);
    t.finish();
    CHECK(t.parameters()[0] == 4.0);
  }
}
TEST_CASE("an update that is left out has moved nothing") {
  SUBCASE("because its gradient is not finite") {
    auto t = one_parameter(acco::delayed{.compensation = acco::delay_compensation{.strength = 1}}, 1.0,
                           {.on_non_finite = acco::non_finite::skip});
    t.initialize(std::vector{0.0});
    const auto step = [&](double gradient) {
      t.gradients()[0] += gradient;
      return t.accumulated(1);
    };
    (void)step(1);                                        // theta[1] = -1
    (void)step(std::numeric_limits<double>::infinity());  // skipped: theta stays -1
    (void)step(1);                                        // of -1, used at -1: theta = -2
    t.finish();
    CHECK(t.parameters()[0] == -2.0);
  }
  SUBCASE("because a tensor had no gradient, and its group is left then") {
    acco::parameter_layout layout;
    const auto leaves = layout.add_group({.leave_without_gradient = true});
    layout.add("always", {1}).add("sometimes", {1}, leaves);
    acco::optimizer t{acco::delayed{.compensation = acco::delay_compensation{.strength = 1}},
                      acco::sgd{.learning_rate = 1.0},
                      acco::host_storage<double>{},
                      acco::threads_backend::world(1)[0],
                      layout,
                      acco::options{.check_habits = acco::habit_checks::off}};
    t.initialize(std::vector{0.0, 0.0});
    const auto step = [&](double always, double sometimes) {
      t.gradients()[0] += always;
      t.gradients()[1] += sometimes;
      return t.accumulated(1);
    };
    (void)step(1, 1);  // -1, -1
    (void)step(1, 0);  // 1 + 1 * (-1) = 0: -1 stays; the other is left
    (void)step(1, 1);  // -2; and of the other, which has not moved: -2
    t.finish();
    CHECK(t.parameters()[0] == -2.0);
    CHECK(t.parameters()[1] == -2.0);
  }
}
TEST_CASE("a compensation's numbers are checked") {
  const auto make = [](auto compensation) {
    acco::optimizer{acco::delayed{.compensation = compensation}, acco::adamw{}, acco::host_storage<double>{},
                    acco::threads_backend::world(1)[0], 4};
  };
  CHECK_THROWS_WITH_AS(make(acco::delay_compensation{.strength = -1}), doctest::Contains("delay_compensation::strength is -1"),
                       acco::usage_error);
}
