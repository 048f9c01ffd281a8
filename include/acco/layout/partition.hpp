// SPDX-License-Identifier: Apache-2.0
// Who owns which slice of the trainable elements. The only place where elements are divided by ranks.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// `elements` numbers cut into `ranks` slices of ceil(elements / ranks); the last slices may be short or empty.
/// Buffers that travel are padded to `padded_size()`, so that every slice has the same length on the wire.
class partition {
 public:
  constexpr partition(std::size_t elements, int ranks) noexcept : elements_(elements), ranks_(static_cast<std::size_t>(ranks)) {}

  [[nodiscard]] constexpr std::size_t size() const noexcept { return elements_; }
  [[nodiscard]] constexpr std::size_t slice_size() const noexcept {
    return elements_ / ranks_ + (elements_ % ranks_ != 0 ? 1 : 0);
  }
  [[nodiscard]] constexpr std::size_t padded_size() const noexcept { return slice_size() * ranks_; }
  /// First element of a rank's slice, in the padded numbering.
  [[nodiscard]] constexpr std::size_t begin(int rank) const noexcept { return slice_size() * static_cast<std::size_t>(rank); }
  /// How many elements of the rank's slice are real; the rest is padding.
  [[nodiscard]] constexpr std::size_t count(int rank) const noexcept {
    const std::size_t first = begin(rank);
    if (first >= elements_) return 0;
    return elements_ - first < slice_size() ? elements_ - first : slice_size();
  }

 private:
  std::size_t elements_;
  std::size_t ranks_;
};

}  // namespace ACCO_NAMESPACE
