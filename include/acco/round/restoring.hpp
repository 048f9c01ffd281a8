// SPDX-License-Identifier: Apache-2.0
// How a state that was saved becomes an engine's own again.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/run_record.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/state_transfer.hpp"
#include "acco/round/step_loop.hpp"
#include "acco/round/tasks.hpp"
#include "acco/schedule/schedule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Refers to what an engine owns; owns what has been read, until it is resumed. The trainer's thread calls all members.
template <class Storage>
class restoring {
 public:
  using tasks_type = round_tasks<Storage>;
  using loop_type = step_loop<Storage>;

  restoring(tasks_type& tasks, schedule_in_use<Storage>& schedule, gradient_accumulator<Storage>& accumulator,
            state_transfer<Storage>& transfer, loop_type& loop, parameter_layout const& layout, run_record& record, bool waits)
      : tasks_(tasks),
        schedule_(schedule),
        accumulator_(accumulator),
        transfer_(transfer),
        loop_(loop),
        layout_(layout),
        record_(record),
        waits_(waits) {}

  void load(state_source& source) {
    loaded_.reset();  // of a candidate that was refused
    loaded_ = transfer_.load(source, waits_, loop_.serves_worker());
  }
  /// The numbers and arrays that were loaded are this run's now. Collective; blocks.
  void resume(resumption how) {
    const std::unique_ptr<loaded_state<Storage>> from = std::move(loaded_);
    run_numbers const& numbers = from->numbers;
    if (!from->values.empty()) transfer_.take_from(from->values, false);
    record_.restore(numbers);
    loop_.rests();
    if (how == resumption::exact) schedule_.load_state(numbers.pace);
    tasks_.norms().restore_updates(tasks_.state(), layout_, numbers.updates, numbers.steps());
    if (how == resumption::exact && numbers.completed) {
      go_on(*from);
    } else {
      run_counters& run = record_.run;
      run.steps = numbers.steps();
      run.samples = numbers.samples();
      run.step_weight = run.step_loss_sum = 0;
      while (!schedule_.starts(run.round)) ++run.round;
      if (how == resumption::exact && from->shown != nullptr) {
        transfer_.show_shares(from->shown);
        loop_.shows(visible::decoded_commit);
      } else {
        transfer_.show_masters();
        loop_.shows(visible::masters);
      }
    }
    bytes_sent_ = numbers.bytes_sent;
  }
  /// At rest: the next update is the one behind so many, of every tensor.
  void begin_after(std::uint64_t updates) {
    record_.run.steps = updates;
    tasks_.norms().restore_updates(tasks_.state(), layout_, {}, updates);
  }
  /// After whatever the restore itself has sent: the uninterrupted round did not send that.
  void forget_sent() noexcept {
    if (loop_.in_flight()) tasks_.has_sent(bytes_sent_);
  }

 private:
  /// The round that the state was copied in is in flight again, all its tasks done.
  void go_on(loaded_state<Storage>& from) {
    run_numbers const& numbers = from.numbers;
    const round_plan plan = schedule_.plan_of(record_.run.round, loop_.place());
    if (!waits_ && from.shown == nullptr) {
      throw usage_error(loop_.place(), text("the state lacks the parameters in use, which its masters do not give"),
                        text("Its manifest was changed: take another checkpoint"));
    }
    if (from.shown != nullptr) transfer_.show_shares(from.shown);
    auto flight = accumulator_.arrive();
    accumulator_.drop(tasks_.queue());
    tasks_.queue().after_computation();
    transfer_.arrive(from, flight.parameters());
    tasks_.go_on(std::move(flight), plan, numbers);
    tasks_.queue().before_computation();
    loop_.goes_on({.plan = plan,
                   .rate = numbers.last.rate,
                   .micro_batches = static_cast<std::size_t>(numbers.micro_batches),
                   .differences = numbers.last.differences,
                   .digests_state = numbers.last.digested,
                   .counted = numbers.last.apply});
  }

  tasks_type& tasks_;
  schedule_in_use<Storage>& schedule_;
  gradient_accumulator<Storage>& accumulator_;
  state_transfer<Storage>& transfer_;
  loop_type& loop_;
  parameter_layout const& layout_;
  run_record& record_;
  bool waits_;
  std::unique_ptr<loaded_state<Storage>> loaded_;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
