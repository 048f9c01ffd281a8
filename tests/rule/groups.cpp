// SPDX-License-Identifier: Apache-2.0
// Hyperparameters that a group has of its own.
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {
/// Trains two tensors, the second in `group`; that part of the parameters.
template <class Rule>
std::vector<double> second_tensor(Rule rule, acco::update_group const& group) {
  std::vector<double> found;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::parameter_layout layout;
    layout.add("first", {70}).add("second", {90}, layout.add_group(group));
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, rule, acco::host_storage<double>{}, world, layout};
    training.initialize(std::vector<double>(160, 1.0));
    for (int step = 0; step < 14; ++step) {
      training.step([](auto p, auto g) {
        for (std::size_t i = 0; i < p.size(); ++i) g[i] += p[i] - static_cast<double>(i % 5);
        return 1;
      });
    }
    training.finish();
    auto const second = training.tensor("second").parameters;
    if (world.rank() == 0) found.assign(second.begin(), second.end());
  });
  return found;
}
}  // namespace

TEST_CASE("a group's own betas, epsilon and momentum give the bits of a rule that has them; those of another rule are refused") {
  using acco::adamw, acco::sgd, acco::lion, acco::signum;
  const adamw plain{.learning_rate = 0.05};
  const auto same = [&](auto rule, acco::update_group const& group, auto rule_that_has_it) {
    auto const own = second_tensor(rule, group);
    CHECK(own == second_tensor(rule_that_has_it, {}));
    CHECK(own != second_tensor(rule, {}));
  };
  same(plain, {.beta1 = 0.5}, adamw{.learning_rate = 0.05, .beta1 = 0.5});
  same(plain, {.beta2 = 0.9}, adamw{.learning_rate = 0.05, .beta2 = 0.9});
  same(plain, {.epsilon = 0.1}, adamw{.learning_rate = 0.05, .epsilon = 0.1});
  same(lion{.learning_rate = 0.13}, {.beta1 = 0.2, .beta2 = 0.4}, lion{.learning_rate = 0.13, .beta1 = 0.2, .beta2 = 0.4});
  same(sgd{.learning_rate = 0.05, .momentum = 0.9}, {.momentum = 0.3}, sgd{.learning_rate = 0.05, .momentum = 0.3});
  same(sgd{.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}, {.momentum = 0.0},
       sgd{.learning_rate = 0.05, .momentum = 0.0, .nesterov = true});
  same(signum{.learning_rate = 0.13}, {.momentum = 0.0}, signum{.learning_rate = 0.13, .momentum = 0.0});
  const auto refused = [](auto rule, acco::update_group const& group, char const* what) {
    CAPTURE(std::string(what));
    CHECK_THROWS_WITH_AS(second_tensor(rule, group), doctest::Contains(what), acco::usage_error);
  };
  refused(plain, {.beta1 = 1.0}, "update_group::beta1 is 1");
  refused(plain, {.beta2 = -0.1}, "update_group::beta2 is -0.1");
  refused(plain, {.epsilon = 0.0}, "update_group::epsilon is 0");
  refused(plain, {.momentum = 0.9}, "a group has a momentum of its own, which the rule adamw does not take");
  refused(lion{}, {.epsilon = 1e-8}, "a group has a epsilon of its own, which the rule lion does not take");
  refused(signum{}, {.beta1 = 0.9}, "a group has a beta of its own, which the rule signum does not take");
  refused(signum{}, {.epsilon = 1e-8}, "a group has a epsilon of its own, which the rule signum does not take");
  refused(signum{}, {.momentum = 1.0}, "update_group::momentum is 1");
  refused(sgd{}, {.beta1 = 0.9}, "a group has a beta of its own, which the rule sgd does not take");
  refused(sgd{}, {.momentum = 1.0}, "update_group::momentum is 1");
}
