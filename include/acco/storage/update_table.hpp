// SPDX-License-Identifier: Apache-2.0
// What an update of a slice works on: arrays, and a table of blocks that says which region's constants are whose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Neighbours in a slice that belong to one region (layout/update_regions.hpp). Many regions make more blocks, not more tasks or
/// kernels.
struct update_block {
  static constexpr std::size_t most = 4096;  ///< elements

  std::uint64_t begin;
  std::uint32_t count, region;
};

/// What a round has decided about a region.
struct region_update {
  double scale = 0;     ///< multiplies the reduced sum before the rule sees it: 1 / weight, clipping
  bool wanted = false;  ///< whether it is updated at all
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
};

}  // namespace ACCO_SIMD_NAMESPACE
