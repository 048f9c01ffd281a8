// SPDX-License-Identifier: Apache-2.0
// Which norm of the gradients would be a spike: one far beyond those of the last updates.
#pragma once

#include <algorithm>
#include <cstddef>

#include "acco/stage/state_copy.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Knows the norms of the last updates; the same on every rank, because norms are.
class spike_watch {
 public:
  static constexpr std::size_t least = 16;  ///< updates before anything is a spike

  /// `factor` of options::norm_limit, 0: none.
  explicit spike_watch(double factor) noexcept : factor_(factor) {}

  void updated(double norm) noexcept {
    if (factor_ == 0) return;
    if (norms_.count == recent_norms::most) {
      std::copy(norms_.values.begin() + 1, norms_.values.end(), norms_.values.begin());
      --norms_.count;
    }
    norms_.values[norms_.count++] = norm;
  }
  /// Beyond this; 0: nothing is. (The upper median; where it is 0, nothing is either.)
  [[nodiscard]] double most() const noexcept {
    if (factor_ == 0 || norms_.count < least) return 0;
    auto sorted = norms_.values;
    auto* const middle = sorted.data() + norms_.count / 2;
    std::nth_element(sorted.data(), middle, sorted.data() + norms_.count);
    return factor_ * *middle;
  }
  void keep(recent_norms& to) const noexcept { to = norms_; }
  void restore(recent_norms const& from) noexcept { norms_ = from; }

 private:
  double factor_;
  recent_norms norms_;
};

}  // namespace ACCO_SIMD_NAMESPACE
