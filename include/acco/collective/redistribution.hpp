// SPDX-License-Identifier: Apache-2.0
// The table of legal conversions: (from, to) -> which collective, and how many bytes a rank sends for it.
// The report, the mock's counters and the documentation all read it from here.
#pragma once

#include <cstdint>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

enum class distribution { partial, sharded, replicated };
enum class collective { none, reduce_scatter, all_gather, all_reduce, broadcast, all_to_all };
inline constexpr int collective_kinds = 6;

constexpr char const* name_of(collective operation) noexcept {
  constexpr char const* names[collective_kinds] = {"none",       "reduce_scatter", "all_gather",
                                                   "all_reduce", "broadcast",      "all_to_all"};
  return names[static_cast<int>(operation)];
}

/// The collective that turns one distribution into another; `none` where nothing travels or nothing legal exists.
constexpr collective redistribution(distribution from, distribution to) noexcept {
  if (from == distribution::partial && to == distribution::sharded) return collective::reduce_scatter;
  if (from == distribution::partial && to == distribution::replicated) return collective::all_reduce;
  if (from == distribution::sharded && to == distribution::replicated) return collective::all_gather;
  return collective::none;
}

/// Bytes that one rank sends when `whole_bytes` are redistributed over `ranks` with a bandwidth-optimal (ring) algorithm:
/// reduce-scatter, all-gather and all-to-all (N-1)/N passes, all-reduce twice that, broadcast (N-1)/N on average.
constexpr std::uint64_t bytes_sent(collective operation, int ranks, std::uint64_t whole_bytes) noexcept {
  const auto n = static_cast<std::uint64_t>(ranks);
  const std::uint64_t pass = whole_bytes / n * (n - 1) + whole_bytes % n * (n - 1) / n;
  switch (operation) {
    case collective::reduce_scatter:
    case collective::all_gather:
    case collective::all_to_all:
    case collective::broadcast: return pass;
    case collective::all_reduce: return 2 * pass;
    case collective::none: break;
  }
  return 0;
}

}  // namespace ACCO_NAMESPACE
