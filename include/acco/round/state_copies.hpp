// SPDX-License-Identifier: Apache-2.0
// Which rounds copy the state, and for whom: the keeper of an optimizer (acco::checkpoint), and its snapshots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "acco/function_view.hpp"
#include "acco/round/snapshots.hpp"
#include "acco/round/state_copy.hpp"
#include "acco/round/state_keeper.hpp"
#include "acco/round/state_staging.hpp"
#include "acco/round/works.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Owns the keeper, and the room for all copies. Without keeper and snapshots its members do nothing. The trainer's thread calls
/// all; all ranks do alike.
template <class Storage>
class state_copies {
 public:
  using staging = state_staging<Storage>;

  /// make() gives room for a copy.
  template <class Make>
  void keep_snapshots(std::size_t count, Make&& make) {
    if (count != 0) snapshots_.emplace(count + 1, make);
  }
  template <class Make>
  void attach(std::unique_ptr<state_keeper> keeper, Make&& make) {
    if (!staging_) staging_ = make();
    keeper_ = std::move(keeper);
  }
  [[nodiscard]] state_keeper* keeper() const noexcept { return keeper_.get(); }
  /// How many rooms the keeper has.
  [[nodiscard]] std::size_t kept() const noexcept { return staging_ ? 1 : 0; }

  // A round: start, tell, enqueue; when it has been worked off: end, hear; when it has landed: news.

  /// The trainer's gradients leave for a round that commits, or does not.
  void start(bool commits) noexcept {
    cuts_ = cut_due_ && commits;
    if (!cuts_) return;
    cut_due_ = false;
    keeper_->cut();
  }
  [[nodiscard]] save_signals tell() noexcept { return keeper_ ? keeper_->tell() : save_signals{}; }
  /// What is to be copied at the round's end; fill(room) says from where.
  template <class Fill>
  void enqueue(round_end<Storage>& wanted, bool snapshot_due, Fill&& fill) {
    if (cuts_) fill(*(wanted.copies[0] = staging_.get()));
    if (snapshots_ && snapshot_due) fill(*(wanted.copies[1] = snapshot_ = snapshots_->next()));
  }
  /// The copies are complete, but for their numbers, which keep(room) adds; or `lost` with the round. Of an update that was
  /// skipped there is no snapshot.
  template <class Keep>
  void end(bool lost, bool applied, Keep&& keep) {
    if (std::exchange(cuts_, false)) {
      if (lost) {
        keeper_->lost();
      } else {
        take(keep);
      }
    }
    staging* const snapshot = std::exchange(snapshot_, nullptr);
    if (snapshot == nullptr || lost || !applied) return;
    keep(*snapshot);
    if (snapshots_) snapshots_->taken();  // who had one to fill
  }
  /// What the ranks have told in a round.
  void hear(save_signals const& all, int ranks) noexcept {
    if (keeper_ && all.keepers == static_cast<double>(ranks) && keeper_->hear(all)) cut_due_ = true;
  }
  [[nodiscard]] save_outcome const* news() noexcept { return keeper_ ? keeper_->news() : nullptr; }
  [[nodiscard]] save_outcome const* saved() const noexcept { return keeper_ ? keeper_->newest() : nullptr; }

  /// The training has come to rest, after rounds in which so many ranks had a keeper. fill_now(room) copies the state and its
  /// numbers, and waits; sum(numbers) is over all ranks, which call it equally often.
  void rest(double keepers, int ranks, function_view<void(std::span<double>)> sum, function_view<void(staging&)> fill_now) {
    if (!keeper_) return;
    if (keepers != static_cast<double>(ranks)) return keeper_->not_heard(keepers);
    const auto cut = [&] {
      cut_due_ = false;
      keeper_->cut();
      staging_->clear();
      fill_now(*staging_);
      take([](staging&) {});
    };
    const auto exchange = [&](save_signals const& mine) {
      std::array<double, 5> numbers{mine.wishes, mine.busy, mine.failed, mine.culprits, mine.complete};
      sum(numbers);
      return save_signals{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    };
    if (cut_due_) cut();
    while (keeper_->rest(exchange)) cut();
  }

  // Snapshots.

  /// One of now: fill_now(room) copies the state and its numbers, and waits.
  template <class Fill>
  void take_snapshot(Fill&& fill_now) {
    if (!snapshots_) return;
    fill_now(*snapshots_->next());
    snapshots_->taken();
  }
  /// The newest that has committed at most so many updates; or null.
  [[nodiscard]] staging const* newest(std::uint64_t steps) const noexcept {
    return snapshots_ ? snapshots_->newest(steps) : nullptr;
  }
  [[nodiscard]] staging const* oldest() const noexcept { return snapshots_ ? snapshots_->oldest() : nullptr; }
  /// Those after this one are of a time that did not happen.
  void drop_after(staging const* kept) noexcept {
    if (snapshots_) snapshots_->drop_after(kept);
  }
  /// Those of this round, and later ones, may hold wrong parameters.
  void drop_since(std::uint64_t round) noexcept {
    if (snapshots_) snapshots_->drop_since(round);
  }
  /// The snapshot that the round in flight makes is not wanted.
  void drop_next() noexcept { snapshot_ = nullptr; }

 private:
  template <class Keep>
  void take(Keep&& keep) {
    keep(*staging_);
    keeper_->taken(staging_->view());
  }

  std::unique_ptr<staging> staging_;
  std::unique_ptr<state_keeper> keeper_;  // after what its thread reads
  std::optional<state_snapshots<Storage>> snapshots_;
  bool cut_due_ = false;  // the next round that commits is to be the cut
  // Of the round in flight.
  bool cuts_ = false;
  staging* snapshot_ = nullptr;
};

}  // namespace ACCO_SIMD_NAMESPACE
