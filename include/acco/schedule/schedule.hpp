// SPDX-License-Identifier: Apache-2.0
// A schedule is a table over rounds: which gradients a round carries, what its update does, and whether the computation waits for
// it. The state of a schedule is the round's index, so all ranks agree on it and a checkpoint stores one integer.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/encoding/encoding.hpp"
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
  bool keeps = false;                 ///< the accumulator keeps what the round carries: the next round carries it again
  friend constexpr bool operator==(round_plan const&, round_plan const&) = default;
};

constexpr bool commits(round_plan const& plan) noexcept { return plan.parameters != update::predict; }
/// Whether `parameters()` holds committed values once this round has ended.
constexpr bool shows_committed(round_plan const& plan) noexcept { return plan.parameters == update::commit; }
/// "estimate" or "commit": the label of a round in reports and traces.
constexpr char const* label_of(round_plan const& plan) noexcept { return commits(plan) ? "commit" : "estimate"; }

/// How the rounds of a schedule travel: what its members `estimate` and `commit` say, or in full.
template <class Schedule>
[[nodiscard]] constexpr auto estimate_wire(Schedule const& schedule) noexcept {
  if constexpr (requires { as_coded(schedule.estimate); }) {
    return as_coded(schedule.estimate);
  } else {
    return coded<>{};
  }
}
template <class Schedule>
[[nodiscard]] constexpr auto commit_wire(Schedule const& schedule) noexcept {
  if constexpr (requires { as_coded(schedule.commit); }) {
    return as_coded(schedule.commit);
  } else {
    return coded<>{};
  }
}

template <class Schedule>
inline constexpr bool sends_encoded_gradients =
    encoding<typename decltype(estimate_wire(std::declval<Schedule const&>()))::gradient_encoding> ||
    encoding<typename decltype(commit_wire(std::declval<Schedule const&>()))::gradient_encoding>;

/// Whether a round is the first of a step.
template <class Schedule>
[[nodiscard]] constexpr bool begins_step(Schedule const& schedule, std::size_t round) noexcept {
  return round == 0 || commits(schedule.plan(round - 1));
}

template <class Schedule>
concept has_plan = requires(Schedule const& schedule, std::size_t round) {
  { schedule.plan(round) } -> std::same_as<round_plan>;
};
template <class Schedule>
concept has_pace = requires(Schedule const& schedule) { requires pace<std::remove_cvref_t<decltype(schedule.pace)>>; };

/// A schedule has `constexpr round_plan plan(std::size_t round) const`, the table, and a data member `pace`. Round 0 must be
/// `fresh`, and either all rounds wait or none does (the engine asks round 0). A step begins after a
/// commit. Optional: `static constexpr char const* name`; data members `estimate` and `commit`, which say how the rounds
/// that do not, and that do commit travel (encoding/encoding.hpp).
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
