// SPDX-License-Identifier: Apache-2.0
// Synchronous ZeRO-1 (Rajbhandari et al., arXiv 1910.02054, section 5.1): the baseline. Nothing is hidden, two
// full-size buffers suffice.
#pragma once

#include <cstddef>

#include "acco/schedule/schedule.hpp"

namespace ACCO_NAMESPACE {

/// theta[t+1] = Opt(theta[t], sum g(theta[t]) / sum n); the computation waits for every round. Takes `fixed_pace` only.
template <wire Commit = full>
struct synchronous {
  Commit commit = {};  ///< how rounds travel
  fixed_pace pace = {};

  static constexpr std::size_t period = 1;
  static constexpr char const* name = "synchronous";
  [[nodiscard]] constexpr round_plan plan(std::size_t) const noexcept { return {.meanwhile = computation::waits}; }
};
static_assert(schedule<synchronous<>>);

}  // namespace ACCO_NAMESPACE
