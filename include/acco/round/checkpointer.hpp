// SPDX-License-Identifier: Apache-2.0
// Who keeps copies of the state, and where they come back from: interfaces that an engine calls, and that
// acco::checkpoint has.
#pragma once

#include <cstddef>
#include <string>

#include "acco/function_view.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Who keeps copies of the state. Called on the trainer's thread; nothing of it throws.
class checkpointer {
 public:
  checkpointer() = default;
  checkpointer(checkpointer const&) = delete;
  checkpointer& operator=(checkpointer const&) = delete;
  virtual ~checkpointer() = default;

  /// What this rank's part of the coming round tells the others.
  [[nodiscard]] virtual save_signals tell() noexcept = 0;
  /// What all ranks told in a round that has ended; whether the next round that commits is to be the cut.
  [[nodiscard]] virtual bool hear(save_signals const& all) noexcept = 0;
  /// This rank's gradients leave now for the round that is the cut: where the trainer stands now belongs to it.
  virtual void cut() noexcept = 0;
  /// The copy that was asked for. It stays as it is until this rank no longer tells that it is busy.
  virtual void taken(state_view const& copy) noexcept = 0;
  /// The cut has come to nothing: the round has failed.
  virtual void cut_failed() noexcept = 0;
  /// The outcome of a save that has ended since this was asked last; or null.
  [[nodiscard]] virtual save_outcome const* news() noexcept = 0;
  /// The training comes to rest: blocks until nothing is being written; whether a copy is wanted now. If not, `newest`
  /// tells, and there is no news. `sum(signals)` sums them over the ranks; every rank calls it equally often.
  [[nodiscard]] virtual bool rest(function_view<save_signals(save_signals const&)> sum) = 0;
  /// The same, and only so many ranks have a keeper: what was wished cannot be.
  virtual void not_heard(double keepers) noexcept = 0;
  /// The outcome of the save that ended last; or null.
  [[nodiscard]] virtual save_outcome const* newest() const noexcept = 0;
};

/// Where a state comes back from. What it throws is found on one rank alone.
class state_source {
 public:
  state_source() = default;
  state_source(state_source const&) = delete;
  state_source& operator=(state_source const&) = delete;
  virtual ~state_source() = default;

  [[nodiscard]] virtual run_numbers const& numbers() const noexcept = 0;
  [[nodiscard]] virtual bool has(std::size_t array) const noexcept = 0;
  /// That these elements of an array will be read soon, so that they may be fetched already.
  virtual void expect(std::size_t array, std::size_t first, std::size_t count) = 0;
  /// Elements of an array, by their number among the trainable ones: of what every rank has of its own, this rank's.
  virtual void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) = 0;
  /// The elements of a frozen tensor, in the parameter's type.
  virtual void read_frozen(std::size_t tensor, std::byte* to) = 0;

  /// Of a level, the numbers of this rank, or, where the ranks were others, of rank 0; null where there is none.
  [[nodiscard]] virtual level_numbers const* level() const noexcept { return nullptr; }
  /// Whether there is an array of a level of this name; elements of it.
  [[nodiscard]] virtual bool has_of_level(std::string const& /*array*/) const noexcept { return false; }
  virtual void read_of_level(std::string const& /*array*/, element_type, std::size_t /*first*/, std::size_t /*count*/,
                             std::byte* /*to*/) {}
};

}  // namespace ACCO_NAMESPACE
