// SPDX-License-Identifier: Apache-2.0
#include "conformance/schedule.hpp"

TEST_CASE("weight_prediction trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::weight_prediction, [](unsigned first, unsigned second) {
    return acco::weight_prediction{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
