// SPDX-License-Identifier: Apache-2.0
// Which rounds copy the state, and for whom: the keeper of an optimizer (acco::checkpoint).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "acco/function_view.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/round/state_staging.hpp"
#include "acco/round/tasks.hpp"
#include "acco/stage/state_copy.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Owns the keeper, and the room for the copy. Without a keeper its members do nothing. The trainer's thread calls all;
/// all ranks do alike.
template <class Storage>
class state_copies {
 public:
  using staging = state_staging<Storage>;

  /// make() gives room for a copy.
  template <class Make>
  void attach(std::unique_ptr<checkpointer> keeper, Make&& make) {
    if (!staging_) staging_ = make();
    keeper_ = std::move(keeper);
  }
  [[nodiscard]] checkpointer* keeper() const noexcept { return keeper_.get(); }
  /// How many rooms the keeper has.
  [[nodiscard]] std::size_t kept() const noexcept { return staging_ ? 1 : 0; }

  /// The next round that commits is to be the cut, whatever is heard; or not.
  void cut_next(bool due) noexcept { cut_due_ = due; }
  /// A copy for whoever holds a keeper of his own: fill_now as in `rest`. Valid until the next one.
  [[nodiscard]] state_view copy_now(function_view<void(staging&)> fill_now) {
    staging_->clear();
    fill_now(*staging_);
    return staging_->view();
  }
  [[nodiscard]] staging const& room() const noexcept { return *staging_; }

  // A round: start, tell, enqueue; when its tasks are done: end, hear; when it has landed: news.

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
  void enqueue(round_end<Storage>& wanted, Fill&& fill) {
    if (cuts_) fill(*(wanted.copy = staging_.get()));
  }
  /// The copy is complete, but for its numbers, which keep(numbers) adds; or has failed with the round.
  template <class Keep>
  void end(bool failed, Keep&& keep) {
    if (!std::exchange(cuts_, false)) return;
    if (failed) {
      keeper_->cut_failed();
    } else {
      take(keep);
    }
  }
  /// What the ranks have told in a round.
  void hear(save_signals const& all, int ranks) noexcept {
    if (keeper_ && all.keepers == static_cast<double>(ranks) && keeper_->hear(all)) cut_due_ = true;
  }
  [[nodiscard]] save_outcome const* news() noexcept { return keeper_ ? keeper_->news() : nullptr; }
  [[nodiscard]] save_outcome const* saved() const noexcept { return keeper_ ? keeper_->newest() : nullptr; }

  /// The training has come to rest, after rounds in which so many ranks had a keeper. fill_now(room) copies the state
  /// and its numbers, and waits; sum(numbers) is over all ranks, which call it equally often.
  void rest(double keepers, int ranks, function_view<void(std::span<double>)> sum, function_view<void(staging&)> fill_now) {
    if (!keeper_) return;
    if (keepers != static_cast<double>(ranks)) return keeper_->not_heard(keepers);
    const auto cut = [&] {
      cut_due_ = false;
      keeper_->cut();
      staging_->clear();
      fill_now(*staging_);
      take([](run_numbers&) {});
    };
    const auto sum_signals = [&](save_signals const& mine) {
      std::array<double, 5> numbers{mine.wishes, mine.busy, mine.failed, mine.culprits, mine.complete};
      sum(numbers);
      return save_signals{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    };
    if (cut_due_) cut();
    while (keeper_->rest(sum_signals)) cut();
  }

 private:
  template <class Keep>
  void take(Keep&& keep) {
    keep(staging_->numbers);
    keeper_->taken(staging_->view());
  }

  std::unique_ptr<staging> staging_;
  std::unique_ptr<checkpointer> keeper_;  // after what its thread reads
  bool cut_due_ = false;                  // the next round that commits is to be the cut
  bool cuts_ = false;                     // the round in flight is
};

}  // namespace ACCO_SIMD_NAMESPACE
