// SPDX-License-Identifier: Apache-2.0
// A pace that finds the split of a step by measuring.
#pragma once

#include <array>

#include "acco/schedule/pace.hpp"

namespace ACCO_NAMESPACE {

/// For schedules of two rounds a step: `micro_batches` a step, at first in equal halves. During the first steps it
/// measures, then splits them so that a step is shortest: the commit is in flight during the first part, the estimate
/// during the second, so a step takes max(first * c, commit) + max(second * c, estimate), c the seconds of a
/// micro-batch. All ranks decide alike, from means over the ranks that travel with the counts of a round, and keep what
/// they have decided. The report shows it.
struct auto_pace {
  unsigned micro_batches = 8;

  /// What it has measured and decided so far; only the pace reads and writes it.
  class findings {
    friend auto_pace;
    unsigned steps = 0, second = 0;
    pace_seconds least;
  };
  findings found = {};

  static constexpr char const* name = "auto_pace";
  static constexpr unsigned warm_up = 2, measurements = 4;  // steps

  [[nodiscard]] constexpr unsigned minimum(step_part part) const noexcept {
    const unsigned second = found.second != 0 ? found.second : micro_batches / 2;
    return part == step_part::second ? second : micro_batches - second;
  }
  [[nodiscard]] constexpr unsigned maximum(step_part part) const noexcept { return minimum(part); }

  /// Called by the engine, on every rank with the same seconds, whenever a step is about to begin.
  constexpr void measured(pace_seconds const& now) noexcept {
    if (found.second != 0) return;
    if (++found.steps <= warm_up) return;
    const bool first = found.steps == warm_up + 1;
    const auto least = [first](double& so_far, double seconds) { so_far = first || seconds < so_far ? seconds : so_far; };
    least(found.least.micro_batch, now.micro_batch);
    least(found.least.estimate, now.estimate);
    least(found.least.commit, now.commit);
    if (found.steps == warm_up + measurements) found.second = best_second(micro_batches, found.least);
  }

  /// What it has found, as numbers that a checkpoint keeps: a run that goes on does not measure again.
  [[nodiscard]] constexpr std::array<double, 5> save_state() const noexcept {
    return {static_cast<double>(found.steps), static_cast<double>(found.second), found.least.micro_batch, found.least.estimate,
            found.least.commit};
  }
  /// What cannot be its own is left alone.
  constexpr void load_state(std::array<double, 5> const& of) noexcept {
    const bool possible = of[0] >= 0 && of[0] <= warm_up + measurements && of[1] >= 0 && of[1] < micro_batches;
    if (!possible) return;
    found.steps = static_cast<unsigned>(of[0]);
    found.second = static_cast<unsigned>(of[1]);
    found.least.micro_batch = of[2];
    found.least.estimate = of[3];
    found.least.commit = of[4];
  }

  /// The length of the second part with which a step is shortest; of nearly equal ones the smallest.
  [[nodiscard]] static constexpr unsigned best_second(unsigned micro_batches, pace_seconds const& s) noexcept {
    unsigned best = 1;
    double shortest = 0;
    for (unsigned second = 1; second < micro_batches; ++second) {
      const double a = (micro_batches - second) * s.micro_batch, b = second * s.micro_batch;
      const double step = (a > s.commit ? a : s.commit) + (b > s.estimate ? b : s.estimate);
      if (second != 1 && step >= 0.995 * shortest) continue;
      best = second;
      shortest = step;
    }
    return best;
  }
};
static_assert(pace<auto_pace> && measuring_pace<auto_pace>);

}  // namespace ACCO_NAMESPACE
