// SPDX-License-Identifier: Apache-2.0
// The trainable elements of a layout, numbered without gaps, as the stretches that they are in the trainer's flat buffer.
#pragma once

#include <cstddef>
#include <vector>

#include "acco/layout/parameter_layout.hpp"

namespace ACCO_NAMESPACE {

/// Neighbours: trainable elements are numbered without gaps (`first`); in the trainer's flat buffer they start at `offset`. Only
/// frozen tensors end a run: a group does not change an address.
struct trainable_run {
  std::size_t first;
  std::size_t offset;
  std::size_t count;
};

/// The trainable elements of a buffer in the order of the layout, by their number without gaps; or of tensors that lie apart,
/// each of which is a run, at `places`.
template <class T>
struct trainable_view {
  T const* whole;
  trainable_run const* runs;
  std::size_t run_count;
  T const* const* places = nullptr;

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

  /// Calls visit(pointer, offset from `first`, how many) for the stretches of `count` elements from `first` on.
  template <class Visitor>
  constexpr void for_stretches(std::size_t first, std::size_t count, Visitor&& visit) const {
    std::size_t at = first;
    for (std::size_t k = run_of(first); k < run_count && at < first + count; ++k) {
      const std::size_t behind = runs[k].first + runs[k].count;
      if (at >= behind) continue;
      const std::size_t length = (behind < first + count ? behind : first + count) - at;
      visit(begin_of(k) + (at - runs[k].first), at - first, length);
      at += length;
    }
  }
};

/// The runs of a layout in its order, frozen tensors left out; `apart`: each tensor is one.
[[nodiscard]] inline std::vector<trainable_run> trainable_runs(parameter_layout const& layout, bool apart = false) {
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

}  // namespace ACCO_NAMESPACE
