// SPDX-License-Identifier: Apache-2.0
// The trainable elements of a layout, where they lie as they travel, as the ranges that they are in the trainer's
// flat buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// A contiguous run of trainable elements. `first`: its index on the wire. `offset`: its index in the trainer's buffer.
/// Without a placement trainable elements travel in the order of the layout, without gaps, and only frozen tensors end
/// a run: a group does not change an address.
struct trainable_run {
  std::size_t first;
  std::size_t offset;
  std::size_t count;
};

/// The trainable elements of a buffer in the order of the layout, by their position; or of tensors that lie apart, of
/// which each run is a part, at `places`.
template <class T>
struct trainable_view {
  T const* whole;
  trainable_run const* runs;
  std::size_t run_count;
  T const* const* places = nullptr;
  bool gaps = false;  ///< positions at which nothing lies

  [[nodiscard]] constexpr T const* begin_of(std::size_t run) const {
    return places != nullptr ? places[run] : whole + runs[run].offset;
  }

  /// The run that holds an element, by halving.
  [[nodiscard]] constexpr std::size_t run_of(std::size_t element) const {
    std::size_t low = 0, high = run_count;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      runs[middle].first + runs[middle].count <= element ? low = middle + 1 : high = middle;
    }
    return low;
  }

  /// Calls visit(pointer, offset from `first`, how many) for the ranges of `count` elements from `first` on.
  template <class Visitor>
  constexpr void for_stretches(std::size_t first, std::size_t count, Visitor&& visit) const {
    std::size_t at = first;
    for (std::size_t k = run_of(first); k < run_count && at < first + count; ++k) {
      const std::size_t behind = runs[k].first + runs[k].count;
      if (at >= behind) continue;
      if (at < runs[k].first) at = runs[k].first;  // a gap
      if (at >= first + count) return;
      const std::size_t length = (behind < first + count ? behind : first + count) - at;
      visit(begin_of(k) + (at - runs[k].first), at - first, length);
      at += length;
    }
  }
};

/// The runs of a layout in its order, frozen tensors left out; `apart`: each tensor is one.
[[nodiscard]] std::vector<trainable_run> trainable_runs(parameter_layout const& layout, bool apart = false);

/// Calls visit(number of the run, offset in it, position, how many) for the parts of such runs, in the order of their
/// positions.
template <class Visitor>
void for_placed_runs(std::span<trainable_run const> runs, partition const& shares, Visitor&& visit) {
  const trainable_view<char> view{nullptr, runs.data(), runs.size()};
  shares.for_elements(0, shares.size(), [&](std::size_t position, std::size_t first, std::size_t count) {
    for (std::size_t done = 0, run = view.run_of(first); done < count; ++run) {
      const std::size_t in_run = first + done - runs[run].first, n = std::min(runs[run].count - in_run, count - done);
      visit(run, in_run, position + done, n);
      done += n;
    }
  });
}

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE std::vector<trainable_run> trainable_runs(parameter_layout const& layout, bool apart) {
  std::vector<trainable_run> runs;
  std::size_t first = 0;
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    const parameter_layout::tensor each = layout[k];
    if (layout.groups()[each.group].frozen || each.size == 0) continue;
    if (!apart && !runs.empty() && runs.back().offset + runs.back().count == each.offset) {
      runs.back().count += each.size;
    } else {
      runs.push_back({first, each.offset, each.size});
    }
    first += each.size;
  }
  return runs;
}
#endif

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
