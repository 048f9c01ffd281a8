// SPDX-License-Identifier: Apache-2.0
// Chunks of which several ranks read a part each: which these are, and what the ranks tell each other to check them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "acco/checkpoint/sums.hpp"
#include "acco/layout/partition.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// Where ranks' shares of an array begin: the chunks and the blocks of its file that have bytes of two shares. The same
/// on every rank.
struct share_edges {
  std::vector<std::uint64_t> chunks, blocks;  ///< rising

  /// `size`: bytes of an element.
  static share_edges of(partition const& shares, std::size_t size) {
    share_edges found;
    if (shares.ranks() == 1) return found;
    for (int rank = 0; rank < shares.ranks(); ++rank) {
      shares.for_shares(rank, [&](std::size_t, std::size_t first, std::size_t) {
        const std::uint64_t at = first * size;
        if (at % chunk_bytes != 0) found.chunks.push_back(at / chunk_bytes);
        if (at % block_bytes != 0) found.blocks.push_back(at / block_bytes);
      });
    }
    for (auto* const each : {&found.chunks, &found.blocks}) {
      std::sort(each->begin(), each->end());
      each->erase(std::unique(each->begin(), each->end()), each->end());
    }
    return found;
  }
};

/// What a rank has read of the chunks of one file that it has not read whole; each block once.
struct partial_sums {
  std::map<std::uint64_t, std::uint64_t> chunks;            ///< by chunk: of the blocks whose first byte it wanted
  std::map<std::uint64_t, std::uint64_t> begun, continued;  ///< by block: where it wanted the first byte, or only
                                                            ///< later ones, of blocks of which it did not want all
};

/// A sum on its way through a sum over ranks: numbers of 16 bits, whose sums are exact.
struct sum_words {
  static constexpr std::size_t count = 4;

  static void append(std::vector<double>& to, std::map<std::uint64_t, std::uint64_t> const& sums, std::uint64_t index) {
    const auto found = sums.find(index);
    const std::uint64_t sum = found == sums.end() ? 0 : found->second;
    for (std::size_t k = 0; k < count; ++k) to.push_back(static_cast<double>(sum >> (16 * k) & 0xffffU));
  }
  static std::uint64_t read(double const* from) noexcept {
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += static_cast<std::uint64_t>(from[k]) << (16 * k);
    return sum;
  }
};

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
