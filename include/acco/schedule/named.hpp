// SPDX-License-Identifier: Apache-2.0
// Schedules by name: every schedule with what it travels in, and the one that a flag or a configuration names.
#pragma once

#include <string_view>
#include <type_traits>

#include "acco/code/bfloat16_wire.hpp"
#include "acco/code/block_gauss.hpp"
#include "acco/code/block_integer.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/schedule/all.hpp"
#include "acco/schedule/any_pace.hpp"
#include "acco/schedule/compensation.hpp"
#include "acco/schedule/predictor.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/type_list.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What "+coded" stands for: gradients in four bits, parameters as differences in three (docs/performance.md has what
/// that costs).
using coded_commit = coded<without_feedback<block_gauss4>, block_gauss3>;

/// The schedules that leave the rule as it is. Behind the "+" stands how rounds travel: estimates as "bfloat16", "int8"
/// or "int4", or from each owner's "own" gradients; "coded" commits, with estimates in four bits.
using named_schedules = type_list<named<"synchronous", synchronous<>>,                                          //
                                  named<"synchronous+coded", synchronous<coded_commit>>,                        //
                                  named<"delayed", delayed<any_pace>>,                                          //
                                  named<"delayed+coded", delayed<any_pace, coded_commit>>,                      //
                                  named<"weight_prediction", weight_prediction<any_pace>>,                      //
                                  named<"weight_prediction+coded", weight_prediction<any_pace, coded_commit>>,  //
                                  named<"two_phase", two_phase<any_pace>>,                                      //
                                  named<"two_phase+bfloat16", two_phase<any_pace, bfloat16_wire>>,              //
                                  named<"two_phase+int8", two_phase<any_pace, block_int8<>>>,                   //
                                  named<"two_phase+int4", two_phase<any_pace, block_int4<>>>,                   //
                                  named<"two_phase+own", two_phase<any_pace, own_slice>>,                       //
                                  named<"two_phase+coded", two_phase<any_pace, block_int4<>, coded_commit>>>;

/// Commits in four bits both ways, with error feedback for the gradients. A list of its own: its wire is compiled where
/// it is asked for, `together<named_schedules, feedback_schedules>`.
using feedback_commit = with_error_feedback<block_int4<>>;
using feedback_schedules = type_list<named<"synchronous+feedback", synchronous<feedback_commit>>,                        //
                                     named<"delayed+feedback", delayed<any_pace, feedback_commit>>,                      //
                                     named<"weight_prediction+feedback", weight_prediction<any_pace, feedback_commit>>,  //
                                     named<"two_phase+feedback", two_phase<any_pace, block_int4<>, feedback_commit>>>;

/// Those of which a part belongs to the rule: each makes a rule of its own.
using decorated_schedules = type_list<named<"extrapolation", delayed<any_pace, full, extrapolation>>,
                                      named<"velocity", delayed<any_pace, full, velocity>>,
                                      named<"delay_compensation", delayed<any_pace, full, no_prediction, delay_compensation>>,
                                      named<"two_phase+own_corrected", two_phase<any_pace, own_corrected>>>;

/// The schedule, or that inside a level of local updates, at this pace. Throws `usage_error` where it takes a fixed one
/// only.
template <class Schedule>
[[nodiscard]] Schedule at_pace(Schedule schedule, any_pace const& pace) {
  if constexpr (level_around<Schedule>::is_one) {
    schedule.inner = at_pace(schedule.inner, pace);
  } else if constexpr (std::is_same_v<decltype(schedule.pace), fixed_pace>) {
    schedule.pace = pace.only_fixed();
  } else {
    schedule.pace = pace;
  }
  return schedule;
}

/// Calls visit(schedule) with the schedule of that name and returns its result. What `visit` does is compiled for every
/// schedule of `Schedules`, and for no other: `only<named_schedules, "two_phase", "two_phase+int4">` are two. Throws
/// `usage_error`, which has all names, where there is none.
template <class Schedules = named_schedules, class Visit>
decltype(auto) with_schedule(std::string_view name, Visit&& visit) {
  return visit_at(Schedules{}, require_name("schedule", Schedules{}, name), visit);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
