// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/signum.hpp>

#include "conformance/rule.hpp"

TEST_CASE("signum equals the textbook in scalar, packed, predicted and committed form") {
  conformance::rule_suite(acco::signum{.learning_rate = 0.02});
  conformance::rule_suite(acco::signum{.learning_rate = 0.02, .momentum = 0});
}

namespace {

/// signSGD: one step of 0.5 against a gradient's sign, after shrinking by 1 - 0.5 * 0.1, whatever the slot held; of 0 no step.
constexpr double after(double gradient) {
  constexpr acco::signum rule{.learning_rate = 0.5, .momentum = 0, .weight_decay = 0.1};
  double p = 4;
  std::array<double, 1> slots{-7};
  acco::signum::apply(p, gradient, slots, rule.prepare({}, {}));
  return p;
}
static_assert(after(1e-300) > 3.2999999 && after(1e-300) < 3.3000001);
static_assert(after(-2) > 4.2999999 && after(-2) < 4.3000001);
static_assert(after(0) > 3.7999999 && after(0) < 3.8000001);

}  // namespace
