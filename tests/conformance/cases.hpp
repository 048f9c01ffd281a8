// SPDX-License-Identifier: Apache-2.0
// Test cases for a world that its includer has named `this_world`: every schedule, and the trainer's interface.
#pragma once

#include <algorithm>

#include <doctest/doctest.h>

#include "conformance/encoded_rounds.hpp"
#include "conformance/guards.hpp"
#include "conformance/schedule.hpp"
#include "conformance/trainer.hpp"
#include "support/float_wire.hpp"

TEST_CASE("every schedule") { conformance::every_schedule_suite<this_world>(); }
TEST_CASE("predictors, compensations, estimates from own gradients") {
  const int ranks = std::min(thorough() ? 3 : 2, this_world::most_ranks);
  const auto check = [&](reference::algorithm kind, auto schedule, reference::setting s) -> void {
    s.ranks = ranks;
    s.micro_batches.assign(static_cast<std::size_t>(ranks), thorough() ? 11 : 5);
    s.first = schedule.pace.first;
    s.second = schedule.pace.second;
    s.clip_norm = 0.7;
    conformance::compare<conformance::exact<this_world>, this_world>(
        kind, [&](unsigned, unsigned) { return schedule; }, acco::adamw{.learning_rate = 0.02}, conformance::mixed_layout(), s);
  };
  constexpr acco::fixed_pace two{.first = 2, .second = 1};
  constexpr bool computes = !worlds::on_host<this_world> || everything;  // in kernels: no world's own
  if constexpr (computes) {
    check(reference::algorithm::velocity, acco::delayed{.pace = two, .predictor = acco::velocity{.decay = 0.4}},
          {.micro_batches = {}, .decay = 0.4});
    check(reference::algorithm::compensated,
          acco::delayed{.pace = two, .compensation = acco::delay_compensation{.strength = 0.8}},
          {.micro_batches = {}, .strength = 0.8, .squares = -1});
  }
  check(reference::algorithm::own_slice, acco::two_phase{.estimate = acco::own_slice{}, .pace = two}, {.micro_batches = {}});
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
