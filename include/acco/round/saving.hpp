// SPDX-License-Identifier: Apache-2.0
// Which rounds copy the state for whoever keeps it, and what numbers go with the copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/outside_rounds.hpp"
#include "acco/round/run_record.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/state_copies.hpp"
#include "acco/round/state_staging.hpp"
#include "acco/round/tasks.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Refers to what an engine owns; owns the room for a copy, and the keeper. The trainer's thread calls all members.
template <class Storage>
class saving {
 public:
  using tasks_type = round_tasks<Storage>;
  using schedule_type = schedule_in_use<Storage>;
  using staging = state_staging<Storage>;

  saving(tasks_type& tasks, schedule_type const& schedule, gradient_accumulator<Storage> const& accumulator,
         parameter_layout const& layout, options const& chosen, run_record const& record, partition shares, bool waits)
      : tasks_(tasks),
        schedule_(schedule),
        accumulator_(accumulator),
        layout_(layout),
        options_(chosen),
        record_(record),
        shares_(shares),
        waits_(waits) {}

  [[nodiscard]] checkpointer* keeper() const noexcept { return copies_.keeper(); }
  [[nodiscard]] save_outcome const* saved() const noexcept { return copies_.saved(); }
  /// Of the save that has ended since this was asked.
  [[nodiscard]] save_outcome const* news() noexcept { return copies_.news(); }
  /// Of the room, and of the frozen tensors that are copied with it.
  [[nodiscard]] std::size_t bytes() const noexcept {
    if (copies_.kept() == 0) return 0;
    std::size_t frozen = 0;
    for (std::size_t k = 0; k < layout_.tensor_count(); ++k) {
      update_group const& group = layout_.groups()[layout_[k].group];
      if (group.frozen && (group.per_rank || rank() == 0)) frozen += layout_[k].size;
    }
    return frozen * sizeof(typename Storage::parameter_type) + copies_.kept() * empty_staging().bytes();
  }
  /// Takes the keeper over, and makes the room.
  void attach(std::unique_ptr<checkpointer> keeper, error_place const& where) {
    schedule_.require_shares(where);
    if constexpr (stages<Storage>) {
      try {
        copies_.attach(std::move(keeper), [this] { return new_staging(); });
      } catch (std::bad_alloc const&) {
        constexpr double mebibyte = 1 << 20;
        throw memory_error(where,
                           text("the copy of this rank's state, ", static_cast<double>(empty_staging().bytes()) / mebibyte,
                                " MiB, could not be allocated"),
                           text("A save needs room for it; use more ranks"));
      }
    } else {
      throw usage_error(where, text("this storage cannot be saved: it lacks `stage` and `allocate_staging`"),
                        text("storage/host.hpp has both"));
    }
  }

  // For a level around this one.

  /// Its rounds are those of one worker among others.
  void serve_worker() noexcept { of_worker_ = true; }
  [[nodiscard]] bool of_worker() const noexcept { return of_worker_; }
  void cut_next(bool due) noexcept { copies_.cut_next(due); }
  /// A copy between two rounds, or of a round in flight whose tasks are done; blocks. Valid until the next one.
  /// `shows`: with the parameters in use.
  [[nodiscard]] state_view copy_now(bool in_flight, bool shows) {
    return copies_.copy_now([&](staging& to) {
      fill_now(to, shows && to.may_show(), in_flight && record_.flight.differences);
      if (in_flight) keep_round(to.numbers);
    });
  }
  [[nodiscard]] staging const& room() const noexcept { return copies_.room(); }

  // A round: `launch`, when its gradients leave; `enqueue`, behind its stages; `end`, when all its tasks are done.

  /// What this rank tells the others about saving.
  [[nodiscard]] save_signals launch(bool commits) noexcept {
    copies_.start(commits);
    return copies_.tell();
  }
  /// The round copies what it will leave, if it is the one.
  void enqueue(round_end<Storage>& wanted) {
    flight_facts const& flight = record_.flight;
    copies_.enqueue(wanted, [&](staging& to) {
      to.clear();
      tasks_.add_to(to, !waits_, flight.differences || !shows_committed(flight.plan));
    });
  }
  /// All tasks of the round are done; its parameters are not yet in use. The copies that it was asked to make are
  /// complete.
  void end() {
    round_numbers const& n = tasks_.numbers();
    copies_.end(n.nothing || n.ends() || ends_run(record_.run, n, options_.skip_limit, options_.empty_limit),
                [this](run_numbers& numbers) { keep_round(numbers); });
  }
  void hear(save_signals const& all) noexcept { copies_.hear(all, tasks_.backend().size()); }
  /// Every rank comes here, at rest, after rounds that all have told in.
  void rest() {
    copies_.rest(
        tasks_.numbers().all.saving.keepers, tasks_.backend().size(),
        [this](std::span<double> numbers) { sum_over_ranks(tasks_, numbers); },
        [this](staging& to) { fill_now(to, false, false); });
  }
  /// The numbers of the state, between rounds.
  void keep(run_numbers& numbers) const {
    record_.keep(numbers);
    tasks_.norms().keep_updates(tasks_.state(), layout_, numbers.updates, record_.run.steps, false);
    numbers.pace = schedule_.save_state();
  }

 private:
  [[nodiscard]] int rank() const noexcept { return tasks_.backend().rank(); }
  void fill_now(staging& to, bool shows, bool arrives) {
    tasks_.add_to(to, shows, arrives);
    tasks_.queue().after_computation();
    to.enqueue(tasks_.queue());
    tasks_.queue().wait();
    keep(to.numbers);
  }
  /// The same with a round whose tasks are done, and which has not landed.
  void keep_round(run_numbers& numbers) const {
    flight_facts const& flight = record_.flight;
    keep(numbers);
    numbers.completed = true;
    tasks_.keep(numbers.last);
    tasks_.norms().keep_updates(tasks_.state(), layout_, numbers.updates, record_.run.steps,
                                numbers.last.apply && !flight.counted);
    numbers.last.rate = flight.rate;
    numbers.last.differences = flight.differences;
    numbers.last.digested = flight.digests_state;
    numbers.micro_batches = flight.micro_batches;
    numbers.bytes_sent = tasks_.bytes().all;
  }
  [[nodiscard]] staging empty_staging() const {
    const bool otherwise = schedule_.commits_otherwise();
    return {tasks_.arrays().shape(), shares_, rank(), !waits_ || (of_worker_ && otherwise), otherwise};
  }
  [[nodiscard]] std::unique_ptr<staging> new_staging() const {
    auto made = std::make_unique<staging>(empty_staging());
    const std::size_t most_pieces = 2 * tasks_.arrays().shape().owned() + shares_.buckets() + accumulator_.most_ranges();
    made->allocate(tasks_.storage(), most_pieces, std::max(tasks_.norms().regions().size(), layout_.tensor_count()));
    return made;
  }

  tasks_type& tasks_;
  schedule_type const& schedule_;
  gradient_accumulator<Storage> const& accumulator_;
  parameter_layout const& layout_;
  options const& options_;
  run_record const& record_;
  partition shares_;
  bool waits_, of_worker_ = false;
  state_copies<Storage> copies_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
