// SPDX-License-Identifier: Apache-2.0
// The delayed update with its gradients computed somewhere else.
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "conformance/schedule.hpp"

namespace {

constexpr auto pace = [](unsigned first, unsigned second) { return acco::fixed_pace{.first = first, .second = second}; };

/// One of the trainer's own: half of `extrapolation`, and as a slot how often it was asked.
struct half_a_step {
  static constexpr std::size_t slot_count = 1;
  struct constants {};
  [[nodiscard]] constexpr constants prepare(acco::update_step const&) const { return {}; }
  template <class Real>
  static constexpr Real show(Real before, Real after, std::array<Real, slot_count>& slots, constants const&) {
    slots[0] = slots[0] + Real(1);
    return after + Real(0.5) * (after - before);
  }
};

template <class Schedule, class Rule = acco::adamw>
library::outcome trained(Schedule schedule, reference::setting const& s, Rule const& rule = {.learning_rate = 0.02},
                         acco::options const& options = {}) {
  return library::train<acco::host_storage<double>>(worlds::threads{}, schedule, rule, conformance::mixed_layout(), s, options);
}

}  // namespace

TEST_CASE("extrapolation: gradients at the committed parameters and their last change once more") {
  for (const double ahead : {1.0, 0.3}) {
    const auto make = [&](unsigned first, unsigned second) {
      return acco::delayed{.pace = pace(first, second), .predictor = acco::extrapolation{.ahead = ahead}};
    };
    conformance::short_suite(reference::algorithm::extrapolation, make, {.micro_batches = {}, .ahead = ahead});
  }
}
TEST_CASE("velocity: at a running mean of the changes") {
  conformance::short_suite<everything>(reference::algorithm::velocity,
                                       [](unsigned first, unsigned second) {
                                         return acco::delayed{.pace = pace(first, second),
                                                              .predictor = acco::velocity{.ahead = 1.5, .decay = 0.4}};
                                       },
                                       {.micro_batches = {}, .ahead = 1.5, .decay = 0.4});
}
TEST_CASE("a predictor of the trainer's own") {
  conformance::short_suite<false>(
      reference::algorithm::extrapolation,
      [](unsigned first, unsigned second) { return acco::delayed{.pace = pace(first, second), .predictor = half_a_step{}}; },
      {.micro_batches = {}, .ahead = 0.5});
}

TEST_CASE(
    "bit by bit: rule_prediction is weight_prediction; no step ahead is the plain delayed update; no decay is extrapolation") {
  auto s = conformance::setting(3, 11, 2, 1);
  s.clip_norm = 0.7;
  const auto same = [&](auto a, auto b) { conformance::same_bits(trained(a, s), trained(b, s)); };
  same(acco::delayed{.pace = pace(2, 1), .predictor = acco::rule_prediction{}}, acco::weight_prediction{.pace = pace(2, 1)});
  const auto parameters = [&](auto schedule) { return trained(schedule, s).parameters; };
  CHECK(parameters(acco::delayed{.pace = pace(2, 1), .predictor = acco::extrapolation{.ahead = 0}}) ==
        parameters(acco::delayed{.pace = pace(2, 1)}));
  CHECK(parameters(acco::delayed{.pace = pace(2, 1), .predictor = acco::velocity{.decay = 0}}) ==
        parameters(acco::delayed{.pace = pace(2, 1), .predictor = acco::extrapolation{}}));
  CHECK(parameters(acco::delayed{.pace = pace(2, 1), .predictor = acco::extrapolation{}}) !=
        parameters(acco::delayed{.pace = pace(2, 1)}));
}

TEST_CASE("what is shown is a guess until finish(); a skipped update shows the committed parameters") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer t{acco::delayed{.predictor = acco::extrapolation{}},
                      acco::sgd{.learning_rate = 0.5},
                      acco::host_storage<double>{},
                      world,
                      1,
                      acco::options{.on_non_finite = acco::non_finite::skip, .check_habits = acco::habit_checks::off}};
    t.initialize(std::vector{0.0});
    const auto step = [&](double gradient) {
      t.gradients()[0] += gradient;
      return t.accumulated(1);
    };
    CHECK_FALSE(step(-2));   // the first round is under way: from 0 to 1
    auto report = step(-4);  // it is over, and shows one step further
    REQUIRE(report);
    CHECK_FALSE(report->committed);
    CHECK(t.parameters()[0] == 2.0);
    std::vector<double> committed(1);
    t.gather_committed(committed);
    CHECK(committed[0] == 3.0);  // with the round in flight
    report = step(std::numeric_limits<double>::infinity());
    REQUIRE(report);
    CHECK(t.parameters()[0] == 5.0);  // 3, and 2 further
    report = step(0);
    REQUIRE(report);
    CHECK(report->skipped);
    CHECK(t.parameters()[0] == 3.0);
    t.finish();
    CHECK(t.parameters()[0] == 3.0);
  });
}

TEST_CASE("slots: counted, and only where there are any") {
  const auto slots = [](auto schedule) {
    acco::optimizer t{schedule, acco::adamw{}, acco::host_storage<double>{}, acco::threads_backend::world(1)[0], 6400};
    return t.memory().slots;
  };
  const std::size_t plain = slots(acco::delayed{});
  CHECK(slots(acco::delayed{.predictor = acco::extrapolation{}}) == plain);
  CHECK(slots(acco::delayed{.predictor = acco::rule_prediction{}}) == plain);
  CHECK(slots(acco::delayed{.predictor = acco::velocity{}}) >= plain + 6400 * sizeof(double));
}

TEST_CASE("a predictor's numbers are checked, and compared between ranks") {
  const auto make = [](auto predictor) {
    acco::optimizer{acco::delayed{.predictor = predictor}, acco::adamw{}, acco::host_storage<double>{},
                    acco::threads_backend::world(1)[0], 4};
  };
  CHECK_THROWS_WITH_AS(make(acco::extrapolation{.ahead = -1}), doctest::Contains("extrapolation::ahead is -1"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(make(acco::velocity{.decay = 1}), doctest::Contains("velocity::decay is 1"), acco::usage_error);
  CHECK_THROWS_WITH_AS(make(acco::velocity{.ahead = std::numeric_limits<double>::quiet_NaN()}),
                       doctest::Contains("velocity::ahead"), acco::usage_error);
  CHECK_THROWS_WITH_AS(
      acco::threads_backend::run(2,
                                 [](acco::threads_backend const& world) {
                                   acco::optimizer t{
                                       acco::delayed{.predictor = acco::extrapolation{.ahead = world.rank() == 0 ? 1.0 : 0.5}},
                                       acco::sgd{}, acco::host_storage<double>{}, world, 4};
                                   t.initialize(std::vector<double>(4));
                                 }),
      doctest::Contains("predictor.ahead"), acco::mismatch_error);
}

namespace {
/// Rules of the trainer's own, as a decoration meets them.
struct named_by_nobody {
  double rate = 0.1;
  static constexpr std::size_t slot_count = 0;
  struct constants {
    double rate;
  };
  explicit named_by_nobody(double chosen) : rate(chosen) {}
  virtual ~named_by_nobody() = default;
  named_by_nobody(named_by_nobody const&) = default;
  named_by_nobody(named_by_nobody&&) = default;
  named_by_nobody& operator=(named_by_nobody const&) = default;
  named_by_nobody& operator=(named_by_nobody&&) = default;
  [[nodiscard]] constexpr constants prepare(acco::update_step const&, acco::update_group const&) const { return {rate}; }
  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>&, constants const& c) {
    parameter = parameter - Real(c.rate) * gradient;
  }
};
/// Looks ahead only where it goes down.
struct branching {
  static constexpr bool scalar_only = true;
  static constexpr std::size_t slot_count = 0;
  struct constants {};
  [[nodiscard]] constexpr constants prepare(acco::update_step const&) const { return {}; }
  template <class Real>
  static constexpr Real show(Real before, Real after, std::array<Real, slot_count>&, constants const&) {
    return after < before ? after + (after - before) : after;
  }
};
}  // namespace

TEST_CASE("rules without name or default, with virtual members; predictors that branch; several rules") {
  const auto shown = [](auto predictor, auto rule, acco::parameter_layout const& layout) {
    acco::optimizer t{acco::delayed{.predictor = predictor},
                      rule,
                      acco::host_storage<double>{},
                      acco::solo_backend{},
                      layout,
                      acco::options{.check_habits = acco::habit_checks::off}};
    t.initialize(std::vector<double>(layout.size(), 0.0));
    for (int k = 0; k < 2; ++k) {
      for (std::size_t i = 0; i < layout.size(); ++i) t.gradients()[i] += i % 2 == 0 ? 1 : -1;
      t.accumulated(1);
    }
    return std::vector<double>(t.parameters().begin(), t.parameters().end());
  };
  const acco::parameter_layout two(2);
#ifdef ACCO_TEST_ALL  // the next line has such a rule, and such a predictor
  CHECK(shown(acco::extrapolation{}, named_by_nobody(0.5), two) == std::vector{-1.0, 1.0});
#endif
  CHECK(shown(branching{}, named_by_nobody(0.5), two) == std::vector{-1.0, 0.5});
  CHECK(shown(branching{}, acco::sgd{.learning_rate = 0.5}, two) == std::vector{-1.0, 0.5});
  acco::parameter_layout mixed;
  const auto other = mixed.add_group({.rule = 1});
  mixed.add("a", {1}).add("b", {1}, other);
  CHECK(shown(acco::extrapolation{}, acco::rules{acco::sgd{.learning_rate = 0.5}, acco::sgd{.learning_rate = 0.25}}, mixed) ==
        std::vector{-1.0, 0.5});
}
