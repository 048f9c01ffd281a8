// SPDX-License-Identifier: Apache-2.0
// The delayed update: one round in flight, gradients one step old. Where they are computed, and what is done to them,
// is up to a predictor and a compensation.
#pragma once

#include <cstddef>
#include <type_traits>

#include "acco/schedule/compensation.hpp"
#include "acco/schedule/predictor.hpp"
#include "acco/schedule/schedule.hpp"

namespace ACCO_NAMESPACE {

/// theta[t+1] = Opt(theta[t], sum g(x[t-1]) / sum n), hidden behind the gradients at x[t].
///
/// Without more, x[t] = theta[t]: the delayed parameter update (DPU, arXiv 2101.06840; Pipe-SGD, arXiv 1811.03619). A
/// `predictor` lets x[t] be a guess of what the update in flight will lead to: `rule_prediction` (what
/// `weight_prediction` does), `extrapolation`, `velocity`, or one of the trainer's own (predictor.hpp). Then
/// `parameters()` holds committed weights only after `finish()`; use `gather_committed` in between. A `compensation`
/// corrects the gradients instead: `delay_compensation` (compensation.hpp). docs/stability.md compares where they are
/// stable.
template <class Pace = fixed_pace, wire Commit = full, class Predictor = no_prediction, class Compensation = no_compensation>
struct delayed {
  static_assert(
      predictor<Predictor>,
      "acco: delayed's predictor lacks `slot_count`, `prepare(update_step) const` or `static Real show(Real before, Real "
      "after, std::array<Real, slot_count>&, constants const&)`");
  static_assert(compensation<Compensation>,
                "acco: delayed's compensation lacks `slot_count`, `prepare(update_step) const` or `static Real correct(Real "
                "gradient, Real moved, std::array<Real, slot_count>&, constants const&)`");
  static_assert(
      std::is_same_v<Predictor, no_prediction> || std::is_same_v<Compensation, no_compensation>,
      "acco: a compensation corrects gradients of committed parameters, and a predictor lets them be computed elsewhere: "
      "give delayed one of the two");

  Commit commit = {};  ///< how rounds travel
  Pace pace = {};
  Predictor predictor = {};        ///< where gradients are computed
  Compensation compensation = {};  ///< what is done to them, because they come late

  static constexpr std::size_t period = 1;
  static constexpr char const* name = "delayed";
  [[nodiscard]] constexpr round_plan plan(std::size_t) const noexcept { return {.parameters = update_for<Predictor>()}; }
};
static_assert(schedule<delayed<>>);

}  // namespace ACCO_NAMESPACE
