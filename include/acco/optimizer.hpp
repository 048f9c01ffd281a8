// SPDX-License-Identifier: Apache-2.0
// The trainer's side of acco: three calls attach a training loop to a sharded optimizer whose communication is hidden.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/schedule/round.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/storage/storage.hpp"

namespace ACCO_NAMESPACE {

/// A sharded optimizer on one rank. Every rank constructs one with the same arguments and makes the same calls.
///
///   acco::optimizer training{acco::two_phase{}, acco::adamw{.learning_rate = 1e-3}, acco::host_storage<float>{}, world,
///   parameter_count}; training.initialize(initial); while (training.samples() < budget) {
///     add_gradients(batch, training.parameters(), training.gradients());   // ADD the gradient SUM of the batch
///     if (auto report = training.accumulated(batch_size)) { ... }           // then ask for the spans again
///   }
///   training.finish();
///
/// One thread calls all members. Construction neither allocates buffers nor communicates. An exception thrown by `accumulated`,
/// `finish` or another communicating member ends the training: later calls throw it again; `parameters()` still holds what it
/// held.
template <class Schedule, class Rule, class Storage, class Backend>
class optimizer {
  static_assert(check_schedule<Schedule>());
  static_assert(check_update_rule<Rule>());
  static_assert(check_storage<Storage>());
  static_assert(
      !measuring_pace<decltype(Schedule::pace)> || requires { Schedule::splits_steps; },
      "acco: auto_pace splits the steps of schedules with two rounds: use it with two_phase");
  static_assert(!sends_encoded_gradients<Schedule> || has_all_to_all<Backend, typename Storage::queue>,
                "acco: gradients are to travel encoded: the backend lacks `all_to_all(queue, span<std::byte const>, "
                "span<std::byte>)`");
  static_assert(check_collective_backend<Backend, typename Storage::queue, typename Storage::gradient_type,
                                         reduced_by<Backend, typename Storage::gradient_type, typename Storage::sum_type>,
                                         typename Storage::parameter_type>());

 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;

  /// Throws `usage_error` when the layout has no trainable element, an option is out of range, or the pace ends no round.
  optimizer(Schedule schedule, Rule rule, Storage storage, Backend backend, parameter_layout layout, options chosen = {}) {
    chosen.check();
    if (layout.trainable_size() == 0) {
      throw usage_error({.rank = backend.rank()},
                        text("the layout has ", layout.size(), " parameters and none of them is trainable"),
                        text("Give a positive parameter count, or a layout with a group that is not frozen"));
    }
    for (const step_part part : {step_part::first, step_part::second}) {
      if (schedule.pace.minimum(part) == 0 || schedule.pace.maximum(part) < schedule.pace.minimum(part)) {
        throw usage_error(
            {.rank = backend.rank()},
            text("the pace asks for ", schedule.pace.minimum(part), " to ", schedule.pace.maximum(part),
                 " micro-batches a round"),
            text("A round needs at least one micro-batch, and at_most not below at_least; auto_pace splits two or more"));
      }
    }
    engine_ = std::make_unique<engine>(std::move(schedule), std::move(rule), std::move(storage), std::move(backend),
                                       std::move(layout), std::move(chosen));
  }
  optimizer(Schedule schedule, Rule rule, Storage storage, Backend backend, std::size_t parameter_count, options chosen = {})
      : optimizer(std::move(schedule), std::move(rule), std::move(storage), std::move(backend), parameter_layout(parameter_count),
                  std::move(chosen)) {}

  optimizer(optimizer&&) noexcept = default;
  optimizer& operator=(optimizer&&) noexcept = default;
  /// Leaves the world: if a round is in flight, the other ranks get an error that names this rank. Call `finish` first to leave
  /// in peace.
  ~optimizer() = default;

  /// Compares all ranks' construction, allocates everything, and gives every rank the values of rank 0. `initial` has
  /// `layout().size()` elements on every rank. Collective; blocks. Throws `usage_error` (size, called twice), `mismatch_error`
  /// (the ranks differ), `deadline_error` (a rank is missing).
  void initialize(std::span<parameter_type const> initial) {
    if (state_ == state::running) fail_use("initialize was called twice", "Construct a new optimizer to start again");
    if (initial.size() != layout().size()) {
      throw usage_error(engine_->place(),
                        text("initialize got ", initial.size(), " parameters, the layout has ", layout().size()),
                        text("Pass one value for every parameter, frozen ones included"));
    }
    guarded([&] { engine_->initialize(initial); });
    state_ = state::running;
  }

  /// The parameters to compute gradients at. Valid until the next report, `finish`, or for ever with `stable_addresses`.
  [[nodiscard]] std::span<parameter_type const> parameters() const {
    if (state_ == state::constructed) fail_use("parameters() was called before initialize", "Call initialize first");
    return engine_->parameters();
  }
  /// Where the gradient sums of micro-batches are to be added. Valid like `parameters()`.
  [[nodiscard]] std::span<gradient_type> gradients() const {
    if (state_ == state::constructed) fail_use("gradients() was called before initialize", "Call initialize first");
    return engine_->gradients();
  }

  /// Ends a micro-batch of `weight` samples (or tokens, or 1); 0 is allowed. `loss_sum`, optional, is summed over ranks into the
  /// report's `mean_loss`. Returns a report when a round has ended: then the spans have moved. Blocks only where the pace demands
  /// it.
  std::optional<round_report> accumulated(double weight, double loss_sum = 0) {
    demand_running("accumulated");
    if (!(weight >= 0) || std::isinf(weight)) {
      throw usage_error(engine_->place(), text("accumulated got a weight of ", weight),
                        text("Pass the number of samples of the micro-batch, 0 or more"));
    }
    return guarded([&] { return engine_->accumulated(weight, loss_sum); });
  }

  /// Commits what is left on any rank and shows committed weights on every rank; the training may then go on. Ranks may call it
  /// at different times: one that has no more data takes part in the others' rounds. Collective; blocks.
  void finish() {
    demand_running("finish");
    guarded([&] { engine_->finish(); });
  }

  /// Writes the weights committed so far, the round in flight included, to `out` (`layout().size()` elements). Collective;
  /// blocks.
  void gather_committed(std::span<parameter_type> out) {
    demand_running("gather_committed");
    if (out.size() != layout().size()) {
      throw usage_error(engine_->place(),
                        text("gather_committed got room for ", out.size(), " parameters, the layout has ", layout().size()),
                        text("Pass room for every parameter"));
    }
    guarded([&] { engine_->gather_committed(out); });
  }

  /// Replaces the numbers by their sums over all ranks, e.g. a validation loss. Collective; blocks until the round in flight is
  /// done.
  void sum_over_ranks(std::span<double> numbers) {
    demand_running("sum_over_ranks");
    guarded([&] { engine_->sum_over_ranks(numbers); });
  }

  /// Gives a backend that makes progress in the caller's thread the chance to do so; costs nothing elsewhere.
  void poll() {
    demand_running("poll");
    guarded([&] { engine_->poll(); });
  }

  /// Weight committed so far, over all ranks; the same on every rank.
  [[nodiscard]] double samples() const noexcept { return engine_->samples(); }
  /// Updates committed so far.
  [[nodiscard]] std::uint64_t steps() const noexcept { return engine_->steps(); }
  /// Sums over this rank's rounds, those inside `finish` included.
  [[nodiscard]] round_totals const& totals() const noexcept { return engine_->totals(); }
  /// This rank's buffers in bytes: known before `initialize`, equal to what it allocates.
  [[nodiscard]] memory_table memory() const noexcept { return engine_->memory(); }
  [[nodiscard]] parameter_layout const& layout() const noexcept { return engine_->layout(); }

  /// 64-bit hash of this rank's masters and slots; a prediction leaves it unchanged. Waits for the round in flight.
  [[nodiscard]] std::uint64_t state_digest() {
    demand_running("state_digest");
    return guarded([&] { return engine_->state_digest(); });
  }

 private:
  using engine = round_engine<Schedule, Rule, Storage, Backend>;
  enum class state { constructed, running, failed };

  [[noreturn]] void fail_use(char const* what, char const* advice) const {
    throw usage_error(engine_->place(), text(what), text(advice));
  }
  void demand_running(char const* what) const {
    if (state_ == state::running) return;
    if (failure_) std::rethrow_exception(failure_);
    throw usage_error(engine_->place(), text(what, "() was called before initialize"), text("Call initialize first"));
  }
  /// Runs a member that communicates; what it throws ends the training.
  template <class Action>
  decltype(auto) guarded(Action&& action) {
    try {
      return action();
    } catch (...) {
      failure_ = std::current_exception();
      if (state_ == state::running) state_ = state::failed;
      throw;
    }
  }

  std::unique_ptr<engine> engine_;
  state state_ = state::constructed;
  std::exception_ptr failure_;
};

template <class Schedule, class Rule, class Storage, class Backend, class... Rest>
optimizer(Schedule, Rule, Storage, Backend, Rest...) -> optimizer<Schedule, Rule, Storage, Backend>;

}  // namespace ACCO_NAMESPACE
