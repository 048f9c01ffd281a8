// SPDX-License-Identifier: Apache-2.0
// ACCO, Accumulate while you Communicate (Nabli et al., arXiv 2406.02613, section 4): two rounds a step, both hidden, no delay in
// the commit.
#pragma once

#include "acco/schedule/schedule.hpp"

namespace ACCO_NAMESPACE {

/// Even rounds estimate:  theta~[t+1] = Opt~(theta[t], sum g_a / sum n_a), while the second half b is computed at theta[t].
/// Odd rounds commit:     theta[t+1] = Opt(theta[t], (sum g_a + sum g_b) / (sum n_a + sum n_b)), while the next first half is
/// computed at theta~[t+1].
template <class Pace = fixed_pace>
struct two_phase {
  Pace pace = {};

  static constexpr char const* name = "two_phase";
  [[nodiscard]] constexpr round_plan plan(std::size_t round) const noexcept {
    if (round % 2 == 0) return {.gradients = carried::fresh, .parameters = update::predict, .part = step_part::first};
    return {.gradients = carried::kept_and_fresh, .parameters = update::commit, .part = step_part::second};
  }
};
static_assert(schedule<two_phase<>>);

}  // namespace ACCO_NAMESPACE
