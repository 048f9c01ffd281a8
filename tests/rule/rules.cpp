// SPDX-License-Identifier: Apache-2.0
// Several rules in one optimizer.
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/function_view.hpp>

#include "support/every_schedule.hpp"

namespace {

constexpr std::size_t first_size = 5000, second_size = 130;  // more than a block

/// Two tensors, the second in `group`; the gradients of each depend on nothing but itself. Returns all parameters.
using maker = acco::function_view<acco::any_optimizer<double>(acco::threads_backend const&, acco::parameter_layout const&)>;
std::vector<double> trained_by(maker make, acco::update_group const& group) {
  std::vector<double> found(first_size + second_size);
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::parameter_layout layout;
    layout.add("first", {first_size}).add("second", {second_size}, layout.add_group(group));
    auto training = make(world, layout);
    training.initialize(std::vector<double>(found.size(), 1.0));
    for (int step = 0; step < 8; ++step) {
      training.step([&](auto p, auto g) {
        for (std::size_t i = 0; i < p.size(); ++i)
          g[i] += p[i] - static_cast<double>((i + static_cast<std::size_t>(world.rank())) % 5);
        return 1;
      });
    }
    training.finish();
    if (world.rank() == 0) found.assign(training.parameters().begin(), training.parameters().end());
  });
  return found;
}
template <class Schedule, class Rule>
std::vector<double> trained(Schedule schedule, Rule rule, acco::update_group const& group, acco::options const& chosen = {}) {
  const auto make = [&](acco::threads_backend const& world, acco::parameter_layout const& layout) -> acco::any_optimizer<double> {
    return acco::optimizer{schedule, rule, acco::host_storage<double>{}, world, layout, chosen};
  };
  return trained_by(make, group);
}
std::vector<double> part(std::vector<double> const& of, bool second) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(first_size);
  return second ? std::vector<double>(middle, of.end()) : std::vector<double>(of.begin(), middle);
}

/// A rule with a branch: it runs without packs, and so does what it is put into.
struct only_up {
  static constexpr std::size_t slot_count = 0;
  static constexpr bool scalar_only = true;
  struct constants {
    double rate;
  };
  [[nodiscard]] constants prepare(acco::update_step const&, acco::update_group const&) const { return {0.1}; }
  template <class Real>
  static constexpr void apply(Real& p, Real g, std::array<Real, 0>&, constants const& c) {
    if (g < 0) p -= Real(c.rate) * g;
  }
};

}  // namespace

TEST_CASE("each rule gives its group's tensors the bits that it gives alone, in every schedule") {
  const acco::adamw adam{.learning_rate = 0.05};
  const acco::sgd plain{.learning_rate = 0.1, .momentum = 0.9};
  const acco::lion signs{.learning_rate = 0.03};
  every_schedule([&](auto schedule) {
    auto const by_adam = trained(schedule, adam, {}), by_sgd = trained(schedule, plain, {}),
               by_lion = trained(schedule, signs, {});
    const acco::rules all{adam, plain, signs};
    static_assert(acco::update_rule<decltype(all)> && decltype(all)::slot_count == 2 && !decltype(all)::scalar_only);
    CHECK(trained(schedule, all, {}) == by_adam);
    for (const bool second : {false, true}) {
      CHECK(part(trained(schedule, all, {.rule = 1}), second) == part(second ? by_sgd : by_adam, second));
      CHECK(part(trained(schedule, all, {.rule = 2}), second) == part(second ? by_lion : by_adam, second));
    }
    CHECK(part(by_sgd, true) != part(by_adam, true));
    CHECK(part(by_lion, true) != part(by_adam, true));
  });
}

TEST_CASE("rules that branch, and the same rule twice") {
  const acco::rules branching{acco::adamw{.learning_rate = 0.05}, only_up{}};
  static_assert(decltype(branching)::scalar_only);
  CHECK(part(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, branching, {.rule = 1}), true) ==
        part(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, only_up{}, {}), true));
  const acco::rules twice{acco::sgd{.learning_rate = 0.1}, acco::sgd{.learning_rate = 0.2}};
  CHECK(part(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, twice, {.rule = 1}), true) ==
        part(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{.learning_rate = 0.2}, {}), true));
}

TEST_CASE("all rules of an optimizer are clipped by one norm") {
  const acco::rules both{acco::sgd{.learning_rate = 0.1}, acco::sgd{.learning_rate = 0.1}};
  const acco::options clipped{.clip_norm = 0.5};
  auto const one_rule = trained(acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{.learning_rate = 0.1}, {}, clipped);
  CHECK(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, both, {.rule = 1}, clipped) == one_rule);
  CHECK(one_rule != trained(acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{.learning_rate = 0.1}, {}));
}

TEST_CASE("groups of rules that are not there, or with hyperparameters of another rule, are refused; each rule checks its own") {
  const acco::rules both{acco::adamw{}, acco::sgd{}};
  const auto refused = [](auto rule, acco::update_group const& group, char const* what) {
    CAPTURE(std::string(what));
    CHECK_THROWS_WITH_AS(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, rule, group), doctest::Contains(what),
                         acco::usage_error);
  };
  refused(both, {.rule = 2}, "a group names rule 2 of 2");
  refused(acco::adamw{}, {.rule = 1}, "a group names rule 1, and the optimizer has one rule");
  refused(both, {.momentum = 0.5}, "a group has a momentum of its own, which the rule adamw does not take");
  refused(both, {.beta1 = 0.5, .rule = 1}, "a group has a beta of its own, which the rule sgd does not take");
  refused(acco::rules{acco::adamw{}, only_up{}}, {.epsilon = 0.5, .rule = 1}, "which the rule that was given does not take");
  refused(acco::rules{acco::adamw{}, acco::sgd{.momentum = 1}}, {}, "sgd::momentum is 1");
  CHECK_NOTHROW(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, both, {.momentum = 0.5, .rule = 1}));
}

TEST_CASE("ranks whose rules differ in one of them find that at initialize") {
  CHECK_THROWS_WITH_AS(
      acco::threads_backend::run(2,
                                 [](acco::threads_backend const& world) {
                                   const acco::rules mine{acco::adamw{}, acco::sgd{.learning_rate = 0.1 + world.rank()}};
                                   acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, mine,
                                                            acco::host_storage<double>{}, world, 10};
                                   training.initialize(std::vector<double>(10, 1.0));
                                 }),
      doctest::Contains("'rule.1.learning_rate = 0.1', rank 1 has 'rule.1.learning_rate = 1.1'"), acco::mismatch_error);
}
