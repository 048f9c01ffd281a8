// SPDX-License-Identifier: Apache-2.0
// Every schedule whose rounds travel in full. One file, because all schedules share an engine: it is compiled once
// here.
#include "conformance/schedule.hpp"

TEST_CASE("every schedule trains like the unsharded reference") { conformance::every_schedule_suite(); }
