// SPDX-License-Identifier: Apache-2.0
// What a mock_world is told to do, and what it counts: moments of completion, faults, calls and bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "acco/collective/redistribution.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's part in one collective; `index` counts the collectives of that rank from 0.
struct mock_event {
  int rank;
  collective operation;
  std::size_t index;
  std::int64_t round;
};

enum class mock_fault {
  none,
  death,     ///< the rank vanishes: its function unwinds, the others hear nothing
  loss,      ///< the transfer never completes on this rank
  mismatch,  ///< the rank asks for one element more than it should
};

/// Scripts for `mock_options::delay`: for how many polls of a rank (calls of `accumulated`, `poll`) a finished transfer
/// is held back from it. A rank that waits gets it at once.
struct complete_at_once {
  std::size_t operator()(mock_event const&) const { return 0; }
};
struct complete_when_waited_for {
  std::size_t operator()(mock_event const&) const { return std::numeric_limits<std::size_t>::max(); }
};
/// A different number for every rank and transfer, the same in every run with this seed.
struct complete_at_random {
  std::uint64_t seed = 1;
  std::size_t at_most = 5;
  std::size_t operator()(mock_event const& event) const {
    std::uint64_t x = seed + 0x9e3779b97f4a7c15ULL * (event.index * 64 + static_cast<std::uint64_t>(event.rank) + 1);
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return (x ^ (x >> 31U)) % (at_most + 1);
  }
};

struct mock_options {
  std::function<std::size_t(mock_event const&)> delay = complete_at_once{};
  std::function<mock_fault(mock_event const&)> fault = [](mock_event const&) { return mock_fault::none; };
};

/// What one rank has asked of the network so far; bytes are those it handed over (`bytes_handed_over`).
struct mock_counters {
  std::array<std::uint64_t, collective_kinds> calls{}, bytes{};
  [[nodiscard]] std::uint64_t calls_of(collective operation) const { return calls[static_cast<std::size_t>(operation)]; }
  [[nodiscard]] std::uint64_t bytes_of(collective operation) const { return bytes[static_cast<std::size_t>(operation)]; }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
