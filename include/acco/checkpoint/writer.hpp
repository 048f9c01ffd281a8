// SPDX-License-Identifier: Apache-2.0
// One rank's writer: it copies nothing itself, but says when, and a thread of its own writes what was copied.
//
// A checkpoint is written into run/.saving-SESSION-NUMBER by all ranks at once. Rank 0 makes that folder, and keeps it
// locked. A rank writes the blocks of 4096 bytes that are wholly its own, syncs them, and leaves a small file,
// part-RANK, with its sums and with what it has of the blocks that it shares; or with the words why it could not. Rank
// 0 waits for all of these, writes the shared blocks, and the manifest last; syncs; and gives the folder its name.
//
//   asked          wishes_                     `ask`; how many is told to the others with every round
//   heard          granted_                    all ranks have so many wishes, and none is busy: these are of one cut
//   cut            saves_, copying             `cut`: the positions are asked, the round copies; `cut_failed`: asked again
//   taken          saves_, writing             `taken`: the thread writes the first; of the same cut, one folder after the other
//   done           saves_, idle                the thread has come to an end, which this rank tells with every round
//   told           ended_                      `hear`, or `rest`: one rank has failed, or rank 0 is complete; all ranks know
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <list>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "acco/checkpoint/disk.hpp"
#include "acco/checkpoint/folder.hpp"
#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/part.hpp"
#include "acco/checkpoint/part_writer.hpp"
#include "acco/checkpoint/publisher.hpp"
#include "acco/checkpoint/save_job.hpp"
#include "acco/checkpoint/tensor_file.hpp"
#include "acco/checkpoint/wishes.hpp"
#include "acco/clock.hpp"
#include "acco/function_view.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// See above. The trainer's thread calls all members.
class writer final : public checkpointer {
 public:
  explicit writer(writer_setting setting) : mine_(std::move(setting)), disk_(*mine_.on) {
    std::random_device random;
    session_ = (static_cast<std::uint64_t>(random()) << 16U | (random() & 0xffffU)) & 0xffffffffffffULL;
    thread_ = std::thread([this] { work(); });
  }
  ~writer() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      purpose_.end();
    }
    changed_.notify_all();
    thread_.join();
    tell_the_last();
  }

  /// The training's number, on rank 0, which gives it.
  [[nodiscard]] std::string number() const { return mine_.run.empty() ? number_of(session_) : mine_.run; }

  /// The trainer wishes a checkpoint in this folder, a path from the root; `position` gives its own bytes at the cut.
  void ask(std::string run, std::function<std::vector<std::byte>()> position) {
    wishes_.ask(std::move(run), std::move(position));
  }

  [[nodiscard]] save_signals tell() noexcept override {
    begin_next();
    save_signals mine = result();
    mine.wishes = wishes_.told();
    mine.busy = !saves_.empty() || working() ? 1 : 0;
    mine.keepers = 1;
    mine.session = mine_.rank == 0 ? static_cast<double>(session_) : 0;
    return mine;
  }
  [[nodiscard]] bool hear(save_signals const& all) noexcept override {
    heard_session_ = static_cast<std::uint64_t>(all.session);
    conclude(all);
    granted_ = all.busy == 0 ? wishes_.of_all(all.wishes) : 0;  // each rank's position is one that it has just given
    return granted_ != 0;
  }
  void cut() noexcept override {
    wishes_.give(std::exchange(granted_, 0), saves_);
    twin_.clear();
    {
      const std::lock_guard lock(mutex_);
      phase_ = phase::copying;
    }
    save_job before = std::exchange(job_, {});
    job_.began = steady_seconds();
    const auto why = [](char const* what, auto&& action) -> std::string {
      try {
        action();
        return "";
      } catch (std::exception const& e) {
        return std::string(what) + ": " + e.what();
      } catch (...) {
        return what;
      }
    };
    for (save& each : saves_) {
      each.number = ++numbers_;
      each.problem = why("the trainer's position could not be asked", [&] {
        if (each.position) each.trainer = each.position();
      });
    }
    const std::string problem = why("the frozen tensors could not be copied", [&] { copy_frozen(std::move(before)); });
    for (save& each : saves_) each.problem += each.problem.empty() ? problem : "";
  }
  void taken(state_view const& copy) noexcept override {
    job_.copy = copy;
    if (copy.level != nullptr && *copy.level->problem != '\0') {
      for (save& each : saves_) each.problem = copy.level->problem;
    }
    job_.session = number_of(mine_.rank == 0 ? session_ : heard_session_);
    {
      const std::lock_guard lock(mutex_);
      phase_ = phase::idle;
    }
    begin_next();
  }
  void cut_failed() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      phase_ = phase::idle;
    }
    wishes_.take_back(saves_);
  }
  [[nodiscard]] save_outcome const* news() noexcept override {
    return untold_ == 0 ? nullptr : &std::prev(ended_.end(), untold_--)->outcome;
  }
  [[nodiscard]] save_outcome const* newest() const noexcept override { return ended_.empty() ? nullptr : &ended_.back().outcome; }
  [[nodiscard]] bool rest(function_view<save_signals(save_signals const&)> sum) override {
    while (!saves_.empty()) {  // on every rank, or on none
      begin_next();
      (void)wait_a_moment();
      save_signals mine = result();
      mine.busy = working() || !begun_ ? 1 : 0;
      const save_signals all = sum(mine);
      if (all.failed > 0 || all.busy == 0) conclude(all);
    }
    for (;;) {
      const save_signals all = sum({.wishes = wishes_.told(), .busy = wait_a_moment() ? 1.0 : 0.0});
      if (all.busy != 0) continue;
      granted_ = wishes_.of_all(all.wishes);
      if (granted_ != 0) return true;
      if (all.wishes > 0) not_asked_by_all(wishes_.askers(all.wishes));
      tell_but_the_last();
      return false;
    }
  }
  void not_heard(double keepers) noexcept override {
    if (!wishes_.empty()) not_asked_by_all(keepers);
    tell_but_the_last();
  }

 private:
  enum class phase { idle, copying, writing };
  static std::string number_of(std::uint64_t session) { return hex(session).substr(4); }

  // The trainer's thread.

  /// The next save of the cut, when the thread has done with the one before.
  void begin_next() noexcept {
    if (saves_.empty() || begun_ || working()) return;
    save& next = saves_.front();
    job_.run.swap(next.run);
    job_.trainer.swap(next.trainer);
    job_.has_trainer = static_cast<bool>(next.position);
    job_.problem.swap(next.problem);
    job_.number = next.number;
    job_.twin.swap(twin_);
    begun_ = true;
    const std::lock_guard lock(mutex_);
    others_ = false;
    purpose_.begin();
    problem_.clear();
    complete_ = 0;
    phase_ = phase::writing;
    changed_.notify_all();
  }
  [[nodiscard]] bool working() noexcept {
    const std::lock_guard lock(mutex_);
    return phase_ != phase::idle;
  }
  /// What is frozen: this rank's own, and on rank 0 the rest; that of the save before, where it is the same.
  void copy_frozen(save_job before) {
    const std::uint64_t values = mine_.frozen_values();
    const bool same = values != 0 && values == before.frozen_values;
    job_.frozen = std::move(before.frozen);
    if (!same) job_.frozen.clear();
    for (std::size_t k = 0; k < mine_.layout.tensor_count(); ++k) {
      if (mine_.layout[k].size == 0) continue;
      const kept_as how = how_kept(mine_.layout, k);
      if (how == kept_as::own) mine_.frozen(k, job_.own);
      if (how == kept_as::frozen && mine_.rank == 0 && !same) mine_.frozen(k, job_.frozen);
    }
    job_.frozen_values = values;
  }
  /// Until nothing is being written, or for a twentieth of a second; whether something still is.
  [[nodiscard]] bool wait_a_moment() {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return phase_ == phase::idle; });
  }
  /// What the thread has come to, where nobody has been told yet.
  [[nodiscard]] save_signals result() noexcept {
    const std::lock_guard lock(mutex_);
    save_signals mine;
    if (!begun_ || phase_ != phase::idle) return mine;
    if (!problem_.empty() && !others_) {
      mine.failed = 1;
      mine.culprits = mine_.rank + 1;
    }
    if (mine_.rank == 0) mine.complete = static_cast<double>(complete_);
    return mine;
  }
  /// All ranks have been told how a save has ended, if it has: of some it has begun, of others not, which have still to
  /// end the one before.
  void conclude(save_signals const& all) noexcept {
    if (saves_.empty() || (all.failed == 0 && all.complete == 0)) return;
    const bool begun = std::exchange(begun_, false);
    const std::lock_guard lock(mutex_);
    if (begun && all.failed > 0) purpose_.abort();
    save& now = saves_.front();
    try {
      if (begun) {
        now.run = job_.run;
        twin_ = job_.twin;
      }
      const std::uint64_t step = job_.copy.numbers->steps();
      const bool failed = all.failed > 0;
      now.path = failed ? now.run : now.run + "/" + name_of_step(step, static_cast<std::uint64_t>(all.complete));
      now.problem = !failed ? "" : begun && !problem_.empty() ? problem_ : words_of(all, begun);
      if (!failed) twin_ = now.path;
      std::uint64_t bytes = 0;
      for (tensor_file const& each : job_.files(mine_)) bytes += each.bytes();
      for (tensor_file const& each : job_.own_files(mine_, mine_.rank))
        bytes += static_cast<std::uint64_t>(mine_.ranks) * each.bytes();
      now.outcome = {now.path.c_str(), now.problem.c_str(), step, bytes, failed ? 0 : digest_, steady_seconds() - job_.began};
    } catch (...) {
      now.outcome = {.problem = "there is no memory to say more"};
    }
    end_first_of(saves_);
  }
  void end_first_of(std::list<save>& from) noexcept {
    ended_.erase(ended_.begin(), std::prev(ended_.end(), untold_));  // who was told has had his time
    ended_.splice(ended_.end(), from, from.begin());
    ++untold_;
  }

  /// What nobody is told of any more: that a save has failed, that one will never be.
  void tell_the_last() const noexcept {
    constexpr char const* too_late = "the optimizer ended before a round could make it, and without finish(), which would have";
    if (begun_ && !problem_.empty() && !others_) note_failed(job_.run, problem_);
    for (save const& each : saves_) {
      if (!begun_ || &each != &saves_.front()) note_failed(each.run, too_late);
    }
    for (save const& each : wishes_.all()) note_failed(each.run, too_late);
  }
  /// The training has come to rest, and `saved` has one outcome.
  void tell_but_the_last() noexcept {
    for (; untold_ > 1; --untold_) {
      save const& each = *std::prev(ended_.end(), untold_);
      if (!each.outcome.complete()) note_failed(each.outcome.path, each.outcome.problem);
    }
    untold_ = 0;
  }
  void note_failed(std::string const& run, std::string const& problem) const noexcept {
    try {
      mine_.on->note("acco: rank " + std::to_string(mine_.rank) + ": the last save into " + run + " failed: " + problem + ".");
    } catch (std::exception const&) {  // there is no memory to say it
    }
  }
  /// The training has come to rest, and some ranks wait for others that have not asked.
  void not_asked_by_all(double ranks) noexcept {
    std::list<save> lost;
    wishes_.give(static_cast<std::ptrdiff_t>(wishes_.all().size()), lost);
    try {
      if (lost.empty()) lost.emplace_back().run = job_.run;
      for (save& each : lost) {
        each.problem = "only " + text_of(ranks) + " of " + std::to_string(mine_.ranks) +
                       " ranks had asked for it before finish(): every rank calls save, with the same folder";
        each.outcome = {.path = each.run.c_str(), .problem = each.problem.c_str()};
      }
    } catch (...) {
      for (save& each : lost) each.outcome = {.problem = "only some ranks had asked for it"};
    }
    while (!lost.empty()) end_first_of(lost);
  }

  /// Why the others' parts are lost, as far as this rank can know.
  [[nodiscard]] std::string words_of(save_signals const& all, bool begun) const {
    if (all.failed > 1) return text_of(all.failed) + " ranks could not write their parts; their own reports say why";
    const int rank = static_cast<int>(all.culprits) - 1;
    try {
      const part p = begun ? read_part(job_, rank) : part();
      if (!p.problem.empty()) return "rank " + std::to_string(rank) + ": " + p.problem;
    } catch (std::exception const&) {  // the folder is gone, or the disk takes nothing
    }
    return "rank " + std::to_string(rank) + " could not write its part; its own report says why";
  }
  [[nodiscard]] static std::string text_of(double number) { return std::to_string(static_cast<int>(number)); }

  // The thread's, of the job it has.

  void work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || phase_ == phase::writing; });
      if (phase_ != phase::writing) return;
      lock.unlock();
      std::string problem;
      bool others = false;
      std::uint64_t complete = 0, digest = 0;
      try {
        if (!job_.problem.empty()) throw std::runtime_error(job_.problem);
        if (mine_.rank == 0) publisher_.make_folder();
        part_.write();
        if (mine_.rank == 0) complete = publisher_.join(digest);
      } catch (anothers_problem const& e) {
        problem = e.what();
        others = true;
      } catch (std::exception const& e) {
        problem = e.what();
      } catch (...) {
        problem = "an exception that is no std::exception";
      }
      part_.close();
      if (!problem.empty()) {
        {
          const std::lock_guard now(mutex_);
          problem_ = problem;  // before the folder goes, from which it could be read
          others_ = others;
        }
        if (mine_.rank == 0) {
          publisher_.give_up();
        } else if (!others) {
          part_.leave_words(problem);
        }
      }
      publisher_.unlock();
      lock.lock();
      complete_ = complete;
      digest_ = digest;
      phase_ = phase::idle;
      changed_.notify_all();
    }
  }

  writer_setting mine_;
  disk disk_;
  std::uint64_t session_ = 0;

  // The trainer's.
  wishes wishes_{mine_.ranks};
  std::list<save> saves_;       // of the cut: those of which the ranks have not been told how they ended
  std::list<save> ended_;       // the last one, and those of which news() has not told
  bool begun_ = false;          // the first of saves_ is the thread's
  std::ptrdiff_t granted_ = 0;  // so many wishes are for the next cut
  std::ptrdiff_t untold_ = 0;   // of ended_
  std::uint64_t numbers_ = 0, heard_session_ = 0;
  std::string twin_;  // a checkpoint of this cut
  save_job job_;      // the thread reads it while the phase is not idle, and nobody writes it then

  std::mutex mutex_;
  std::condition_variable changed_;
  phase phase_ = phase::idle;
  bool stopping_ = false;
  std::string problem_;
  bool others_ = false;  // the problem
  std::uint64_t complete_ = 0, digest_ = 0;

  purpose purpose_;
  part_writer part_{mine_, job_, purpose_, disk_};
  publisher publisher_{mine_, job_, purpose_, disk_, part_};  // on rank 0
  std::thread thread_;                                        // uses what is above
};

}  // namespace ACCO_NAMESPACE::checkpoints
