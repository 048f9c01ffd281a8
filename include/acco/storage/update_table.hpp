// SPDX-License-Identifier: Apache-2.0
// What an update of a slice works on: arrays, and a table of blocks that says which region's constants are whose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Neighbours in a slice that belong to one region (layout/update_regions.hpp). Many regions make more blocks, not more
/// tasks or kernels.
struct update_block {
  static constexpr std::size_t most = 4096;  ///< elements

  std::uint64_t begin;
  std::uint32_t count, region;
};

/// A matrix in a slice, whole, that a rule updates as one (update_rule.hpp: matrix_rule).
struct update_matrix {
  std::uint64_t begin;
  std::uint32_t rows, columns;  ///< row by row
  std::uint32_t region;
};

/// What a round has decided about a region.
struct region_update {
  double scale = 0;     ///< multiplies the reduced sum before the rule sees it: 1 / weight, clipping
  bool wanted = false;  ///< whether it is updated at all
};

/// Of two arrays that become one: first a[i] + second b[i].
struct combination {
  double first = 1, second = 0;
  bool wanted = true;  ///< whether anything is written
};

/// A step of a round: the sums of squares of the blocks, by region, in the order of the blocks. Storages whose steps
/// are for one thread may have a better one; without `blocks` all belong to one region.
struct add_region_squares {
  double* squares;
  std::size_t regions;
  double const* of_blocks;
  update_block const* blocks;
  std::size_t count;
  constexpr void operator()() const {
    for (std::size_t r = 0; r < regions; ++r) squares[r] = 0;
    for (std::size_t k = 0; k < count; ++k) squares[blocks != nullptr ? blocks[k].region : 0] += of_blocks[k];
  }
};

/// One rank's slice as a rule sees it. What the pointers show is read when the update runs.
template <class Rule, class Master, class Sum>
struct update_table {
  Master* master;
  std::array<Master*, Rule::slot_count> slots;
  Sum const* gradient;                         ///< the reduced sum
  rule_constants<Rule> const* now = nullptr;   ///< by region
  rule_constants<Rule> const* next = nullptr;  ///< of the step after, for commit_and_predict
  region_update const* decided = nullptr;      ///< by region
  update_block const* blocks = nullptr;
  update_matrix const* matrices = nullptr;
  Master* scratch = nullptr;  ///< room for the largest of them, and for what the rule needs beside it
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
