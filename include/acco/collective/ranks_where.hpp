// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Ranks for a message: "1, 3", and the lowest of them (-1: none).
struct named_ranks {
  text words;
  int lowest = -1;
};

/// The ranks of `size` for which `is` holds.
template <class Is>
[[nodiscard]] named_ranks ranks_where(int size, Is&& is) {
  named_ranks found;
  for (int rank = 0; rank < size; ++rank) {
    if (!is(rank)) continue;
    if (found.lowest < 0) found.lowest = rank;
    found.words.append(found.words.view().empty() ? "" : ", ").append(rank);
  }
  return found;
}

}  // namespace ACCO_SIMD_NAMESPACE
