// SPDX-License-Identifier: Apache-2.0
// All schedules, with paces of several lengths and estimates in full and in few bits.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

/// Calls visit(schedule) for every schedule.
template <class Visitor>
void every_schedule(Visitor&& visit) {
  const auto with = [&](char const* name, auto schedule) {
    const std::string schedule_name = name;
    CAPTURE(schedule_name);
    visit(schedule);
  };
  using acco::fixed_pace;
  acco::for_each(acco::all_schedules{}, [&](auto schedule) {
    schedule.pace = fixed_pace{2};
    with(schedule.name, schedule);
  });
  with("two_phase, 1 micro-batch", acco::two_phase{.pace = fixed_pace{1}});
  with("two_phase, from own gradients", acco::two_phase{.estimate = acco::own_slice{}, .pace = fixed_pace{2}});
  with("two_phase, coarse", acco::two_phase{.estimate = acco::bfloat16_wire{}, .pace = fixed_pace{2}});
}
