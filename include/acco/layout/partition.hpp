// SPDX-License-Identifier: Apache-2.0
// Who owns which elements. The only place where elements are divided by ranks.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// A range of the whole that travels as one collective, divided into one share for every rank.
struct bucket {
  std::size_t begin;   ///< first element, in the padded numbering
  std::size_t share;   ///< elements of every rank's share, padding included; rank r's begins at begin + r * share
  std::size_t offset;  ///< where a rank's share begins in its slice
  std::size_t index;   ///< its number: those before it are full
};

/// Neighbouring elements that lie elsewhere than their numbers say (layout/placement.hpp).
struct placed_range {
  std::size_t first;     ///< element
  std::size_t position;  ///< where it lies
  std::size_t count;
};
/// All of them, in the order of their positions; `by_element` has their numbers in the order of their elements.
struct placed_stretches {
  placed_range const* of = nullptr;
  std::size_t const* by_element = nullptr;
  std::size_t count = 0;
};

/// `elements` numbers split into buckets, and each bucket into `ranks` equal shares. A rank's slice is its shares, one
/// after the other. Shares are multiples of 64 elements, so that every share of every element type begins at a cache
/// line; padding lies behind the last element only. Of one share each rank that asks has it (`updated_by_all`).
///
/// Elements have numbers; where they lie is their position, the same number unless a placement says otherwise. Then
/// `size` counts positions, gaps included, and all members take and give positions but those that say elements.
class partition {
 public:
  static constexpr std::size_t alignment = 64;

  /// Buckets of about `bucket_elements`, over all ranks; 0: one bucket.
  /// What `placed` shows must outlive it.
  constexpr partition(std::size_t elements, int ranks, std::size_t bucket_elements = 0, placed_stretches placed = {}) noexcept
      : elements_(elements), all_(static_cast<std::size_t>(ranks)), ranks_(all_), placed_(placed) {
    const bool whole = bucket_elements == 0 || bucket_elements >= elements;
    share_ = share_of(whole ? elements : bucket_elements);
    const std::size_t full = share_ * ranks_;
    buckets_ = whole || full == 0 ? 1 : (elements + full - 1) / full;
    last_share_ = share_of(elements - (buckets_ - 1) * full);
  }

  /// Of each bucket only the `count` shares from the `first` on, as shares of so many ranks: slices, buckets and
  /// positions are those of the whole; `padded_size` is of the part.
  [[nodiscard]] constexpr partition part(int first, int count) const noexcept {
    partition of = *this;
    of.first_ = static_cast<std::size_t>(first);
    of.ranks_ = static_cast<std::size_t>(count);
    return of;
  }

  [[nodiscard]] constexpr std::size_t size() const noexcept { return elements_; }
  [[nodiscard]] constexpr int ranks() const noexcept { return static_cast<int>(ranks_); }
  /// Which share of a bucket a rank has.
  [[nodiscard]] constexpr std::size_t share_of_rank(int rank) const noexcept {
    return ranks_ == 1 ? 0 : static_cast<std::size_t>(rank);
  }
  [[nodiscard]] constexpr std::size_t buckets() const noexcept { return buckets_; }
  [[nodiscard]] constexpr bucket operator[](std::size_t index) const noexcept {
    const std::size_t share = index + 1 == buckets_ ? last_share_ : share_;
    return {index * share_ * all_ + first_ * share, share, index * share_, index};
  }
  [[nodiscard]] constexpr std::size_t slice_size() const noexcept { return (buckets_ - 1) * share_ + last_share_; }
  [[nodiscard]] constexpr std::size_t padded_size() const noexcept { return slice_size() * ranks_; }
  /// How many elements of the rank's slice are real; the rest, at its end, is padding.
  [[nodiscard]] constexpr std::size_t count(int rank) const noexcept {
    const std::size_t first = (*this)[buckets_ - 1].begin + share_of_rank(rank) * last_share_;
    const std::size_t left = first >= elements_ ? 0 : elements_ - first;
    return (buckets_ - 1) * share_ + (left < last_share_ ? left : last_share_);
  }
  /// The position of `offset` of a rank's slice.
  [[nodiscard]] constexpr std::size_t position(int rank, std::size_t offset) const noexcept {
    const std::size_t index = share_ == 0 ? 0 : (offset / share_ < buckets_ ? offset / share_ : buckets_ - 1);
    const bucket b = (*this)[index];
    return b.begin + share_of_rank(rank) * b.share + (offset - b.offset);
  }
  /// The owner of an element: its rank, the offset in that rank's slice, and how many of the following elements it owns
  /// too.
  struct owner {
    int rank;
    std::size_t offset, left;
  };
  [[nodiscard]] constexpr owner owner_of(std::size_t element) const noexcept {
    if (placed_.count == 0) return owner_at(element);
    std::size_t low = 0, high = placed_.count;  // the last one that begins at or before it
    while (low + 1 < high) {
      const std::size_t middle = (low + high) / 2;
      (placed_.of[placed_.by_element[middle]].first <= element ? low : high) = middle;
    }
    placed_range const& in = placed_.of[placed_.by_element[low]];
    owner found = owner_at(in.position + (element - in.first));
    found.left = in.count - (element - in.first);
    return found;
  }
  /// Calls visit(offset in the rank's slice, position, how many) for its shares; what lies behind the last element is
  /// left out.
  template <class Visitor>
  constexpr void for_positions(int rank, Visitor&& visit) const {
    const std::size_t real = count(rank);
    for (std::size_t k = 0; k < buckets_; ++k) {
      const bucket b = (*this)[k];
      if (b.offset >= real) return;
      visit(b.offset, b.begin + share_of_rank(rank) * b.share, real - b.offset < b.share ? real - b.offset : b.share);
    }
  }
  /// Calls visit(offset in the rank's slice, first element, how many) for what it owns; real elements only.
  template <class Visitor>
  constexpr void for_shares(int rank, Visitor&& visit) const {
    for_positions(rank, [&](std::size_t offset, std::size_t position, std::size_t length) {
      for_elements(position, length,
                   [&](std::size_t at, std::size_t first, std::size_t n) { visit(offset + (at - position), first, n); });
    });
  }
  /// Calls visit(position, first element, how many) for the elements that lie at `length` positions from `from` on.
  template <class Visitor>
  constexpr void for_elements(std::size_t from, std::size_t length, Visitor&& visit) const {
    if (placed_.count == 0) return visit(from, from, length);
    std::size_t low = 0, high = placed_.count;  // the first one that ends behind it
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      placed_.of[middle].position + placed_.of[middle].count <= from ? low = middle + 1 : high = middle;
    }
    for (; low < placed_.count && placed_.of[low].position < from + length; ++low) {
      placed_range const& each = placed_.of[low];
      const std::size_t begin = each.position > from ? each.position : from;
      const std::size_t behind = each.position + each.count, end = behind < from + length ? behind : from + length;
      visit(begin, each.first + (begin - each.position), end - begin);
    }
  }
  /// Calls visit(position, how many) where none of the `length` positions from `from` on has an element.
  template <class Visitor>
  constexpr void for_gaps(std::size_t from, std::size_t length, Visitor&& visit) const {
    const std::size_t end = from + length, real = end < elements_ ? end : elements_;
    std::size_t behind = from;
    if (from < real) {
      for_elements(from, real - from, [&](std::size_t position, std::size_t, std::size_t count) {
        if (position != behind) visit(behind, position - behind);
        behind = position + count;
      });
    }
    if (behind != end) visit(behind, end - behind);
  }
  [[nodiscard]] constexpr placed_stretches const& placed() const noexcept { return placed_; }

 private:
  [[nodiscard]] constexpr std::size_t share_of(std::size_t elements) const noexcept {
    const std::size_t each = elements / ranks_ + (elements % ranks_ != 0 ? 1 : 0);
    return (each + alignment - 1) / alignment * alignment;
  }

  [[nodiscard]] constexpr owner owner_at(std::size_t position) const noexcept {
    const std::size_t full = share_ * all_;
    const std::size_t index = full == 0 || position / full >= buckets_ ? buckets_ - 1 : position / full;
    const bucket b = (*this)[index];
    const std::size_t rank = b.share == 0 ? 0 : (position - b.begin) / b.share, in_share = position - b.begin - rank * b.share;
    return {static_cast<int>(rank), b.offset + in_share, b.share - in_share};
  }

  std::size_t elements_, all_, ranks_, first_ = 0;
  std::size_t share_ = 0, last_share_ = 0, buckets_ = 1;
  placed_stretches placed_;
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
