// SPDX-License-Identifier: Apache-2.0
// What an optimizer allocates under a way to train: the formulas of docs/algorithm.md and docs/local_updates.md.
#pragma once

#include <algorithm>

#include "acco/advice/way.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Bytes a parameter that this rank's buffers take (`memory_table::total`), without habit checks, averages, feedback,
/// stable addresses and copies to be saved. `training_size::parameters` is not asked.
[[nodiscard]] inline double memory_per_parameter(way const& of, training_size const& size, unsigned ranks) {
  const double p = size.parameter_bytes, g = size.gradient_bytes, m = size.master_bytes, s = std::max(4.0, m);
  const unsigned sharing = of.is_local() ? 1 : ranks;  // a slice of the inner engine
  double bytes = p + g + ((size.slots + 1) * m + s) / sharing;
  const bool waits = of.is_local() || (!of.in_parts && of.delay == 0);  // local: its inner engine
  const auto is_coded = [](wire_bytes const& each) {
    return each.gradients != wire_bytes::in_full || each.parameters != wire_bytes::in_full;
  };
  if (of.in_parts && is_coded(of.estimate)) {
    bytes += p + g;  // the commit carries the estimate's gradients again
  } else if (waits) {
    bytes += p <= g ? 0 : p;
  } else {
    bytes += p == g ? p : p + g;
  }
  if (of.in_parts && of.estimate.gradients == 0) bytes += g / sharing;
  double leaves = std::max(0.0, of.commit.gradients), arrives = std::max(0.0, of.commit.parameters);
  if (of.in_parts) {
    leaves = std::max(leaves, of.estimate.gradients);
    arrives = std::max(arrives, of.estimate.parameters);
  }
  bytes += leaves + std::max(leaves, arrives);
  if (!of.is_local()) return bytes;
  bytes += 2 * m + (2 + of.outer_slots) * m / ranks;  // anchor and changes; its masters, sums, the rule's slots
  // under way, and where it began; lost
  return bytes + (of.delay > 0 ? (of.keeps_meanwhile ? 2 * m : m) : 0) + (is_coded(of.commit) ? m : 0);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
