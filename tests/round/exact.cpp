// SPDX-License-Identifier: Apache-2.0
// Every schedule whose rounds travel in full. One file, because all schedules share an engine: it is compiled once here.
#include "conformance/schedule.hpp"

TEST_CASE("synchronous trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::synchronous, [](unsigned first, unsigned second) {
    return acco::synchronous{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
TEST_CASE("delayed trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::delayed, [](unsigned first, unsigned second) {
    return acco::delayed{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
TEST_CASE("two_phase trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::two_phase, [](unsigned first, unsigned second) {
    return acco::two_phase{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
TEST_CASE("weight_prediction trains like the unsharded reference") {
  conformance::schedule_suite(reference::algorithm::weight_prediction, [](unsigned first, unsigned second) {
    return acco::weight_prediction{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
