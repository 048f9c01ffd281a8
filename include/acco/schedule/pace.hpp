// SPDX-License-Identifier: Apache-2.0
// A pace says after how many micro-batches a rank ends its part of a round.
#pragma once

#include <concepts>
#include <cstdint>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Which part of a step a round's gradients are, by number: schedules with one kind of round use `first` only, and one
/// with three lengths has `step_part{2}`, too.
enum class step_part : std::uint8_t { first, second };

/// Exactly `first` micro-batches in the first part of a step and `second` in the second (0: as many as in the first).
/// Waits if the round before is still in flight. Reproducible bit for bit with the same number of ranks.
struct fixed_pace {
  unsigned first = 1;
  unsigned second = 0;

  static constexpr char const* name = "fixed_pace";
  [[nodiscard]] constexpr unsigned minimum(step_part part) const noexcept {
    return part == step_part::second && second != 0 ? second : first;
  }
  [[nodiscard]] constexpr unsigned maximum(step_part part) const noexcept { return minimum(part); }
};

/// Goes on accumulating while the round before is in flight, up to `at_most` micro-batches, so that a fast rank does
/// not wait for a slow one. On a GPU that is asked when the trainer's stream comes to its last micro-batch: the host
/// stays one ahead, and a part may be one longer than the round. Ranks may end with different numbers of micro-batches:
/// the update is the weighted mean over all of them. Ranks are not in step: between `initialize` and `finish`, a
/// barrier of the trainer's own may wait for a rank that has reached `at_most` and itself waits for the others' next
/// round.
struct elastic_pace {
  unsigned at_least = 1;
  unsigned at_most = 64;

  static constexpr char const* name = "elastic_pace";
  [[nodiscard]] constexpr unsigned minimum(step_part) const noexcept { return at_least; }
  [[nodiscard]] constexpr unsigned maximum(step_part) const noexcept { return at_most; }
};

template <class Pace>
concept pace = requires(Pace const& p, step_part part) {
  { p.minimum(part) } -> std::same_as<unsigned>;
  { p.maximum(part) } -> std::same_as<unsigned>;
};
static_assert(pace<fixed_pace> && pace<elastic_pace>);

/// How a schedule of two rounds splits its steps where nothing is said.
template <pace Pace>
[[nodiscard]] constexpr Pace usual_split() {
  if constexpr (std::constructible_from<Pace, fixed_pace>) {
    return Pace(fixed_pace{.first = 3, .second = 1});
  } else {
    return {};
  }
}

/// Means over the ranks, in the last step.
struct pace_seconds {
  double micro_batch = 0;  ///< of computation: of the trainer's thread, or on a GPU of its stream, one part ago
  double estimate = 0;     ///< of the round that did not commit, from its start to its end
  double commit = 0;       ///< of the round that did
};
/// A pace that wants to know them: `measured` is called when a step is about to begin.
template <class Pace>
concept measuring_pace = pace<Pace> && requires(Pace& p, pace_seconds const& seconds) { p.measured(seconds); };

}  // namespace ACCO_NAMESPACE
