// SPDX-License-Identifier: Apache-2.0
// The trainer's side of acco as a plain type: a trainer is compiled once, holds its optimizer as a member, and chooses
// schedule, rule, storage, backend and encodings while it runs.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/finite.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/worker_changes.hpp"

namespace ACCO_NAMESPACE {

/// What `any_optimizer` does with files: defined by acco/checkpoint.hpp, which whoever saves or restores includes.
template <class Optimizer>
struct checkpoints_need_acco_checkpoint_hpp;

/// A type of no values, where an overload is not there.
template <class T>
struct no_such {
  no_such() = delete;
};
/// `T`, unless it is `Other`.
template <class T, class Other>
using unless_same = std::conditional_t<std::is_same_v<T, Other>, no_such<T>, T>;

/// Where a trainer has nothing of its own to be kept with the state.
struct nothing_of_the_trainer {};

/// What a micro-batch brings beside its gradients.
struct micro_batch_sums {
  double weight = 0;    ///< samples (or tokens, or 1) of which the gradients are the sum
  double loss_sum = 0;  ///< sum of their losses
};

/// An optimizer on one rank, whatever its schedule, rule, storage and backend: any `acco::optimizer` (optimizer.hpp)
/// whose parameters are `Parameter` and whose gradients are `Gradient` is one, and can be moved into one. Costs one
/// indirect call a member (docs/performance.md has the nanoseconds), and its users nothing else: this header includes
/// nothing of the engine.
///
///   acco::any_optimizer<float> choose(std::string const& name, auto const& world, std::size_t count) {  // make.hpp
///     return acco::make(name, acco::fixed_pace{.first = 3, .second = 1}, acco::adamw{}, acco::host_storage<float>{}, world,
///                       acco::parameter_layout(count));
///   }
///   void train(acco::any_optimizer<float>& training);   // in another file; takes an acco::optimizer too
///
/// It is a handle already: hold it by value, and do not delete an optimizer through a pointer to it. What is assigned
/// to it takes the place of what it held.
///
/// One thread at a time calls members that change anything: two at once, a call from inside another (a learning rate
/// that asks the training), and calls in a forked process are refused by a `usage_error`; a forked process only lets go
/// of its copy. Every rank makes the same calls. An exception thrown by `initialize`, `accumulated`, `finish` or
/// another communicating member ends the training: the other ranks are told at once, later calls throw it again, and
/// `parameters()` still holds what it held. After an error that all ranks throw alike (`non_finite_error`,
/// `spike_error`, `corruption_error`), `gather_committed` still gives the committed weights; another optimizer restores
/// a checkpoint and goes on. One that is empty (default constructed, or moved from) throws `usage_error` from every
/// member.
template <class Parameter, class Gradient = Parameter>
class any_optimizer : public worker_changes<Parameter, Gradient> {
  using handle = worker_changes<Parameter, Gradient>;
  using handle::claim_arrays;
  using handle::claim_tensors;
  using handle::engine;
  using handle::engine_;
  using handle::fail_apart;
  using handle::fail_use;
  using handle::failure_;
  using handle::guarded;
  using handle::initialize_masters;
  using handle::require_average;
  using handle::require_initialized;
  using handle::require_rest;
  using handle::require_room;
  using handle::require_running;
  using handle::state_;
  using typename handle::entry;
  using typename handle::state;

  // What can be asked of it, and workers that come and go, are members of its bases.

 public:
  using handle::layout;
  using parameter_type = Parameter;
  using gradient_type = Gradient;

  /// Empty.
  any_optimizer() noexcept = default;
  any_optimizer(any_optimizer&&) noexcept = default;
  any_optimizer& operator=(any_optimizer&&) noexcept = default;
  /// Leaves. Call `finish` first to leave in peace: otherwise whoever waits for this rank gets an error that names it.
  ~any_optimizer() = default;

  /// Whether it is one at all.
  [[nodiscard]] explicit operator bool() const noexcept { return engine_ != nullptr; }

  /// Compares all ranks' construction, allocates everything, and gives every rank the values of rank 0. `initial` has
  /// `layout().size()` elements on every rank. Collective; blocks. Throws `usage_error` (size, called twice),
  /// `mismatch_error` (the ranks differ), `deadline_error` (a rank is missing).
  void initialize(std::span<Parameter const> initial) {
    if (failure_) std::rethrow_exception(failure_);
    if (state_ == state::running) fail_use(text("initialize was called twice"), "Construct a new optimizer to start again");
    if (initial.size() != layout().size()) {
      throw usage_error(engine_->place(),
                        text("initialize got ", initial.size(), " parameters, the layout has ", layout().size()),
                        text("Pass one value for every parameter, frozen ones included"));
    }
    guarded([&] { engine_->initialize(initial); });
    state_ = state::running;
  }

  /// The same from master weights, of more bits than the parameters have: rank 0's `initial`, in the order of the
  /// layout, become the masters, and, converted, every rank's parameters. Where the masters are of the other type, they
  /// are converted, too.
  void initialize(std::span<unless_same<float, Parameter> const> initial) { initialize_masters(initial); }
  void initialize(std::span<unless_same<double, Parameter> const> initial) { initialize_masters(initial); }

  /// The same from an `acco::model_file` (acco/checkpoint.hpp), which every rank opens, and of which rank 0 reads the
  /// values: each of the layout's tensors by its name, of the same shape, in F16, BF16, F32 or F64. Returns the names
  /// of the file's other tensors. Throws `checkpoint_error` where a tensor is missing, or of another shape or type, or
  /// cannot be read.
  template <class Model>
    requires requires(Model const& model) { model.find(std::string_view()); }
  auto initialize(Model const& model) {
    if (failure_) std::rethrow_exception(failure_);
    if (state_ == state::running) fail_use(text("initialize was called twice"), "Construct a new optimizer to start again");
    auto others = guarded([&] { return checkpoints_need_acco_checkpoint_hpp<any_optimizer>::initialize(engine(), model); });
    state_ = state::running;
    return others;
  }

  /// `initialize(parameters)`, and works in the trainer's own arrays from then on, `layout().size()` elements each, on
  /// every rank: `parameters()` and `gradients()` are these arrays, and never move. The trainer keeps them until the
  /// optimizer has ended, reads the one, adds to the other, and clears neither; what it writes into its parameters is
  /// lost (`set_parameters`). Afterwards they hold what `parameters()` held. Costs a third array and a copy of both
  /// each round, like `stable_addresses`. Arrays are of the storage's memory: host, or device. Nobody else in the
  /// process may adopt them while this one trains: after `finish`, until the next micro-batch, and after an error
  /// others may. Throws `usage_error` on memory that another optimizer works in (a model that ranks share), and what
  /// `initialize` throws.
  void adopt(std::span<Parameter> parameters, std::span<Gradient> gradients) {
    claim_arrays(parameters, gradients);
    guarded([&] { engine_->adopt(parameters, gradients, true); });
    state_ = state::running;
  }
  /// The same where each tensor lies at an address of its own, frozen ones perhaps in other optimizers' layouts, too:
  /// `tensors` has one entry for each of the layout's, in its order. `parameters()` and `gradients()` do not exist
  /// then; `tensor(name)` does. Costs a third array under every schedule.
  void adopt(std::span<tensor_memory<Parameter, Gradient> const> tensors) {
    claim_tensors(tensors);
    guarded([&] { engine_->adopt(tensors, true); });
    state_ = state::running;
  }
  /// Both, beginning from anything that `initialize` takes, master weights or a model file, say: what the arrays hold
  /// is overwritten. Returns and throws what `initialize` does, too.
  template <class Initial>
    requires requires(any_optimizer& training, Initial const& initial) { training.initialize(initial); }
  auto adopt(std::span<Parameter> parameters, std::span<Gradient> gradients, Initial const& initial) {
    if constexpr (requires { initial.size(); }) require_room(std::span(initial), "adopt");
    claim_arrays(parameters, gradients);
    guarded([&] { engine_->adopt(parameters, gradients, false); });
    return initialize(initial);
  }
  template <class Initial>
    requires requires(any_optimizer& training, Initial const& initial) { training.initialize(initial); }
  auto adopt(std::span<tensor_memory<Parameter, Gradient> const> tensors, Initial const& initial) {
    if constexpr (requires { initial.size(); }) require_room(std::span(initial), "adopt");
    claim_tensors(tensors);
    guarded([&] { engine_->adopt(tensors, false); });
    return initialize(initial);
  }

  /// Replaces the parameters, by rank 0's values on every rank, and keeps the rest of the optimizer's state: for what a
  /// trainer does to weights itself (a projection, a reset, averaged weights). Between `initialize` or `finish` and the
  /// next micro-batch: later a round would bring back what it was made of. `values` has `layout().size()` elements; it
  /// may be `parameters()`.
  /// A weight that is given as it is shown keeps its master, all digits of it.
  /// Collective; blocks. Throws `usage_error` (size, or not at rest), after which the training goes on.
  void set_parameters(std::span<Parameter const> values) {
    require_rest();
    if (values.size() != layout().size()) {
      throw usage_error(engine_->place(),
                        text("set_parameters got ", values.size(), " parameters, the layout has ", layout().size()),
                        text("Pass one value for every parameter, frozen ones included"));
    }
    guarded([&] { engine_->set_parameters(values); });
  }
  /// The same of one tensor, from host memory. Throws like it, and where no tensor has that name. The others are handed
  /// over as they are, rank 0's frozen ones too: nobody else may write to these meanwhile.
  void set_parameters(std::string_view name, std::span<Parameter const> values) {
    require_rest();
    auto const edited = layout()[name];
    if (values.size() != edited.size) {
      throw usage_error(engine_->place(),
                        text("set_parameters got ", values.size(), " values for tensor '", name, "', which has ", edited.size),
                        text("Pass one value for every element"));
    }
    std::vector<Parameter> all(layout().size());
    for (std::size_t k = 0; k < layout().tensor_count(); ++k)
      engine_->copy_parameters(k, reinterpret_cast<std::byte*>(all.data() + layout()[k].offset));
    for (std::size_t i = 0; i < values.size(); ++i) all[edited.offset + i] = values[i];
    guarded([&] { engine_->set_parameters(std::span<Parameter const>(all)); });
  }

  /// The parameters to compute gradients at. Valid until the next report, `finish`, or for ever with
  /// `stable_addresses`.
  [[nodiscard]] std::span<Parameter const> parameters() const {
    require_initialized("parameters");
    auto const whole = engine_->parameters();
    if (whole.size() != layout().size()) fail_apart("parameters");
    return whole;
  }
  /// Where the gradient sums of micro-batches are to be added. Valid like `parameters()`.
  [[nodiscard]] std::span<Gradient> gradients() const {
    require_initialized("gradients");
    auto const whole = engine_->gradients();
    if (whole.size() != layout().size()) fail_apart("gradients");
    return whole;
  }

  /// The part of a tensor in both. Valid like them; no gradients where a frozen tensor was adopted without. Throws
  /// `usage_error` when the layout has no tensor of that name.
  [[nodiscard]] tensor_spans<Parameter, Gradient> tensor(std::string_view name) const {
    require_initialized("tensor");
    return engine_->tensor(layout().index_of(name));
  }

  /// Ends a micro-batch of `weight` samples (or tokens, or 1); 0 is allowed. `loss_sum`, optional, is summed over ranks
  /// into the report's `mean_loss`, and decides nothing: it may be NaN. Throws `usage_error` on a weight that is
  /// negative, infinite or NaN. Returns a report when a round has ended: then the spans have moved. Blocks only where
  /// the pace demands it.
  std::optional<round_report> accumulated(double weight, double loss_sum = 0) {
    require_running("accumulated");
    if (!(is_finite(weight) && weight >= 0)) {
      throw usage_error(engine_->place(), text("accumulated got a weight of ", weight),
                        text("Pass the number of samples of the micro-batch, 0 or more"));
    }
    return guarded([&] { return engine_->accumulated(weight, loss_sum); });
  }

  /// One step of the training: calls `micro_batch(parameters(), gradients())`, or `micro_batch()`, and `accumulated`,
  /// until a step is committed, and returns the report of the round that did so; `step_loss` is the loss of that whole
  /// step. What the callable returns is a `micro_batch_sums`, or the micro-batch's weight alone, a whole number (a loss
  /// is no weight: what returns a float does not compile); it adds gradients as `gradients()` says. Between two
  /// steps stand evaluation and saving: at a report with `committed`, which all but those of weight_prediction are.
  ///
  /// How many micro-batches a call runs is the pace's and the schedule's business. The first call runs those of one
  /// part more than later ones where rounds are hidden: a step's round is in flight while the next one's first part is
  /// computed. What the callable throws leaves step() before `accumulated` is called.
  template <class MicroBatch>
  round_report step(MicroBatch&& micro_batch) {
    constexpr bool takes_spans = std::is_invocable_v<MicroBatch&, std::span<Parameter const>, std::span<Gradient>>;
    if constexpr (!takes_spans && !std::is_invocable_v<MicroBatch&>) {
      static_assert(takes_spans,
                    "acco: step() calls micro_batch(std::span<Parameter const> parameters, std::span<Gradient> gradients), or "
                    "micro_batch(): what it was given takes neither");
    } else {
      const auto call = [&]() -> decltype(auto) {
        if constexpr (takes_spans) {
          return micro_batch(parameters(), gradients());
        } else {
          return micro_batch();
        }
      };
      using brought = std::remove_cvref_t<decltype(call())>;
      if constexpr (std::is_convertible_v<decltype(call()), micro_batch_sums> || weighs<brought>) {
        for (;;) {
          require_running("step");
          const micro_batch_sums sums = sums_of(call());
          if (auto const report = accumulated(sums.weight, sums.loss_sum); report && commits(report->plan)) return *report;
        }
      } else {
        static_assert(
            weighs<brought>,
            "acco: a micro-batch of step() returns acco::micro_batch_sums{.weight = samples, .loss_sum = sum_of_losses}, "
            "or its weight alone, a whole number; a floating-point number might be a loss");
      }
    }
  }

  /// Ends the training, or a part of it: commits the steps that are complete, shows committed weights on every rank,
  /// and leaves the accumulator empty; the training may then go on. A step of which no rank has all micro-batches is
  /// dropped, or committed (`unfinished`; one rank that asks for it suffices). So every schedule makes as many updates
  /// of the same micro-batches as `synchronous`. Ranks may call it at different times: one that has no more data takes
  /// part in the others' rounds, and what it has counts in them. Collective; blocks.
  void finish(unfinished rest = unfinished::drop) {
    require_running("finish");
    guarded([&] { engine_->finish(rest); });
  }

  /// Gives a backend that makes progress in the caller's thread the chance to do so; costs nothing elsewhere.
  void poll() {
    require_running("poll");
    guarded([&] { engine_->poll(); });
  }

  // Checkpoints: include acco/checkpoint.hpp, and link acco::checkpoint. docs/checkpoints.md has the guarantees.

  /// Writes the committed weights as the optimizer keeps them, or their averages, to one safetensors file: in the
  /// master's type, one tensor for each of the layout's, frozen ones included. The file appears whole, or not at all.
  /// Collective, like `gather_masters`; rank 0 writes, its `path` counts. Throws `checkpoint_error`, on every rank,
  /// where the file cannot be written, after which the training goes on.
  void save_model(std::string_view path, weights which = weights::committed) {
    if (state_ != state::failed || !engine().in_step()) require_running("save_model");
    require_average(which, "save_model");
    using checkpoints = checkpoints_need_acco_checkpoint_hpp<any_optimizer>;
    auto const problem = guarded([&] { return checkpoints::save_model(*engine_, path, which); });
    if (!problem.empty())
      throw checkpoint_error(engine_->place(), text("save_model: ", std::string_view(problem)), text("The training may go on"));
  }

  /// Asks for a checkpoint in the folder `run`, and returns at once. Every rank calls it, at any time, with the same
  /// folder. At the next commit after all have been heard, the same on every rank, the state is copied by the round
  /// itself, and a thread writes it: whole, or not at all. A report tells the end (`round_report::saved`): a save that
  /// fails does not stop the training. Several folders may be asked for, in the same order on every rank: each gets its
  /// checkpoint, and those of one cut share their tensor files where the file system has hard links. While some are
  /// being written the next ones wait; `finish` waits for all. Behind `finish`, when nothing has been accumulated
  /// since, it is collective, blocks as `finish` does, and `saved()` has the end: a rank that calls it alone takes part
  /// in the others' rounds until they finish. `position`, optional, is called on the trainer's thread, inside
  /// `accumulated` or `finish`, at the cut: what it returns (a trivially copyable value, or a contiguous range of such
  /// values) is kept with this rank's part. What it uses must live until then. Asked again for one folder before the
  /// cut, the newest `position` counts. Throws `usage_error` where the storage cannot be saved, `memory_error` where
  /// the copy finds no room; behind `finish` what that throws.
  template <class Position = nothing_of_the_trainer>
  void save(std::string_view run, Position&& position = {}) {
    require_running("save");
    {
      const entry inside(*this);
      checkpoints_need_acco_checkpoint_hpp<any_optimizer>::save(*this, run, std::forward<Position>(position));
    }
    if (engine_->finished()) finish();  // no round may ever come to hear of it
  }
  /// How the save that ended last has ended, or null: also of one that `finish` has waited for. Valid until the next
  /// one ends.
  [[nodiscard]] save_outcome const* saved() const { return engine().saved(); }
  /// Goes on from a checkpoint: from this training's newest whole one in the folder of a run, or from the one whose
  /// folder is given. Instead of `initialize`, or after it, at rest. Collective; blocks. Returns what the trainer needs
  /// to go on (`restored`, acco/checkpoint.hpp): its own position, above all. Throws `checkpoint_error` where there is
  /// none that is whole (`has_checkpoints` tells before), where it is of a training that was constructed otherwise (the
  /// line that differs is named), or where several trainings' are there and any may be meant.
  template <class Changes = nothing_of_the_trainer>
  auto restore(std::string_view from, Changes const& changes = {}) {
    if (failure_) std::rethrow_exception(failure_);
    if (state_ == state::running && !engine_->at_rest()) {
      fail_use(text("restore was called while a step is under way"), "Call it instead of initialize, or after finish");
    }
    return guarded([&] {
      if (state_ == state::constructed) engine().begin();
      auto found = checkpoints_need_acco_checkpoint_hpp<any_optimizer>::restore(*engine_, from, changes);
      state_ = state::running;
      return found;
    });
  }

 protected:
  /// Takes the engine over.
  explicit any_optimizer(training_engine<Parameter, Gradient>* made) noexcept : handle(made) {}

 private:
  friend checkpoints_need_acco_checkpoint_hpp<any_optimizer>;

  static micro_batch_sums sums_of(micro_batch_sums const& sums) noexcept { return sums; }
  template <class Number>
  static constexpr bool weighs = std::is_integral_v<Number> && !std::is_same_v<Number, bool>;
  template <class Weight>
    requires weighs<Weight>
  static micro_batch_sums sums_of(Weight weight) noexcept {
    return {.weight = static_cast<double>(weight)};
  }
};

}  // namespace ACCO_NAMESPACE
