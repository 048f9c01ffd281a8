// SPDX-License-Identifier: Apache-2.0
// Which scale the trainer's loss has now, and which the gradients have that are on their way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "acco/schedule/loss_scaling.hpp"
#include "acco/stage/state_copy.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// All gradients of a step have one scale: what a round finds changes that of the steps that begin later, while the gradients in
/// flight, and the second part of a step whose first is on its way, keep theirs. Everything follows from what the rounds decide,
/// which is the same on every rank.
class loss_scaler {
 public:
  explicit loss_scaler(std::optional<loss_scaling> const& how) : how_(how) {
    if (how_) computing_ = next_ = how_->initial;
  }

  /// Of the micro-batches that are computed now.
  [[nodiscard]] double computing() const noexcept { return computing_; }
  /// The micro-batches from now on are the first of a step.
  void begin_step() noexcept { computing_ = next_; }
  /// A round whose gradients had this scale found something infinite.
  void overflowed(double scale) noexcept {
    if (!how_) return;
    const double lower = scale * how_->backoff;  // the same for all rounds that were under way with that scale
    next_ = lower < how_->least ? how_->least : lower;
    updates_ = 0;
  }
  void updated() noexcept {
    if (!how_ || ++updates_ < how_->interval) return;
    const double higher = next_ * how_->growth;
    next_ = higher > how_->most ? how_->most : higher;
    updates_ = 0;
  }

  void keep(run_numbers& in) const noexcept {
    in.computing_scale = computing_;
    in.next_scale = next_;
    in.updates_in_a_row = updates_;
  }
  /// Within this one's limits; where the loss had no scale then, from the initial one on.
  void restore(run_numbers const& from) noexcept {
    if (!how_) return;
    if (from.computing_scale <= 0) return;
    computing_ = std::clamp(from.computing_scale, how_->least, how_->most);
    next_ = std::clamp(from.next_scale, how_->least, how_->most);
    updates_ = from.updates_in_a_row;
  }

 private:
  std::optional<loss_scaling> how_;
  double computing_ = 1, next_ = 1;
  std::uint64_t updates_ = 0;  // in a row
};

}  // namespace ACCO_SIMD_NAMESPACE
