// SPDX-License-Identifier: Apache-2.0
#include "conformance/schedule.hpp"

TEST_CASE("two_phase trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::two_phase, [](unsigned first, unsigned second) {
    return acco::two_phase{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
