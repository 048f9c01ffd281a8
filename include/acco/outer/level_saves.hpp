// SPDX-License-Identifier: Apache-2.0
// How saves travel over two levels, and when all workers cut.
//
// What ranks tell of saves is summed within a worker, by its rounds, and that sum over the workers, by the exchanges of
// the first fragment: when one lands, every rank of the world knows the same. If a save is granted, the next round of
// each worker that commits is the cut. Until it has landed no exchange starts or lands, so workers whose rounds differ,
// because one has skipped an update, are still cut between the same exchanges.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "acco/function_view.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/stage/state_copy.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's; owns its keeper. The trainer's thread calls all members.
class level_saves {
 public:
  level_saves() = default;
  level_saves(level_saves const&) = delete;
  level_saves& operator=(level_saves const&) = delete;
  virtual ~level_saves() = default;

  [[nodiscard]] checkpointer* keeper() const noexcept { return keeper_.get(); }
  void attach(std::unique_ptr<checkpointer> keeper) noexcept { keeper_ = std::move(keeper); }
  /// The state of the level at this rank's cut, of whose worker this is the copy; `problem`: it is not that of the cut,
  /// and why.
  [[nodiscard]] virtual state_view whole(state_view const& of_worker, char const* problem) noexcept = 0;
  /// Nobody keeps anything any more.
  void end() noexcept {
    keeper_.reset();
    told_ = {};
    granted_ = pending_ = open_ = false;
  }

  /// In the place of the keeper, for the engine of the worker.
  [[nodiscard]] std::unique_ptr<checkpointer> of_worker() { return std::make_unique<in_worker>(*this); }
  /// The same for that of an exchange; only those of one fragment tell.
  [[nodiscard]] std::unique_ptr<checkpointer> of_exchange(bool tells) { return std::make_unique<in_exchange>(*this, tells); }

  /// Whether an exchange that has landed since this was asked brings a cut.
  [[nodiscard]] bool grants() noexcept {
    pending_ = pending_ || granted_;
    return std::exchange(granted_, false);
  }
  /// This worker has come to the end, and exchanges without having trained: it tells nothing any more.
  void end_rounds() noexcept { told_ = {}; }
  /// All workers have come to the end, at rest. What was wished is saved; a cut that was to be, and that none of them
  /// has made, is wished again, and one that only some have made fails. sum(numbers) is over the ranks of the world;
  /// cut_now(problem) calls `cut` with a copy. Collective; blocks.
  template <class Sum, class Cut>
  void rest(int ranks, Sum&& sum, Cut&& cut_now) {
    (void)grants();
    double told[] = {keeper_ ? 1.0 : 0.0, pending_ ? 1.0 : 0.0};
    sum(told);
    if (!keeper_) return;
    if (told[0] != ranks) return keeper_->not_heard(told[0]);
    if (told[1] == ranks) {
      if (std::exchange(open_, false)) keeper_->cut_failed();
      pending_ = false;
    }
    if (pending_) cut_now("its worker had come to finish() before it could be cut: save behind finish()");
    const auto sum_signals = [&](save_signals const& mine) {
      double numbers[] = {mine.wishes, mine.busy, mine.failed, mine.culprits, mine.complete, mine.keepers, mine.session};
      sum(numbers);
      return save_signals{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]};
    };
    (void)keeper_->hear(sum_signals(keeper_->tell()));  // whose session it is, which no round may have told yet
    while (keeper_->rest(sum_signals)) cut_now("");
  }
  /// What this rank is at the cut.
  void cut(state_view const& copy, char const* problem = "") noexcept {
    if (!keeper_) return;  // nobody wants it any more
    if (!std::exchange(open_, false)) keeper_->cut();
    pending_ = false;
    keeper_->taken(whole(copy, problem));
  }

 private:
  class of_level : public checkpointer {
   public:
    explicit of_level(level_saves& saves) noexcept : saves_(saves) {}
    void cut() noexcept override {}
    void taken(state_view const&) noexcept override {}
    void cut_failed() noexcept override {}
    [[nodiscard]] save_outcome const* news() noexcept override { return nullptr; }
    [[nodiscard]] bool rest(function_view<save_signals(save_signals const&)>) override { return false; }
    void not_heard(double) noexcept override {}
    [[nodiscard]] save_outcome const* newest() const noexcept override { return nullptr; }

   protected:
    level_saves& saves_;
  };
  class in_worker final : public of_level {
   public:
    using of_level::of_level;
    [[nodiscard]] save_signals tell() noexcept override { return saves_.keeper_ ? saves_.keeper_->tell() : save_signals{}; }
    [[nodiscard]] bool hear(save_signals const& all) noexcept override {
      saves_.told_ = all;
      saves_.told_.keepers = 1;
      return false;
    }
    void cut() noexcept override {
      if (saves_.keeper_ && !std::exchange(saves_.open_, true)) saves_.keeper_->cut();
    }
    void taken(state_view const& copy) noexcept override { saves_.cut(copy); }
    void cut_failed() noexcept override {}  // the training is at its end, or `finish` decides
    [[nodiscard]] save_outcome const* news() noexcept override { return saves_.keeper_ ? saves_.keeper_->news() : nullptr; }
  };
  class in_exchange final : public of_level {
   public:
    in_exchange(level_saves& saves, bool tells) noexcept : of_level(saves), tells_(tells) {}
    [[nodiscard]] save_signals tell() noexcept override {
      return tells_ ? std::exchange(saves_.told_, save_signals{}) : save_signals{};
    }
    [[nodiscard]] bool hear(save_signals const& all) noexcept override {
      saves_.told_ = {};  // from before this was heard
      if (saves_.keeper_ && saves_.keeper_->hear(all)) saves_.granted_ = true;
      return false;
    }

   private:
    bool tells_;
  };

  save_signals told_;     // the sum over the worker's ranks, until an exchange takes it along
  bool granted_ = false;  // by an exchange that has landed
  bool pending_ = false;  // a cut is to be
  bool open_ = false;     // it has begun, and has no copy yet
  std::unique_ptr<checkpointer> keeper_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
