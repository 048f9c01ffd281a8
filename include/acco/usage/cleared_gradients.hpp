// SPDX-License-Identifier: Apache-2.0
// Whether a trainer clears gradients that are to be added up: a suspicion, from what an array holds before and after a
// micro-batch.
#pragma once

#include <array>
#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Let v be the accumulated gradients before a micro-batch, x those after it, d the micro-batch's own. A trainer that
/// adds leaves x = v + d, whose projection on v, x.v / |v|^2, is near 1, or larger where gradients agree. One that
/// clears leaves x = d, whose projection is near 0 where gradients are noise. Nobody knows d, so one micro-batch proves
/// nothing: moving averages decide, of each place in a part. Where noise has few directions, as in a network of few
/// outputs, d takes v away by itself now and then, and doubles it as often: the one is weighed against the other.
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
    const bool told = fourth_ > 0 && after_ != 0 && average(sign());
    held_ = before_ == 0 ? 1 : held_ + 1;
    before_ = fourth_ = after_ = both_ = 0;
    return told;
  }

 private:
  /// 1 where this micro-batch looks as if v was gone: the projection is nearer to 0 than to 1, x is not far smaller than
  /// one micro-batch's part of v, and the distance of the projection from 1 is more than two deviations of what noise
  /// would make of it. -1 where it is as far beyond 1. Else 0.
  [[nodiscard]] double sign() const noexcept {
    const double left = both_ / before_;
    const double changed = after_ - 2 * both_ + before_;  // |x - v|^2
    if ((1 - left) * (1 - left) * before_ * before_ * before_ <= 4 * changed * fourth_) return 0;
    if (left > 1.5 && left < 2.5) return -1;
    return left < 0.5 && left > -0.5 && 4 * held_ * held_ * after_ > before_ ? 1 : 0;
  }
  [[nodiscard]] bool average(double sign) noexcept {
    double& often = often_[held_ < 4 ? static_cast<std::size_t>(held_) : 4];
    often += (sign - often) / 64;
    if (often <= 0.15 || said_) return false;
    return said_ = true;
  }

  double before_ = 0, fourth_ = 0, after_ = 0, both_ = 0;  // sums of v^2, v^4, x^2, x v
  double held_ = 0;                                        // micro-batches in v
  std::array<double, 5> often_{};                          // by micro-batches in v, at most 4
  bool said_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
