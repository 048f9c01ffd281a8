// SPDX-License-Identifier: Apache-2.0
#include "conformance/schedule.hpp"

TEST_CASE("delayed trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::delayed, [](unsigned first, unsigned second) {
    return acco::delayed{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
