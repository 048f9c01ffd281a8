// SPDX-License-Identifier: Apache-2.0
// Whether a trainer clears gradients that are to be added up: a suspicion, from what an array holds before and after a
// micro-batch.
#pragma once

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Let v be the accumulated gradients before a micro-batch, x those after it, d the micro-batch's own. A trainer that
/// adds leaves x = v + d, whose projection on v, x.v / |v|^2, is near 1, or larger where gradients agree. One that
/// clears leaves x = d, whose projection is near 0 where gradients are noise. Nobody knows d, so one micro-batch proves
/// nothing: a moving average decides.
class cleared_gradients {
 public:
  /// One element of a micro-batch.
  void look(double before, double after) noexcept {
    const double square = before * before;
    before_ += square;
    fourth_ += square * square;
    after_ += after * after;
    both_ += after * before;
  }
  /// The micro-batch has ended. True once: when the gradients of before have been missing often of late.
  [[nodiscard]] bool suspect() noexcept {
    const bool told = fourth_ > 0 && after_ != 0 && average(missing());
    held_ = before_ == 0 ? 1 : held_ + 1;
    before_ = fourth_ = after_ = both_ = 0;
    return told;
  }

 private:
  /// Whether this micro-batch looks as if v was gone: the projection is nearer to 0 than to 1, x is not far smaller
  /// than one micro-batch's part of v, and the distance of the projection from 1 is more than two deviations of what
  /// noise would make of it.
  [[nodiscard]] bool missing() const noexcept {
    const double left = both_ / before_;
    const double changed = after_ - 2 * both_ + before_;  // |x - v|^2
    const bool far = (1 - left) * (1 - left) * before_ * before_ * before_ > 4 * changed * fourth_;
    return left < 0.5 && left > -0.5 && 4 * held_ * held_ * after_ > before_ && far;
  }
  [[nodiscard]] bool average(bool missing) noexcept {
    often_ += ((missing ? 1 : 0) - often_) / 64;
    if (often_ <= 0.15 || said_) return false;
    return said_ = true;
  }

  double before_ = 0, fourth_ = 0, after_ = 0, both_ = 0;  // sums of v^2, v^4, x^2, x v
  double held_ = 0;                                        // micro-batches in v
  double often_ = 0;
  bool said_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
