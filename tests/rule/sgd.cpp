// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/sgd.hpp>

#include "conformance/rule.hpp"

TEST_CASE("sgd equals the textbook in scalar, packed, predicted and committed form") {
  conformance::rule_suite(acco::sgd{.learning_rate = 0.03});
  conformance::rule_suite(acco::sgd{.learning_rate = 0.03, .momentum = 0.9});
  conformance::rule_suite(acco::sgd{.learning_rate = 0.03, .momentum = 0.9, .nesterov = true});
  conformance::rule_suite(
      acco::sgd{.learning_rate = 0.03, .momentum = 0.9, .nesterov = true, .weight_decay_kind = acco::decay::classic});
}

// A rule's arithmetic is checked by the compiler: one step of 0.5 along a gradient of 2, after shrinking by 1 - 0.5 *
// 0.1.
static_assert([] {
  constexpr acco::sgd rule{.learning_rate = 0.5, .weight_decay = 0.1};
  double p = 3;
  std::array<double, 1> slots{};
  acco::sgd::apply(p, 2.0, slots, rule.prepare({}, {}));
  return p > 1.8499999 && p < 1.8500001 && slots[0] == 2;
}());
