// SPDX-License-Identifier: Apache-2.0
// What an update of a slice works on: arrays, and a table of blocks that says which group's constants are whose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Neighbours in a slice that belong to one group. Many groups make more blocks, not more tasks or kernels.
struct update_block {
  static constexpr std::size_t most = 4096;  ///< elements

  std::uint64_t begin;
  std::uint32_t count, group;
};

/// One rank's slice as a rule sees it. What the pointers show is read when the update runs.
template <class Rule, class Master, class Sum>
struct update_table {
  Master* master;
  std::array<Master*, Rule::slot_count> slots;
  Sum const* gradient;                         ///< the reduced sum; multiplied by *scale before the rule sees it
  rule_constants<Rule> const* now = nullptr;   ///< by group
  rule_constants<Rule> const* next = nullptr;  ///< of the step after, for commit_and_predict
  bool const* wanted = nullptr;                ///< where it shows false nothing is updated
  double const* scale = nullptr;
  update_block const* blocks = nullptr;
};

}  // namespace ACCO_SIMD_NAMESPACE
