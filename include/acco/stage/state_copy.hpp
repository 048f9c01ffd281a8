// SPDX-License-Identifier: Apache-2.0
// The whole state of a run at a cut, as it leaves an engine and comes back: plain types, between the engine and whoever
// keeps it.
//
// A cut is a round that commits. It carries all gradients that there are, so when its tasks are done, and before it
// lands, no gradient lives anywhere: the state is masters, slots, averages, what wires keep, the parameters in use, and
// those that arrive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// What the rounds so far have come to. The same on every rank, but for the seconds, which are rank 0's where they are
/// kept.
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

/// A round whose tasks are done, and whose parameters are not yet in use.
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

/// What an array is for.
enum class array_use : std::uint8_t {
  state,     ///< part of the optimizer's state
  feedback,  ///< what a wire keeps of gradients that it has not sent: forgotten where
             ///< the parameters are replaced, 0 where a state that comes back lacks it
  room       ///< only the round in flight needs it: no checkpoint has it, nor any digest
};
/// Which trainable elements a rank's array has: a number for each. (What has another length lies in one of these, as
/// power_sgd's directions do, or is a frozen tensor of an engine's layout, as GaLore's bases are: docs/extending.md.)
enum class array_extent : std::uint8_t {
  shard,  ///< the rank's shard: all ranks together have each element once. One file; other ranks divide it anew
  whole   ///< all of them, of every rank's own. A file a rank; among
          ///< other ranks, rank r's is the sum of those of ranks r,
          ///< r + ranks, r + 2 ranks, ... of then, or 0: over all ranks the sum stays what it was
};
/// How an array begins for a tensor that was frozen before.
enum class array_start : std::uint8_t { zeros, parameters };

/// An array that digests and checkpoints have.
struct kept_array {
  std::string name;  ///< of its file
  element_type type = element_type::float32;
  array_extent extent = array_extent::shard;
  array_use use = array_use::state;
  array_start start = array_start::zeros;
  bool packed = false;  ///< in an engine's memory the bfloat16s are int8_blocks
};
/// The file's name, without its end, of what is rank `rank`'s own.
[[nodiscard]] std::string name_of_rank(std::string_view what, std::size_t rank, std::size_t ranks);
/// The name of a rule's slot.
[[nodiscard]] std::string name_of_slot(std::string_view rule, std::size_t slot);
/// visit(index in the array, first trainable element, count) for the elements of a rank's array.
template <class Visitor>
void for_elements_of(array_extent extent, partition const& shares, int rank, Visitor&& visit) {
  extent == array_extent::shard ? shares.for_shares(rank, visit) : shares.for_elements(0, shares.size(), visit);
}

/// The arrays of a state: those that were declared (state_arrays.hpp), shards first, then parameters in use and
/// parameters that arrive. The last two are there only where they do not follow from the masters.
struct state_shape {
  element_type master = element_type::float32, parameter = element_type::float32;
  std::vector<kept_array> kept;

  /// Returns its number; that of the arrays behind it grows by one.
  std::size_t add(kept_array each);
  [[nodiscard]] std::size_t owned() const noexcept { return kept.size(); }
  [[nodiscard]] std::size_t shards() const noexcept {
    std::size_t count = 0;
    while (count < kept.size() && kept[count].extent == array_extent::shard) ++count;
    return count;
  }
  [[nodiscard]] std::size_t shown() const noexcept { return owned(); }
  [[nodiscard]] std::size_t arriving() const noexcept { return owned() + 1; }
  [[nodiscard]] std::size_t arrays() const noexcept { return owned() + 2; }
  [[nodiscard]] element_type type(std::size_t array) const noexcept { return array < owned() ? kept[array].type : parameter; }
  [[nodiscard]] array_extent extent(std::size_t array) const noexcept {
    return array < owned() ? kept[array].extent : array_extent::shard;
  }
  [[nodiscard]] std::string name(std::size_t array) const {
    return array < owned() ? kept[array].name : array == shown() ? "shown" : "arriving";
  }
  [[nodiscard]] bool has(std::string_view array) const noexcept {
    for (kept_array const& each : kept) {
      if (each.name == array) return true;
    }
    return false;
  }
  [[nodiscard]] bool averages() const noexcept { return has(average); }
  static constexpr char const* average = "average";  ///< of the masters: the name
};

struct level_view;  // level_copy.hpp

/// This rank's part of a state, in host memory: of every array what it has. Where there is a level, its arrays are
/// the state, and the numbers here are those that all ranks have alike.
struct state_view {
  run_numbers const* numbers;
  state_shape const* shape;
  partition shares;
  int rank;
  std::span<std::byte const* const> arrays;
  bool shows, arrives;  ///< whether the last two arrays are there, on any rank
  level_view const* level = nullptr;
};

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE std::size_t state_shape::add(kept_array each) {
  const std::size_t at = each.extent == array_extent::shard ? shards() : kept.size();
  kept.insert(kept.begin() + static_cast<std::ptrdiff_t>(at), std::move(each));
  return at;
}
ACCO_ONCE std::string name_of_rank(std::string_view what, std::size_t rank, std::size_t ranks) {
  const auto digits = [](std::size_t number) {
    const std::string text = std::to_string(number);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return std::string(what) + "-" + digits(rank) + "-of-" + digits(ranks);
}
ACCO_ONCE std::string name_of_slot(std::string_view rule, std::size_t slot) {
  std::string name;
  for (const char c : rule) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    name += plain ? c : '_';
  }
  return (name.empty() ? "rule" : name) + "." + std::to_string(slot);
}
#endif

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
