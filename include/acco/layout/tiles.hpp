// SPDX-License-Identifier: Apache-2.0
// Matrices as tiles of 64 by 64 numbers: where the numbers of each block of 4096 lie, for codes that ask for tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/partition.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Where the numbers of a block lie, behind the beginning of a share: `rows` of `columns` numbers, `stride` apart, are
/// a tile, whose number k is the (k % 64)-th of row k / 64. One row is neighbours, up to 4096 of them. What is not
/// there is 0.
struct block_place {
  static constexpr std::size_t side = 64, size = side * side;

  std::size_t begin = 0;
  std::uint32_t stride = 0;
  std::uint16_t rows = 1, columns = 0;

  [[nodiscard]] constexpr bool has(std::size_t k) const noexcept {
    return rows == 1 ? k < columns : k / side < rows && k % side < columns;
  }
  [[nodiscard]] constexpr std::size_t at(std::size_t k) const noexcept {
    return rows == 1 ? begin + k : begin + k / side * stride + k % side;
  }
};
/// Those of several shares, one share after the other, `each` of a share; none: blocks are neighbours, from a share's
/// beginning on.
struct block_places {
  block_place const* of = nullptr;
  std::size_t each = 0;

  [[nodiscard]] constexpr block_places share(std::size_t k) const noexcept { return {of + k * each, each}; }
};

/// The columns of a tensor as a matrix of shape[0] rows; 0 where it has no tiles: a vector, or one whose edges would be
/// padded to more than twice its size.
[[nodiscard]] inline std::size_t tiled_columns(parameter_layout::tensor const& of) noexcept {
  if (of.shape.size() < 2 || of.size == 0) return 0;
  const std::size_t rows = of.shape[0], columns = of.size / rows, side = block_place::side;
  const std::size_t tiles = ((rows + side - 1) / side) * ((columns + side - 1) / side);
  return columns <= 0xffffffffU && tiles <= 2 * of.size / block_place::size ? columns : 0;
}

/// The blocks of all shares, by bucket, in it by rank: `each` of a share, the last of them empty where others have
/// more.
struct tiling {
  std::vector<block_place> blocks;
  std::size_t each = 0;

  tiling() = default;
  /// Of shares that divide no tile (layout/placement.hpp). What has no tiles is neighbours, up to 4096 in a block,
  /// whatever tensors they belong to.
  tiling(parameter_layout const& layout, partition const& shares) {
    std::vector<run> tensors;
    for (std::size_t k = 0, first = 0; k < layout.tensor_count(); ++k) {
      auto const of = layout[k];
      if (layout.groups()[of.group].frozen || of.size == 0) continue;
      tensors.push_back({first, tiled_columns(of)});
      first += of.size;
    }
    std::vector<std::vector<block_place>> of_shares;
    for (std::size_t b = 0; b < shares.buckets(); ++b) {
      const std::size_t share = shares[b].share;
      for (std::size_t begin = shares[b].begin, end = begin + share * static_cast<std::size_t>(shares.ranks()); begin != end;
           begin += share) {
        of_shares.push_back(of_share(tensors, shares, begin, share));
        each = std::max(each, of_shares.back().size());
      }
    }
    for (auto& of : of_shares) {
      of.resize(each);
      blocks.insert(blocks.end(), of.begin(), of.end());
    }
  }

 private:
  struct run {
    std::size_t first, columns;
  };
  static std::vector<block_place> of_share(std::vector<run> const& tensors, partition const& shares, std::size_t begin,
                                           std::size_t length) {
    constexpr std::size_t side = block_place::side;
    std::vector<block_place> made;
    std::size_t flat = 0, behind = 0;
    const auto end_flat = [&] {
      for (; flat < behind; flat += block_place::size)
        made.push_back({flat, 0, 1, static_cast<std::uint16_t>(std::min(block_place::size, behind - flat))});
    };
    shares.for_elements(begin, length, [&](std::size_t position, std::size_t first, std::size_t count) {
      const std::size_t at = position - begin;
      const auto in = std::upper_bound(tensors.begin(), tensors.end(), first,
                                       [](std::size_t element, run const& each) { return element < each.first; });
      const std::size_t columns = (in - 1)->columns;
      if (columns == 0 && at == behind && flat < behind) {
        behind += count;
        return;
      }
      end_flat();
      flat = at;
      behind = columns == 0 ? at + count : at;
      for (std::size_t row = 0; columns != 0 && row < count / columns; row += side) {
        for (std::size_t column = 0; column < columns; column += side)
          made.push_back({at + row * columns + column, static_cast<std::uint32_t>(columns),
                          static_cast<std::uint16_t>(std::min(side, count / columns - row)),
                          static_cast<std::uint16_t>(std::min(side, columns - column))});
      }
    });
    end_flat();
    return made;
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
