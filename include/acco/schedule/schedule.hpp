// SPDX-License-Identifier: Apache-2.0
// A schedule is a table over rounds: which gradients a round carries, what its update does, and whether the computation waits for
// it. The state of a schedule is the round's index, so all ranks agree on it and a checkpoint stores one integer.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "acco/rule/update_rule.hpp"
#include "acco/schedule/pace.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Which gradients the update of a round uses.
enum class carried {
  fresh,           ///< those that the round reduces; they also begin a new step
  kept_and_fresh,  ///< those that earlier rounds of this step reduced (kept on their owners) and those that the round reduces
};

/// What the trainer does while the round is in flight.
enum class computation { waits, continues };

struct round_plan {
  carried gradients = carried::fresh;
  update parameters = update::commit;
  computation meanwhile = computation::continues;
  step_part part = step_part::first;  ///< whose length, given by the pace, the carried micro-batches have
  friend constexpr bool operator==(round_plan const&, round_plan const&) = default;
};

constexpr bool commits(round_plan const& plan) noexcept { return plan.parameters != update::predict; }
/// Whether `parameters()` holds committed values once this round has ended.
constexpr bool shows_committed(round_plan const& plan) noexcept { return plan.parameters == update::commit; }
/// "estimate" or "commit": the label of a round in reports and traces.
constexpr char const* label_of(round_plan const& plan) noexcept { return commits(plan) ? "commit" : "estimate"; }

template <class Schedule>
concept has_plan = requires(Schedule const& schedule, std::size_t round) {
  { schedule.plan(round) } -> std::same_as<round_plan>;
};
template <class Schedule>
concept has_pace = requires(Schedule const& schedule) { requires pace<std::remove_cvref_t<decltype(schedule.pace)>>; };

/// A schedule has `constexpr round_plan plan(std::size_t round) const`, the table, and a data member `pace`. Round 0 must be
/// `fresh`, and either all rounds wait or none does (the engine asks round 0). Optional: `static constexpr char const* name`.
template <class Schedule>
concept schedule = has_plan<Schedule> && has_pace<Schedule>;

/// The same, one sentence each.
template <class Schedule>
consteval bool check_schedule() {
  static_assert(has_plan<Schedule>, "acco: the schedule lacks `round_plan plan(std::size_t round) const`");
  static_assert(
      has_pace<Schedule>,
      "acco: the schedule lacks a data member `pace` with `minimum(step_part)` and `maximum(step_part)` returning unsigned");
  return true;
}

}  // namespace ACCO_NAMESPACE
