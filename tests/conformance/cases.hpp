// SPDX-License-Identifier: Apache-2.0
// Test cases for a world that its includer has named `this_world`: every schedule, and the trainer's interface.
#pragma once

#include <doctest/doctest.h>

#include "conformance/encoded_rounds.hpp"
#include "conformance/guards.hpp"
#include "conformance/schedule.hpp"
#include "conformance/trainer.hpp"
#include "support/float_wire.hpp"

TEST_CASE("synchronous") {
  conformance::schedule_suite<this_world>(reference::algorithm::synchronous, [](unsigned first, unsigned second) {
    return acco::synchronous{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
TEST_CASE("delayed") {
  conformance::schedule_suite<this_world>(reference::algorithm::delayed, [](unsigned first, unsigned second) {
    return acco::delayed{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
TEST_CASE("two_phase") {
  conformance::schedule_suite<this_world>(reference::algorithm::two_phase, [](unsigned first, unsigned second) {
    return acco::two_phase{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
TEST_CASE("weight_prediction") {
  conformance::schedule_suite<this_world>(reference::algorithm::weight_prediction, [](unsigned first, unsigned second) {
    return acco::weight_prediction{.pace = acco::fixed_pace{.first = first, .second = second}};
  });
}
TEST_CASE("two_phase, encoded without loss") {
  if constexpr (worlds::on_host<this_world>) {
    conformance::schedule_suite<this_world>(
        reference::algorithm::two_phase,
        [](unsigned first, unsigned second) {
          return acco::two_phase{
              .estimate = float_wire{}, .commit = float_wire{}, .pace = acco::fixed_pace{.first = first, .second = second}};
        },
        2e-4);
  }
}
TEST_CASE("in few bits: the training of threads_backend over host memory, bit by bit where rounds are alike") {
  conformance::encoded_rounds<this_world>();
}
TEST_CASE("trainer") { conformance::trainer_suite<this_world>(); }
TEST_CASE("guards") { conformance::guards_suite<this_world>(); }
