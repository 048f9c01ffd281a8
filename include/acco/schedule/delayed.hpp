// SPDX-License-Identifier: Apache-2.0
// Delayed parameter update (DPU, arXiv 2101.06840; Pipe-SGD, arXiv 1811.03619): one round in flight, gradients one step old.
#pragma once

#include <cstddef>

#include "acco/schedule/schedule.hpp"

namespace ACCO_NAMESPACE {

/// theta[t+1] = Opt(theta[t], sum g(theta[t-1]) / sum n), hidden behind the gradients at theta[t].
template <class Pace = fixed_pace, wire Commit = full>
struct delayed {
  Commit commit = {};  ///< how rounds travel
  Pace pace = {};

  static constexpr std::size_t period = 1;
  static constexpr char const* name = "delayed";
  [[nodiscard]] constexpr round_plan plan(std::size_t) const noexcept { return {}; }
};
static_assert(schedule<delayed<>>);

}  // namespace ACCO_NAMESPACE
