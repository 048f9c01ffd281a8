// SPDX-License-Identifier: Apache-2.0
// Where elements lie so that no rank's share divides a tensor that must stay whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"
#include "acco/layout/tiles.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Trainable elements in an order of their own. Tensors that must stay whole lie in one share each, as evenly spread
/// over the shares as their sizes allow, and so do rows of tiles; all others fill what is left, split anywhere. What
/// nothing fills is a gap: it travels like padding, and is zero.
class placement {
 public:
  /// No tensor must stay whole: elements lie in the order of the layout.
  placement() = default;

  /// `whole(k)`: whether tensor k of the layout must lie in one share. `bucket_elements` as for `partition`: shares are
  /// larger where the largest of those tensors needs it, or where they would not fit beside each other. `tiles`: no
  /// share divides a tile (layout/tiles.hpp), and what has none lies behind those that have.
  template <class Whole>
  placement(parameter_layout const& layout, int ranks, std::size_t bucket_elements, Whole&& whole, bool tiles = false) {
    std::vector<element_run> uncut, others;
    std::size_t first = 0;
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      auto const each = layout[k];
      if (layout.groups()[each.group].frozen || each.size == 0) continue;
      const std::size_t rows_of_tiles = tiles && !whole(k) ? block_place::side * tiled_columns(each) : 0;
      for (std::size_t at = 0; at < each.size && rows_of_tiles != 0; at += rows_of_tiles)
        uncut.push_back({first + at, std::min(rows_of_tiles, each.size - at)});
      if (rows_of_tiles == 0) (whole(k) ? uncut : others).push_back({first, each.size});
      first += each.size;
    }
    if (uncut.empty()) return;
    std::sort(uncut.begin(), uncut.end(),
              [](element_run a, element_run b) { return a.count != b.count ? a.count > b.count : a.first < b.first; });
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t parts = partition(first, ranks, bucket_elements).buckets() * n;
    std::size_t share = std::max(rounded((first + parts - 1) / parts), rounded(uncut.front().count)), buckets = 0;
    for (;; share += std::max(partition::alignment, rounded(share / 32))) {
      buckets = (first + n * share - 1) / (n * share);
      if (fits(uncut, buckets * n, share)) break;
    }
    fill(uncut, others, buckets * n, share, tiles);
    size_ = buckets * n * share;
    bucket_ = n * share;
  }

  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  /// Of whom it holds the pointers: valid while this object stays where it is.
  [[nodiscard]] partition shares(int ranks) const noexcept {
    return {size_, ranks, bucket_, {ranges_.data(), by_element_.data(), ranges_.size()}};
  }
  [[nodiscard]] std::vector<placed_range> const& ranges() const noexcept { return ranges_; }

 private:
  struct element_run {
    std::size_t first, count;
  };
  [[nodiscard]] static std::size_t rounded(std::size_t elements) noexcept {
    return (elements + partition::alignment - 1) / partition::alignment * partition::alignment;
  }
  /// The share with the most room, the first of equals.
  [[nodiscard]] static std::size_t roomiest(std::vector<std::size_t> const& taken) noexcept {
    return static_cast<std::size_t>(std::min_element(taken.begin(), taken.end()) - taken.begin());
  }
  /// Whether all find room when each, the largest first, goes where most is left.
  [[nodiscard]] static bool fits(std::vector<element_run> const& uncut, std::size_t shares, std::size_t share) {
    std::vector<std::size_t> taken(shares, 0);
    for (element_run const& each : uncut) {
      std::size_t& to = taken[roomiest(taken)];
      if (to + each.count > share) return false;
      to += each.count;
    }
    return true;
  }
  void fill(std::vector<element_run> const& uncut, std::vector<element_run> const& others, std::size_t shares, std::size_t share,
            bool uncut_first) {
    std::vector<std::vector<element_run>> in(shares);
    std::vector<std::size_t> taken(shares, 0);
    for (element_run const& each : uncut) {
      const std::size_t to = roomiest(taken);
      in[to].push_back(each);
      taken[to] += each.count;
    }
    const auto sort = [](std::vector<element_run>& runs) {
      std::sort(runs.begin(), runs.end(), [](element_run a, element_run b) { return a.first < b.first; });
    };
    if (uncut_first) std::for_each(in.begin(), in.end(), sort);
    std::size_t to = 0;
    for (element_run left : others) {
      while (left.count != 0) {
        while (taken[to] == share) ++to;
        const std::size_t count = std::min(left.count, share - taken[to]);
        in[to].push_back({left.first, count});
        taken[to] += count;
        left = {left.first + count, left.count - count};
      }
    }
    for (std::size_t k = 0; k < shares; ++k) {
      if (!uncut_first) sort(in[k]);
      std::size_t position = k * share;
      for (element_run const& each : in[k]) {
        ranges_.push_back({each.first, position, each.count});
        position += each.count;
      }
    }
    by_element_.resize(ranges_.size());
    std::iota(by_element_.begin(), by_element_.end(), std::size_t{0});
    std::sort(by_element_.begin(), by_element_.end(),
              [this](std::size_t a, std::size_t b) { return ranges_[a].first < ranges_[b].first; });
  }

  std::vector<placed_range> ranges_;     // by position
  std::vector<std::size_t> by_element_;  // their numbers, by first element
  std::size_t size_ = 0, bucket_ = 0;
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
