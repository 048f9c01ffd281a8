// SPDX-License-Identifier: Apache-2.0
// The whole state of a run at a cut, as it leaves an engine and comes back: plain types, between the engine and whoever keeps it.
//
// A cut is a round that commits. It carries all gradients that there are, so when it has been worked off, and before it lands, no
// gradient lives anywhere: the state is masters, slots, averages, the parameters that are in use, and those that arrive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/layout/partition.hpp"
#include "acco/stage/round_counts.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// The type of the elements of an array of state.
enum class element_type : std::uint8_t { float32, float64, bfloat16, float16 };
[[nodiscard]] constexpr std::size_t size_of(element_type type) noexcept {
  return type == element_type::float64 ? 8 : type == element_type::float32 ? 4 : 2;
}

/// What the rounds so far have come to. The same on every rank, but for the seconds, which are rank 0's where they are kept.
struct run_counters {
  std::uint64_t round = 0;                          ///< that starts next, or is in flight
  std::uint64_t steps = 0;                          ///< updates committed
  double samples = 0;                               ///< weight committed
  double step_weight = 0;                           ///< of the rounds of the step so far, over all ranks
  double step_loss_sum = 0;                         ///< over the same
  std::uint64_t skipped = 0;                        ///< updates in a row that were skipped
  std::uint64_t empty = 0;                          ///< steps in a row that weighed nothing
  double estimate_seconds = 0, commit_seconds = 0;  ///< of the last ones
};

/// A round that has been worked off and has not landed.
struct completed_round {
  summed_counts counts;
  double squares = 0, step_weight = 0, loss_scale = 1, norm = 0, clip = 1, rate = 1, seconds = 0;
  bool apply = false, skip = false, spike = false;
  bool differences = false;      ///< its parameters have arrived as encoded differences
  std::vector<double> measured;  ///< the squares of each region, where they are measured
  bool digested = false;         ///< whether `digest` is that of the state after it, without its numbers
  std::uint64_t digest = 0;
};

/// The norms of the gradients of the last updates, the oldest first.
struct recent_norms {
  static constexpr std::size_t most = 64;
  std::array<double, most> values{};
  std::size_t count = 0;
};

/// The numbers of a state. The same on every rank, but for those of this rank.
struct run_numbers {
  run_counters run;
  std::array<double, 5> pace{};        ///< what a pace that measures has found
  recent_norms norms;                  ///< of the gradients of the last updates
  std::vector<std::uint64_t> updates;  ///< of each tensor, that round included; nothing where none may lack a gradient
  std::uint64_t rounds = 0, rounds_skipped = 0;
  double dropped = 0;               ///< of the totals
  bool completed = false;           ///< whether round `run.round` is done and has not landed; else nothing is in flight
  completed_round last;             ///< that one
  std::uint64_t micro_batches = 0;  ///< that this rank put into it
  std::uint64_t bytes_sent = 0;     ///< by this rank, for it

  /// Updates and weight committed, that round included.
  [[nodiscard]] std::uint64_t steps() const noexcept { return run.steps + (completed && last.apply ? 1 : 0); }
  [[nodiscard]] double samples() const noexcept { return run.samples + (completed && last.apply ? last.step_weight : 0); }
};

/// The arrays of a state: masters, the rule's slots, averages, then parameters in use and parameters that arrive. The last two
/// are there only where they do not follow from the masters.
struct state_shape {
  element_type master = element_type::float32, parameter = element_type::float32;
  std::size_t slots = 0;
  bool averages = false;

  [[nodiscard]] constexpr std::size_t owned() const noexcept { return 1 + slots + (averages ? 1 : 0); }
  [[nodiscard]] constexpr std::size_t shown() const noexcept { return owned(); }
  [[nodiscard]] constexpr std::size_t arriving() const noexcept { return owned() + 1; }
  [[nodiscard]] constexpr std::size_t arrays() const noexcept { return owned() + 2; }
  [[nodiscard]] constexpr element_type type(std::size_t array) const noexcept { return array < owned() ? master : parameter; }
};

struct level_view;  // level_copy.hpp

/// This rank's part of a state, in host memory: of every array its slice (layout/partition.hpp). Where there is a level, its
/// arrays are the state, and the numbers here are those that all ranks have alike.
struct state_view {
  run_numbers const* numbers;
  state_shape shape;
  partition shares;
  int rank;
  std::span<std::byte const* const> arrays;
  bool shows, arrives;  ///< whether the last two arrays are there, on any rank
  level_view const* level = nullptr;
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
