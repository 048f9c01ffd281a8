// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/adamw.hpp>

#include "conformance/rule.hpp"

TEST_CASE("adamw equals the textbook in scalar, packed, predicted and committed form") {
  conformance::rule_suite(acco::adamw{.learning_rate = 0.03});
}
