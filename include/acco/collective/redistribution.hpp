// SPDX-License-Identifier: Apache-2.0
// The table of legal conversions: (from, to) -> which collective, and how many bytes a rank sends for it: in a ring,
// which is the theory and what is reported of a backend that does not count, and directly, which is what the library's
// own backends hand over.
#pragma once

#include <cstdint>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

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

/// Bytes that a rank has handed over: all; of a backend of two levels, those between its groups.
struct sent_bytes {
  std::uint64_t all = 0, between = 0;
  [[nodiscard]] friend constexpr sent_bytes operator-(sent_bytes const& a, sent_bytes const& b) noexcept {
    return {a.all - b.all, a.between - b.between};
  }
};

/// Bytes that one rank sends when `whole_bytes` are redistributed over `ranks` with a bandwidth-optimal (ring)
/// algorithm: reduce-scatter, all-gather and all-to-all (N-1)/N passes, all-reduce twice that, broadcast (N-1)/N on
/// average.
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

/// Bytes that one rank hands over when every rank gives every other directly what it needs, as threads and the mock do
/// (over messages a broadcast is passed on, and so are the sums of a few numbers): of the `brought` bytes, its part to
/// each for a reduce-scatter and an all-to-all, all of them for the others; the root's for a broadcast.
constexpr std::uint64_t bytes_handed_over(collective operation, int ranks, std::uint64_t brought, bool is_root) noexcept {
  const auto others = static_cast<std::uint64_t>(ranks) - 1;
  switch (operation) {
    case collective::reduce_scatter:
    case collective::all_to_all: return brought / (others + 1) * others;
    case collective::all_gather:
    case collective::all_reduce: return brought * others;
    case collective::broadcast: return is_root ? brought * others : 0;
    case collective::none: break;
  }
  return 0;
}

}  // namespace ACCO_SIMD_NAMESPACE
