// SPDX-License-Identifier: Apache-2.0
// One rank's writer: it copies nothing itself, but says when, and a thread of its own writes what was copied.
//
// A checkpoint is written into run/.saving-SESSION-NUMBER by all ranks at once. Rank 0 makes that folder, and keeps it locked. A
// rank writes the blocks of 4096 bytes that are wholly its own, syncs them, and leaves a small file, part-RANK, with its sums and
// with what it has of the blocks that it shares; or with the words why it could not. Rank 0 waits for all of these, writes the
// shared blocks, and the manifest last; syncs; and gives the folder its name.
//
//   asked          wishes_                     `ask`; told to the others with every round
//   heard          cut_due_ (state_copies)     all ranks wish, and none is busy
//   cut            outstanding_, copying       `cut`: the position is asked, the round copies; or `lost`: asked again
//   taken          outstanding_, writing       `taken`: the thread writes
//   done           outstanding_, idle          the thread has come to an end, which this rank tells with every round
//   told           news_, ended_               `hear`, or `rest`: one rank has failed, or rank 0 is complete; all ranks know
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
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
#include "acco/clock.hpp"
#include "acco/function_view.hpp"
#include "acco/round/state_copy.hpp"
#include "acco/round/state_keeper.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// See above. The trainer's thread calls all members.
class writer final : public state_keeper {
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
    run_ = std::move(run);
    position_ = std::move(position);
    wishes_ = true;
  }

  [[nodiscard]] save_signals tell() noexcept override {
    save_signals mine = result();
    mine.wishes = wishes_ ? 1 : 0;
    mine.busy = outstanding_ || working() ? 1 : 0;
    mine.keepers = 1;
    mine.session = mine_.rank == 0 ? static_cast<double>(session_) : 0;
    return mine;
  }
  [[nodiscard]] bool hear(save_signals const& all) noexcept override {
    heard_session_ = static_cast<std::uint64_t>(all.session);
    conclude(all);
    return all.wishes == mine_.ranks && all.busy == 0;  // each rank's position is one that it has just given
  }
  void cut() noexcept override {
    wishes_ = false;
    outstanding_ = true;
    ++cuts_;
    {
      const std::lock_guard lock(mutex_);
      phase_ = phase::copying;
    }
    save_job before = std::exchange(job_, {});
    job_.began = steady_seconds();
    char const* what = "the trainer's position could not be asked";
    try {
      job_.run = run_;
      if (position_) {
        job_.trainer = position_();
        job_.has_trainer = true;
      }
      what = "the frozen tensors could not be copied";
      copy_frozen(std::move(before));
    } catch (std::exception const& e) {
      job_.problem = std::string(what) + ": " + e.what();
    } catch (...) {
      job_.problem = what;
    }
  }
  void taken(state_view const& copy) noexcept override {
    job_.copy = copy;
    const std::uint64_t session = mine_.rank == 0 ? session_ : heard_session_;
    job_.session = number_of(session);
    job_.number = cuts_;
    const std::lock_guard lock(mutex_);
    others_ = false;
    purpose_.begin();
    problem_.clear();
    complete_ = 0;
    phase_ = phase::writing;
    changed_.notify_all();
  }
  void lost() noexcept override {
    {
      const std::lock_guard lock(mutex_);
      phase_ = phase::idle;
    }
    outstanding_ = false;
    wishes_ = true;
  }
  [[nodiscard]] save_outcome const* news() noexcept override { return std::exchange(news_, false) ? &outcome_ : nullptr; }
  [[nodiscard]] save_outcome const* newest() const noexcept override { return ended_ ? &outcome_ : nullptr; }
  [[nodiscard]] bool rest(function_view<save_signals(save_signals const&)> exchange) override {
    while (outstanding_) {  // on every rank, or on none
      (void)wait_a_moment();
      save_signals mine = result();
      mine.busy = working() ? 1 : 0;
      const save_signals all = exchange(mine);
      if (all.failed > 0 || all.busy == 0) conclude(all);
    }
    for (;;) {
      const save_signals all = exchange({.wishes = wishes_ ? 1.0 : 0.0, .busy = wait_a_moment() ? 1.0 : 0.0});
      if (all.busy != 0) continue;
      if (all.wishes > 0 && all.wishes < mine_.ranks) not_asked_by_all(all.wishes);
      return all.wishes == mine_.ranks;
    }
  }
  void not_heard(double keepers) noexcept override {
    if (wishes_) not_asked_by_all(keepers);
  }

 private:
  enum class phase { idle, copying, writing };
  static std::string number_of(std::uint64_t session) { return hex(session).substr(4); }

  // The trainer's thread.

  [[nodiscard]] bool working() noexcept {
    const std::lock_guard lock(mutex_);
    return phase_ != phase::idle;
  }
  /// What is frozen, on rank 0: of the save before, where it is the same.
  void copy_frozen(save_job before) {
    if (mine_.rank != 0 || mine_.layout.trainable_size() == mine_.layout.size()) return;
    const std::uint64_t values = mine_.frozen_values();
    job_.frozen = std::move(before.frozen);
    job_.frozen_values = before.frozen_values;
    if (values != 0 && values == job_.frozen_values) return;
    job_.frozen.clear();
    job_.frozen_values = 0;
    for (std::size_t k = 0; k < mine_.layout.tensor_count(); ++k) {
      if (mine_.layout.groups()[mine_.layout[k].group].frozen && mine_.layout[k].size != 0) mine_.frozen(k, job_.frozen);
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
    if (!outstanding_ || phase_ != phase::idle) return mine;
    if (!problem_.empty() && !others_) {
      mine.failed = 1;
      mine.culprits = mine_.rank + 1;
    }
    if (mine_.rank == 0) mine.complete = static_cast<double>(complete_);
    return mine;
  }
  /// All ranks have been told how a save has ended, if it has.
  void conclude(save_signals const& all) noexcept {
    if (!outstanding_ || (all.failed == 0 && all.complete == 0)) return;
    outstanding_ = false;
    const std::lock_guard lock(mutex_);
    if (all.failed > 0) purpose_.abandon();
    try {
      const std::uint64_t step = job_.copy.numbers->steps();
      path_ = all.failed > 0 ? job_.run : job_.run + "/" + name_of_step(step, static_cast<std::uint64_t>(all.complete));
      told_ = all.failed == 0 ? "" : !problem_.empty() ? problem_ : words_of(all);
      std::uint64_t bytes = 0;
      for (tensor_file const& each : job_.files(mine_)) bytes += each.bytes();
      outcome_ = {path_.c_str(), told_.c_str(), step, bytes, all.failed == 0 ? digest_ : 0, steady_seconds() - job_.began};
    } catch (...) {
      outcome_ = {.problem = "there is no memory to say more"};
    }
    ended_ = news_ = true;
  }

  /// What nobody is told of any more: that a save has failed, that one will never be.
  void tell_the_last() const noexcept {
    const auto tell = [this](std::string const& run, std::string const& problem) {
      mine_.on->note("acco: rank " + std::to_string(mine_.rank) + ": the last save into " + run + " failed: " + problem + ".");
    };
    constexpr char const* too_late = "the optimizer ended before a round could make it, and without finish(), which would have";
    try {
      if (outstanding_ && phase_ == phase::copying) tell(job_.run, too_late);
      if (outstanding_ && !problem_.empty() && !others_) tell(job_.run, problem_);
      if (wishes_) tell(run_, too_late);
    } catch (std::exception const&) {  // there is no memory to say it
    }
  }
  /// The training has come to rest, and some ranks wait for others that have not asked.
  void not_asked_by_all(double wishes) noexcept {
    wishes_ = false;
    position_ = nullptr;
    try {
      path_ = run_;
      told_ = "only " + text_of(wishes) + " of " + std::to_string(mine_.ranks) +
              " ranks had asked for it before finish(): every rank calls save, with the same folder";
      outcome_ = {.path = path_.c_str(), .problem = told_.c_str()};
    } catch (...) {
      outcome_ = {.problem = "only some ranks had asked for it"};
    }
    ended_ = news_ = true;
  }

  /// Why the others' parts are lost, as far as this rank can know.
  [[nodiscard]] std::string words_of(save_signals const& all) const {
    if (all.failed > 1) return text_of(all.failed) + " ranks could not write their parts; their own reports say why";
    const int rank = static_cast<int>(all.culprits) - 1;
    try {
      const part p = read_part(job_, rank);
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
  std::string run_, path_, told_;
  std::function<std::vector<std::byte>()> position_;
  bool wishes_ = false;
  bool outstanding_ = false;  // a save of which the ranks have not been told how it ended
  bool ended_ = false, news_ = false;
  std::uint64_t cuts_ = 0, heard_session_ = 0;
  save_outcome outcome_;
  save_job job_;  // the thread reads it while the phase is not idle, and nobody writes it then

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
