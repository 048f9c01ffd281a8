// SPDX-License-Identifier: Apache-2.0
// Who owns which elements. The only place where elements are divided by ranks.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// A stretch of the whole that travels as one collective, cut into one share for every rank.
struct bucket {
  std::size_t begin;   ///< first element, in the padded numbering
  std::size_t share;   ///< elements of every rank's share, padding included; rank r's begins at begin + r * share
  std::size_t offset;  ///< where a rank's share begins in its slice
  std::size_t index;   ///< its number: those before it are full
};

/// `elements` numbers cut into buckets, and each bucket into `ranks` equal shares. A rank's slice is its shares, one after the
/// other. Shares are multiples of 64 elements, so that every share of every element type begins at a cache line; padding lies
/// behind the last element only.
class partition {
 public:
  static constexpr std::size_t alignment = 64;

  /// Buckets of about `bucket_elements`, over all ranks; 0: one bucket.
  constexpr partition(std::size_t elements, int ranks, std::size_t bucket_elements = 0) noexcept
      : elements_(elements), ranks_(static_cast<std::size_t>(ranks)) {
    const bool whole = bucket_elements == 0 || bucket_elements >= elements;
    share_ = share_of(whole ? elements : bucket_elements);
    const std::size_t full = share_ * ranks_;
    buckets_ = whole || full == 0 ? 1 : (elements + full - 1) / full;
    last_share_ = share_of(elements - (buckets_ - 1) * full);
  }

  [[nodiscard]] constexpr std::size_t size() const noexcept { return elements_; }
  [[nodiscard]] constexpr int ranks() const noexcept { return static_cast<int>(ranks_); }
  [[nodiscard]] constexpr std::size_t buckets() const noexcept { return buckets_; }
  [[nodiscard]] constexpr bucket operator[](std::size_t index) const noexcept {
    return {index * share_ * ranks_, index + 1 == buckets_ ? last_share_ : share_, index * share_, index};
  }
  [[nodiscard]] constexpr std::size_t slice_size() const noexcept { return (buckets_ - 1) * share_ + last_share_; }
  [[nodiscard]] constexpr std::size_t padded_size() const noexcept { return slice_size() * ranks_; }
  /// How many elements of the rank's slice are real; the rest, at its end, is padding.
  [[nodiscard]] constexpr std::size_t count(int rank) const noexcept {
    const std::size_t first = (buckets_ - 1) * share_ * ranks_ + static_cast<std::size_t>(rank) * last_share_;
    const std::size_t left = first >= elements_ ? 0 : elements_ - first;
    return (buckets_ - 1) * share_ + (left < last_share_ ? left : last_share_);
  }
  /// The element at `offset` of a rank's slice, in the padded numbering.
  [[nodiscard]] constexpr std::size_t element(int rank, std::size_t offset) const noexcept {
    const std::size_t index = share_ == 0 ? 0 : (offset / share_ < buckets_ ? offset / share_ : buckets_ - 1);
    const bucket b = (*this)[index];
    return b.begin + static_cast<std::size_t>(rank) * b.share + (offset - b.offset);
  }
  /// Who has an element: the rank, where in its slice, and how many elements from there on are its, as they are numbered.
  struct owner {
    int rank;
    std::size_t offset, left;
  };
  [[nodiscard]] constexpr owner owner_of(std::size_t element) const noexcept {
    const std::size_t full = share_ * ranks_;
    const std::size_t index = full == 0 || element / full >= buckets_ ? buckets_ - 1 : element / full;
    const bucket b = (*this)[index];
    const std::size_t rank = b.share == 0 ? 0 : (element - b.begin) / b.share, in_share = element - b.begin - rank * b.share;
    return {static_cast<int>(rank), b.offset + in_share, b.share - in_share};
  }
  /// Calls visit(offset in the rank's slice, first element, how many) for its shares; real elements only.
  template <class Visitor>
  constexpr void for_shares(int rank, Visitor&& visit) const {
    const std::size_t real = count(rank);
    for (std::size_t k = 0; k < buckets_; ++k) {
      const bucket b = (*this)[k];
      if (b.offset >= real) return;
      visit(b.offset, b.begin + static_cast<std::size_t>(rank) * b.share, real - b.offset < b.share ? real - b.offset : b.share);
    }
  }

 private:
  [[nodiscard]] constexpr std::size_t share_of(std::size_t elements) const noexcept {
    const std::size_t each = elements / ranks_ + (elements % ranks_ != 0 ? 1 : 0);
    return (each + alignment - 1) / alignment * alignment;
  }

  std::size_t elements_, ranks_;
  std::size_t share_ = 0, last_share_ = 0, buckets_ = 1;
};

}  // namespace ACCO_NAMESPACE
