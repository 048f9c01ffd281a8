// SPDX-License-Identifier: Apache-2.0
#include "conformance/schedule.hpp"

TEST_CASE("synchronous trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::synchronous, [](unsigned first, unsigned second) {
    return acco::synchronous{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
