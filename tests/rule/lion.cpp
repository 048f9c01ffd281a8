// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/lion.hpp>

#include "conformance/rule.hpp"

TEST_CASE("lion equals the textbook in scalar, packed, predicted and committed form") {
  conformance::rule_suite(acco::lion{.learning_rate = 0.02});
}
