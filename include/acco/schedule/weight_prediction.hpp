// SPDX-License-Identifier: Apache-2.0
// The delayed update with weight prediction (ACCO-WP in arXiv 2406.02613; SAPipe's option 2, NeurIPS 2022).
#pragma once

#include <cstddef>

#include "acco/schedule/schedule.hpp"

namespace ACCO_NAMESPACE {

/// theta[t+1] = Opt(theta[t], gbar), then the ranks get theta~ = Opt~(theta[t+1], gbar) with the same gbar: where the
/// next commit would lead. `parameters()` holds committed weights only after `finish()`; use `gather_committed` in
/// between.
template <class Pace = fixed_pace, wire Commit = full>
struct weight_prediction {
  Commit commit = {};  ///< how rounds travel
  Pace pace = {};

  static constexpr std::size_t period = 1;
  static constexpr char const* name = "weight_prediction";
  [[nodiscard]] constexpr round_plan plan(std::size_t) const noexcept { return {.parameters = update::commit_and_predict}; }
};
static_assert(schedule<weight_prediction<>>);

}  // namespace ACCO_NAMESPACE
