// SPDX-License-Identifier: Apache-2.0
// ACCO, Accumulate while you Communicate (Nabli et al., arXiv 2406.02613, section 4): two rounds a step, both hidden,
// no delay in the commit.
#pragma once

#include <cstddef>
#include <type_traits>

#include "acco/schedule/schedule.hpp"

namespace ACCO_NAMESPACE {

/// Even rounds estimate: theta~[t+1] = Opt~(theta[t], sum g_a / sum n_a), while the second half b is computed at
/// theta[t].
/// Odd rounds commit: theta[t+1] = Opt(theta[t], (sum g_a + sum g_b) / (sum n_a + sum n_b)), while the next first half
/// is computed at theta~[t+1].
///
/// The default splits a step into 3 + 1 micro-batches: a first part of at least 0.737 of a step's samples is as stable
/// as synchronous training with momentum 0.9, halves allow half the learning rate (docs/stability.md).
///
/// With an encoded `estimate` the first half is kept: the estimate round carries an encoded copy of it, and
/// gives back the encoded change theta~[t+1] - theta[t]; the commit round carries both halves. Every step then costs
/// one exact round and one of a few bits: docs/coarse.md. With `own_slice` in place of an encoding the estimate's
/// gradients do not travel: every owner predicts its slice from its own rank's first half (SAPipe's option 1b); with
/// `own_corrected` from that and the mean of the others' gradients in the last step (option 3).
template <class Pace = fixed_pace, wire Estimate = full, wire Commit = full>
struct two_phase {
  Estimate estimate = {};  ///< how estimate rounds travel
  Commit commit = {};      ///< how commit rounds travel
  Pace pace = usual_split<Pace>();

  static constexpr std::size_t period = 2;
  static constexpr char const* name = "two_phase";
  static constexpr bool splits_steps = true;
  [[nodiscard]] constexpr round_plan plan(std::size_t round) const noexcept {
    constexpr bool exact = std::is_same_v<typename decltype(as_coded(Estimate{}))::gradient_encoding, full>;
    if (round % 2 == 0) {
      return {.gradients = carried::fresh, .parameters = update::predict, .part = step_part::first, .keeps = !exact};
    }
    return {
        .gradients = exact ? carried::kept_and_fresh : carried::fresh, .parameters = update::commit, .part = step_part::second};
  }
};
static_assert(schedule<two_phase<>>);

}  // namespace ACCO_NAMESPACE
