// SPDX-License-Identifier: Apache-2.0
// The engine: what the trainer does becomes parts of steps and rounds. It branches on the plan; the schedule's type is behind an
// interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/layout/placement.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/adopted_memory.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/between_rounds.hpp"
#include "acco/round/construction.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/habits.hpp"
#include "acco/round/loss_scaler.hpp"
#include "acco/round/membership.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/spike_watch.hpp"
#include "acco/round/state_copies.hpp"
#include "acco/round/state_copy.hpp"
#include "acco/round/state_keeper.hpp"
#include "acco/round/state_staging.hpp"
#include "acco/round/state_transfer.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/round/verdicts.hpp"
#include "acco/round/works.hpp"
#include "acco/round/world_digest.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/storage/host_clock.hpp"
#include "acco/storage/scoped_buffer.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_ENGINE_NAMESPACE {

/// A template argument of whoever makes engines outside of this namespace, so that files with and without NDEBUG have functions
/// of their own for it (version.hpp).
struct made_here {};

/// One rank's rounds. At most one is in flight; `works_` owns what belongs to it. All members are called by the trainer's thread.
template <class Rule, class Storage, class Backend>
class round_engine final : public training_engine<typename Storage::parameter_type, typename Storage::gradient_type> {
 public:
  using parameter_type = typename Storage::parameter_type;
  using gradient_type = typename Storage::gradient_type;

  using works_type = round_works<Rule, Storage, Backend>;

  /// Throws `usage_error` when the layout has no trainable element, an option is out of range, or the pace ends no round.
  round_engine(std::unique_ptr<schedule_in_use<works_type>> schedule, Rule rule, Storage storage, Backend backend,
               parameter_layout layout, options chosen)
      : schedule_(std::move(schedule)),
        rule_(checked_rule(std::move(rule), backend.rank())),
        layout_(std::move(layout)),
        options_(checked(std::move(chosen), *schedule_, rule_, layout_, backend.rank())),
        waits_(schedule_->plan(0).meanwhile == computation::waits),
        placement_(placed(backend.size())),
        shares_(placement_.empty() ? partition(layout_.trainable_size(), backend.size(), bucket_elements(backend.size()))
                                   : placement_.shares(backend.size())),
        checks_habits_(checks_habits(options_.check_habits) && Storage::host_memory),
        accumulator_(layout_, shares_, waits_, options_.stable_addresses, checks_habits_,
                     schedule_->keeps() && !options_.in_place),
        habits_(layout_, accumulator_, checks_habits_, keeps_in_place()),
        scaler_(options_.loss_scale),
        spikes_(options_.norm_limit),
        works_(rule_, std::move(storage), std::move(backend), layout_, options_, accumulator_, shares_,
               schedule_->keeps_reduced()) {
    schedule_->add_wires(works_);
    if (options_.norms != norm_detail::total)
      norms_.resize(options_.norms == norm_detail::groups ? layout_.groups().size() : layout_.tensor_count(), 0.0);
    demand_storage();
  }
  round_engine(round_engine const&) = delete;
  round_engine& operator=(round_engine const&) = delete;
  ~round_engine() override {
    if (membership_.end(in_flight_) && checks_habits_ && (in_flight_ || micro_batches_ != 0)) {
      std::fprintf(stderr,
                   "acco: rank %d: an optimizer was destroyed without finish(): its last micro-batches are not in the weights.\n",
                   backend().rank());
    }
    queue().stop();
  }

  [[nodiscard]] memory_table memory() const noexcept override {
    memory_table table;
    accumulator_.count(table);
    works_.count(table);
    table.gathering = Storage::allocation_size(gathered_bytes(), 0);
    std::size_t frozen = 0;
    for (std::size_t k = 0; copies_.kept() != 0 && k < layout_.tensor_count(); ++k) {
      update_group const& group = layout_.groups()[layout_[k].group];
      if (group.frozen && (group.per_rank || works_.backend().rank() == 0)) frozen += layout_[k].size;
    }
    table.staging = frozen * sizeof(parameter_type) + copies_.kept() * empty_staging().bytes();
    return table;
  }

  /// `begin`, and gives every rank the parameters of rank 0. Collective; blocks.
  void initialize(std::span<parameter_type const> values) override {
    begin();
    take_from_rank_0(values);
    works_.state().begin_averages(queue());
    queue().wait();
  }
  void initialize_from(function_view<void(std::size_t, std::size_t, std::byte*)> read) override {
    begin();
    transfer_.take_masters(read);
    ++frozen_values_;
    works_.state().begin_averages(queue());
    queue().wait();
    showing_masters_ = showing_committed_ = true;
    habits_.shown();
    queue().clock().begin();
  }
  /// Compares the ranks' construction, and allocates. Collective; blocks.
  void begin() override {
    queue().place.phase = "initialize";
    membership_.join();
    works_.joined(schedule_->same_everywhere());
    description lines = construction_lines();
    lines.add("checks habits", checks_habits_);
    membership_.together([&] { agree(queue(), backend(), lines.lines(), queue().place); });
    try {
      works_.allocate();  // first: it makes room in the queue
      accumulator_.allocate(works_.storage(), queue());
    } catch (std::bad_alloc const&) {
      constexpr double mebibyte = 1 << 20;
      throw memory_error(
          queue().place,
          text("the buffers of this rank, ", static_cast<double>(memory().total()) / mebibyte, " MiB, could not be allocated"),
          text("Use more ranks, smaller types, or fewer parameters; memory() lists the buffers"));
    }
  }
  [[nodiscard]] memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) override {
    return adopted_.claim(memory, bytes, trained);
  }
  void adopt(std::span<parameter_type> parameters, std::span<gradient_type> gradients, bool begins) override {
    accumulator_.adopt(parameters, gradients);
    if (begins) initialize(parameters);
  }
  void adopt(std::span<tensor_memory<parameter_type, gradient_type> const> tensors, bool begins) override {
    accumulator_.adopt(layout_, tensors);
    if (!begins) return;
    const scoped_buffer whole(queue(), works_.storage().allocate(layout_.size() * sizeof(parameter_type), 0));
    const std::span<parameter_type> initial(whole.template as<parameter_type>(), layout_.size());
    accumulator_.copy_parameters(queue(), initial);
    initialize(initial);
  }
  void set_parameters(std::span<parameter_type const> values) override {
    queue().place = {backend().rank(), static_cast<std::int64_t>(run_.round), "set_parameters"};
    take_back_memory();
    take_from_rank_0(values);
    works_.forget_lost();
    showing_masters_ = showing_committed_ = true;
  }
  [[nodiscard]] bool at_rest() const noexcept override { return quiet_ && !in_flight_ && micro_batches_ == 0; }
  [[nodiscard]] bool finished() const noexcept override { return at_rest() && membership_.at_peace(); }

  [[nodiscard]] std::span<parameter_type const> parameters() const noexcept override { return accumulator_.parameters(); }
  [[nodiscard]] std::span<gradient_type> gradients() const noexcept override { return accumulator_.gradients(); }
  [[nodiscard]] double loss_scale() const noexcept override { return scaler_.computing(); }
  [[nodiscard]] std::span<double const> norms() const noexcept override { return norms_; }
  [[nodiscard]] tensor_spans<parameter_type, gradient_type> tensor(std::size_t index) const noexcept override {
    auto const found = layout_[index];
    if (found.size == 0) return {};
    gradient_type* const gradients = accumulator_.gradient_at(found.offset);
    return {{accumulator_.parameter_at(found.offset), found.size}, {gradients, gradients == nullptr ? 0 : found.size}};
  }
  [[nodiscard]] double samples() const noexcept override { return run_.samples; }
  [[nodiscard]] std::uint64_t steps() const noexcept override { return run_.steps; }
  [[nodiscard]] round_totals const& totals() const noexcept override { return sums_; }
  [[nodiscard]] parameter_layout const& layout() const noexcept override { return layout_; }
  [[nodiscard]] error_place place() const noexcept override {
    return {works_.backend().rank(), static_cast<std::int64_t>(run_.round), ""};
  }

  /// Ends a micro-batch; ends this rank's part of a round too when the pace says so.
  std::optional<round_report> accumulated(double weight, double loss_sum) override {
    throw_put_off();
    take_back_memory();
    membership_.take_part();
    queue().poll();
    habits_.micro_batch(weight, place());
    mine_.weight += weight;
    mine_.loss_sum += loss_sum;
    ++micro_batches_;
    const step_part part = schedule_->plan(run_.round + (in_flight_ ? 1 : 0)).part;  // of the round that will carry it
    const unsigned least = schedule_->minimum(part), most = schedule_->maximum(part);
    if (least != most) queue().pass();
    if (micro_batches_ < least || (micro_batches_ < most && in_flight_ && !queue().over())) {
      habits_.rest(true);
      return std::nullopt;
    }
    habits_.part(mine_.weight);
    auto report = end_part();
    if (report && commits(report->plan)) report->saved = copies_.news();  // once, to who sees it: step() sees no other reports
    const bool kept = works_.plan().keeps && options_.in_place;
    habits_.rest(kept, kept);
    return report;
  }

  void poll() override { queue().poll(); }

  /// Takes part in rounds until every rank is finishing and nothing is left to commit; then shows committed parameters.
  /// Collective; blocks.
  void finish(unfinished rest) override {
    begin_finish(rest);
    while (!finish_round(rest)) continue;
    end_finish();
  }
  /// The same in parts, for who finishes several engines side by side: `begin_finish`, rounds, `end_finish`.
  void begin_finish(unfinished rest) {
    throw_put_off();
    take_back_memory();  // other ranks may still train, and then this one's arrays change
    membership_.take_part();
    queue().clock().arrive(micro_batches_);
    if (!at_rest()) habits_.settle({backend().rank(), static_cast<std::int64_t>(run_.round), "finish"});
    if (in_flight_) tell(land());
    mine_.commits_rest = rest == unfinished::commit ? 1 : 0;
  }
  /// Whether that was everything, of every rank.
  bool finish_round(unfinished rest) {
    const round_plan plan = schedule_->plan(run_.round);
    const bool completes = micro_batches_ != 0 && micro_batches_ >= schedule_->minimum(plan.part);
    mine_.finishing = completes && rest == unfinished::drop ? 0 : 1;
    start();
    auto landed = land();
    if (waits_) scaler_.begin_step();
    tell(landed);
    if (!landed) return true;  // nobody had anything left
    return commits(plan) && works_.numbers().all.finishing == static_cast<double>(backend().size());
  }
  void end_finish() {
    mine_ = {};
    while (!begins_step(*schedule_, run_.round)) ++run_.round;
    scaler_.begin_step();
    if (!showing_masters_) {
      auto masters_arrive = accumulator_.arrive();
      queue().after_computation();
      works_.gather_masters(masters_arrive.parameters());
      queue().before_computation();
      accumulator_.land(queue(), std::move(masters_arrive));
      showing_masters_ = true;
    }
    quiet_ = true;
    compared_ = false;
    rest_copies();
    habits_.shown();
    habits_.rest(false);
    membership_.finish();
    adopted_.rest();
    queue().clock().begin();
  }

  /// Writes the committed parameters, after the round in flight if it commits, or their averages, into `out`, in the order of the
  /// layout. Collective; blocks.
  void gather(std::span<parameter_type> out, weights which) override {
    outside_rounds([&] { transfer_.gather(out, which == weights::average); });
  }
  /// The same in the master's type, piece by piece. Collective; blocks.
  void gather_masters(function_view<void(std::size_t, std::size_t, std::byte const*)> take, weights which) override {
    outside_rounds([&] { transfer_.give_masters(take, which == weights::average); });
  }

  /// Replaces the numbers by their sums over all ranks. Collective; blocks until the round in flight is done.
  void sum_over_ranks(std::span<double> numbers) override {
    outside_rounds([&] { works_.sum_over_ranks(numbers, sum_kind::by_trainer); });
  }

  [[nodiscard]] std::uint64_t state_digest() override {
    std::uint64_t digest = 0;
    outside_rounds([&] { digest = works_.state().digest(queue(), committed().steps); });
    return digest;
  }
  [[nodiscard]] std::uint64_t world_digest() override {
    std::uint64_t digest = 0;
    outside_rounds([&] {
      digest_words words = digest_words::of(works_.state().part_of_digest(queue()));
      works_.sum_over_ranks(words.word);
      digest = words.sum() + digest_of(committed().steps, committed().samples);
    });
    return digest;
  }

  [[nodiscard]] state_shape shape() const noexcept override {
    return {type_of<typename Storage::master_type>(), type_of<parameter_type>(), Rule::slot_count, options_.average_decay > 0};
  }
  [[nodiscard]] partition shares() const noexcept override { return shares_; }
  [[nodiscard]] std::vector<char> construction() const override {
    description const found = construction_lines();
    return {found.lines().begin(), found.lines().end()};
  }
  [[nodiscard]] options const& chosen() const noexcept override { return options_; }
  void copy_parameters(std::size_t tensor, std::byte* to) override {
    auto const each = layout_[tensor];
    Storage::visit_on_host(queue(), accumulator_.parameter_at(each.offset), each.size,
                           [to](parameter_type const* from, std::size_t index, std::size_t count) {
                             std::memcpy(to + index * sizeof(parameter_type), from, count * sizeof(parameter_type));
                           });
  }
  [[nodiscard]] std::uint64_t frozen_values() const noexcept override { return accumulator_.adopted() ? 0 : frozen_values_; }
  void broadcast(std::span<char> bytes, int root) override { broadcast_and_wait(queue(), backend(), bytes, root); }
  [[nodiscard]] state_keeper* keeper() noexcept override { return copies_.keeper(); }
  [[nodiscard]] save_outcome const* saved() const noexcept override { return copies_.saved(); }
  void together(function_view<void()> action) override { membership_.together(action); }
  [[nodiscard]] bool can_be_saved() const noexcept override { return stages<Storage>; }
  void attach(state_keeper* keeper) override {
    std::unique_ptr<state_keeper> taken(keeper);
    if constexpr (stages<Storage>) {
      try {
        copies_.attach(std::move(taken), [this] { return new_staging(); });
      } catch (std::bad_alloc const&) {
        constexpr double mebibyte = 1 << 20;
        throw memory_error(place(),
                           text("the copy of this rank's state, ", static_cast<double>(empty_staging().bytes()) / mebibyte,
                                " MiB, could not be allocated"),
                           text("A save needs room for it; use more ranks"));
      }
    } else {
      throw usage_error(place(), text("this storage cannot be saved: it lacks `stage` and `allocate_staging`"),
                        text("storage/host.hpp has both"));
    }
  }
  void load(state_source& source) override {
    take_back_memory();
    loaded_.reset();  // of a candidate that was refused
    loaded_ = transfer_.load(source, shape(), waits_);
  }
  std::uint64_t resume(resumption how) override {
    const std::unique_ptr<loaded_state<Storage>> from = std::move(loaded_);
    run_numbers const& numbers = from->numbers;
    if (!from->values.empty()) transfer_.take_from(from->values, false);
    ++frozen_values_;
    const bool goes_on = how == resumption::exact && numbers.completed;
    run_ = numbers.run;
    sums_.rounds = numbers.rounds;
    sums_.skipped = numbers.rounds_skipped;
    sums_.dropped = numbers.dropped;
    scaler_.restore(numbers);
    spikes_.restore(numbers.norms);
    compared_ = false;
    in_flight_ = false;
    quiet_ = true;
    if (how == resumption::exact) schedule_->remind(numbers.pace);
    works_.restore_updates(numbers.updates, numbers.steps());
    counted_ = goes_on && numbers.last.apply;  // it is in these numbers, and will land
    if (goes_on) {
      go_on(*from);
    } else {
      run_.steps = numbers.steps();
      run_.samples = numbers.samples();
      run_.step_weight = run_.step_loss_sum = 0;
      while (!begins_step(*schedule_, run_.round)) ++run_.round;
      if (numbers.completed) scaler_.begin_step();
      show_masters();
    }
    if (goes_on && waits_) {
      (void)land();
      scaler_.begin_step();
    }
    habits_.shown();
    habits_.restore(numbers.habits);
    habits_.rest(false);
    const std::uint64_t digest = world_digest();
    if (in_flight_) works_.has_sent(numbers.bytes_sent);  // the uninterrupted round did not send that
    queue().clock().begin();
    return digest;
  }

  // For a level around this one (outer/outer_engine.hpp), which knows the engine's type.

  /// Who is told, between rounds, that one has landed.
  void watch(between_rounds* who) noexcept { watcher_ = who; }
  /// This rank's slice of the masters, padding included: between rounds, or `outside_rounds`.
  [[nodiscard]] std::span<typename Storage::master_type> masters() noexcept { return works_.state().slice(); }
  /// Between rounds: the masters have been replaced on every rank, and become the parameters in use. What the trainer has
  /// accumulated since the last boundary stays; it was computed at the parameters of before. Collective; blocks; allocates
  /// nothing.
  void masters_changed() {
    auto arriving = accumulator_.arrive();
    queue().after_computation();
    works_.gather_masters(arriving.parameters());
    queue().before_computation();
    accumulator_.land(queue(), std::move(arriving));
    showing_masters_ = showing_committed_ = replaced_ = true;
    habits_.shown();
  }
  /// Lands the round in flight, if one is, before the next boundary does. Collective; blocks.
  void land_now() {
    throw_put_off();
    if (!in_flight_) return;
    queue().clock().arrive(micro_batches_);
    tell(land());
    queue().clock().resume();
  }
  /// The parameters in use have come so far since the gradients of the next round were measured (`norm_limits::moved`).
  void moved(double distance) noexcept { moved_ = distance; }
  /// Sum of `loss_sum` over the ranks, of the round that has landed last.
  [[nodiscard]] double loss_sum() const noexcept { return works_.numbers().all.loss_sum; }
  /// At rest, in host memory: the arrays of all ranks' state (state_copy.hpp), by position. Collective; blocks.
  [[nodiscard]] std::vector<std::vector<typename Storage::master_type>> gather_state() {
    std::vector<std::vector<typename Storage::master_type>> arrays;
    outside_rounds([&] {
      works_.state().for_arrays([&](std::size_t, typename Storage::master_type const* slice) {
        works_.gather_slices(slice, std::span(arrays.emplace_back(shares_.padded_size())));
        arrays.back().resize(shares_.size());
      });
    });
    return arrays;
  }
  /// At rest: the numbers of the state.
  [[nodiscard]] run_numbers numbers() const {
    run_numbers found;
    keep(found);
    return found;
  }
  /// At rest: by position, what encodings have lost of this rank's gradients; empty where they keep nothing.
  [[nodiscard]] std::span<gradient_type> lost() noexcept { return works_.lost(); }
  /// At rest, on every rank: this one may leave in peace, as after `finish`.
  void be_at_peace() noexcept { membership_.finish(); }
  /// Between rounds for whoever communicates himself: the round in flight is done, and stays.
  template <class Action>
  void outside_rounds(Action&& action) {
    queue().clock().interrupt();
    settle();
    action();
    queue().clock().go_on();
  }

  void leave(std::string_view reason) noexcept override {
    membership_.leave(reason);
    if constexpr (queue_traits_of<typename Storage::queue>.works_elsewhere) queue().run_out();  // before the caller's arrays go
    adopted_.rest();  // nothing is written there any more
  }
  [[nodiscard]] bool in_step() const noexcept override { return membership_.in_step(); }

 private:
  [[nodiscard]] description construction_lines() const {
    description lines;
    schedule_->describe(lines);  // first: what is named first in a mismatch is what is chosen by a flag
    describe_construction<Storage>(lines, rule_, options_, layout_);
    return lines;
  }
  template <class T>
  [[nodiscard]] static constexpr element_type type_of() noexcept {
    if constexpr (std::is_same_v<T, double>) {
      return element_type::float64;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      return element_type::bfloat16;
    } else {
      return std::is_same_v<T, half> ? element_type::float16 : element_type::float32;
    }
  }

  // Saving.

  /// The round in flight has been worked off, and has not landed: nothing has changed since it began but what the trainer has
  /// added. What was copied then is complete now.
  void end_copies() {
    copies_.end(works_.numbers().nothing || works_.numbers().ends() || ends_here(),
                [this](run_numbers& numbers) { keep_round(numbers); });
  }
  /// Whether this training ends once the round lands: whoever came back to here would do so again.
  [[nodiscard]] bool ends_here() const noexcept {
    round_numbers const& n = works_.numbers();
    return (n.skip && run_.skipped + 1 > options_.skip_limit) ||
           (n.step_weight == 0 && !n.skip && run_.empty + 1 > options_.empty_limit);
  }
  /// Every rank comes here, after rounds that all have told in.
  void rest_copies() {
    copies_.rest(
        works_.numbers().all.saving.keepers, backend().size(),
        [this](std::span<double> numbers) { works_.sum_over_ranks(numbers); },
        [this](state_staging<Storage>& to) {
          works_.add_to(to, shape(), false, false);
          queue().after_computation();
          to.enqueue(queue());
          queue().wait();
          keep(to.numbers);
          habits_.keep(to.numbers.habits);
        });
  }
  /// The works of the round that starts copy what it will leave.
  void copy_state(state_staging<Storage>& to, round_plan const& plan) {
    to.clear();
    habits_.keep(to.numbers.habits);  // now: when the round is done the trainer will have gone on
    works_.add_to(to, shape(), !waits_, flight_.sends_differences || !shows_committed(plan));
  }
  void keep_round(run_numbers& numbers) const {
    keep(numbers);
    numbers.completed = true;
    works_.keep(numbers.last);
    works_.keep_updates(numbers.updates, run_.steps, numbers.last.apply && !counted_);
    numbers.last.rate = rate_;
    numbers.last.differences = flight_.sends_differences;
    numbers.last.digested = flight_.digests_state;
    numbers.micro_batches = flight_.micro_batches;
    numbers.bytes_sent = works_.bytes();
  }
  void keep(run_numbers& numbers) const {
    numbers.run = run_;
    works_.keep_updates(numbers.updates, run_.steps, false);
    scaler_.keep(numbers);
    spikes_.keep(numbers.norms);
    numbers.pace = schedule_->remember();
    numbers.rounds = sums_.rounds;
    numbers.rounds_skipped = sums_.skipped;
    numbers.dropped = sums_.dropped;
  }

  // Restoring.

  void show_masters() {
    transfer_.show_masters();
    showing_masters_ = showing_committed_ = true;
  }
  /// The round that the state was copied in is in flight again, worked off.
  void go_on(loaded_state<Storage>& from) {
    run_numbers const& numbers = from.numbers;
    const round_plan plan = schedule_->plan_of(run_.round, place());
    if (!waits_ && from.shown == nullptr) {
      throw usage_error(place(), text("the state lacks the parameters in use, which its masters do not give"),
                        text("Its manifest was changed: take another checkpoint"));
    }
    if (from.shown != nullptr) transfer_.show_shares(from.shown);
    auto flight = accumulator_.arrive();
    accumulator_.drop(queue());
    queue().after_computation();
    transfer_.arrive(from, flight.parameters());
    works_.go_on(std::move(flight), plan, numbers);
    queue().before_computation();
    rate_ = numbers.last.rate;
    flight_ = {};
    flight_.sends_differences = numbers.last.differences;
    flight_.digests_state = numbers.last.digested;
    flight_.digests_shown = compares(run_.round);
    flight_.micro_batches = numbers.micro_batches;
    if (flight_.digests_shown) works_.digest_shown();
    in_flight_ = true;
    quiet_ = false;
  }
  /// What `finish` has given back to who may adopt it.
  void take_back_memory() {
    if (adopted_.resume()) return;
    throw usage_error(place(), text("another optimizer of this process has adopted this one's arrays since finish()"),
                      text("Let one of them train at a time: finish the other, or end it"));
  }
  /// The values of rank 0 become every rank's parameters in use, and masters. Collective; blocks.
  void take_from_rank_0(std::span<parameter_type const> values) {
    transfer_.take_from(values, true);
    ++frozen_values_;
    habits_.shown();
    queue().clock().begin();
  }
  void tell(std::optional<round_report>& report) {
    if (watcher_ != nullptr && report) watcher_->landed(*report);
  }
  void tell(std::optional<round_report>&& report) { tell(report); }
  /// What is committed, the round in flight included, when that is done.
  struct committed_numbers {
    std::uint64_t steps;
    double samples;
  };
  [[nodiscard]] committed_numbers committed() const noexcept {
    round_numbers const& n = works_.numbers();
    const bool more = in_flight_ && n.apply && commits(works_.plan());
    return {run_.steps + (more ? 1 : 0), run_.samples + (more ? n.step_weight : 0)};
  }
  [[nodiscard]] state_staging<Storage> empty_staging() const {
    return {shape(), shares_, works_.backend().rank(), !waits_, schedule_->commits_otherwise()};
  }
  [[nodiscard]] std::unique_ptr<state_staging<Storage>> new_staging() const {
    auto made = std::make_unique<state_staging<Storage>>(empty_staging());
    const std::size_t most_pieces = shape().owned() + shares_.buckets() + accumulator_.stretches();
    made->allocate(works_.storage(), most_pieces, std::max(works_.norms().regions().size(), layout_.tensor_count()));
    return made;
  }
  /// What options ask for, and the storage lacks.
  void demand_storage() const {
    if constexpr (!digests<Storage>) {
      if (options_.digest_every != 0) {
        throw usage_error(place(), text("options::digest_every: this storage cannot be digested: it lacks `digest`"),
                          text("storage/host.hpp has it"));
      }
    }
  }
  /// Whether gradients that some round keeps stay in the trainer's accumulator.
  [[nodiscard]] bool keeps_in_place() const { return options_.in_place && schedule_->keeps(); }
  /// Whether the parameters in use are digested at this round's end, to be compared by the next one.
  [[nodiscard]] bool compares(std::uint64_t round) const noexcept {
    return digests<Storage> && shares_.ranks() > 1 && options_.compare_every != 0 && (round + 1) % options_.compare_every == 0;
  }
  [[nodiscard]] std::size_t gathered_bytes() const noexcept { return shares_.padded_size() * sizeof(parameter_type); }
  static options checked(options chosen, schedule_in_use<works_type> const& schedule, Rule const& rule,
                         parameter_layout const& layout, int rank) {
    chosen.check({.rank = rank});
    if (layout.trainable_size() == 0) {
      throw usage_error({.rank = rank}, text("the layout has ", layout.size(), " parameters and none of them is trainable"),
                        text("Give a positive parameter count, or a layout with a group that is not frozen"));
    }
    schedule.check({.rank = rank});
    if (chosen.in_place && schedule.keeps() && (!Storage::host_memory || sizeof(gradient_type) < 4)) {
      throw usage_error({.rank = rank},
                        text("options::in_place: nobody could see that kept gradients of this storage were cleared"),
                        text("It is for gradients of four bytes or more in host memory: leave it out"));
    }
    check_groups(rule, layout, rank);
    check_without_gradient<typename Storage::master_type>(rule, layout, rank);
    return chosen;
  }
  /// Where the rule updates matrices.
  [[nodiscard]] placement placed(int ranks) const {
    if constexpr (matrix_rule<Rule>) {
      return {layout_, ranks, bucket_elements(ranks),
              [this](std::size_t tensor) { return works_type::state_type::whole(layout_, tensor); }};
    } else {
      return {};
    }
  }
  /// Trainable elements of a bucket, over all ranks.
  [[nodiscard]] std::size_t bucket_elements(int ranks) const noexcept {
    if (options_.bucket_elements != 0) return options_.bucket_elements;
    return Storage::usual_share * static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] typename Storage::queue& queue() noexcept { return works_.queue(); }
  [[nodiscard]] Backend& backend() noexcept { return works_.backend(); }
  [[nodiscard]] char const* progress_policy() const noexcept {
    if constexpr (traits_of<Backend>.names_progress) {
      return works_.backend().progress_policy();
    } else {
      return "";
    }
  }
  /// A boundary: lands the round in flight and launches the next one.
  std::optional<round_report> end_part() {
    queue().clock().arrive(micro_batches_);
    std::optional<round_report> report;
    if (in_flight_) report = land();
    tell(report);
    if (report) {
      try {
        start();
      } catch (...) {  // what has landed is reported; the next call throws
        put_off();
      }
    } else {
      start();
    }
    if (waits_) {
      report = land();
      scaler_.begin_step();  // knows what landed
      tell(report);
    }
    queue().clock().resume();
    return report;
  }

  /// Keeps the exception that is being handled for the next call; the other ranks hear of it now.
  void put_off() noexcept {
    put_off_ = std::current_exception();
    try {
      throw;
    } catch (std::exception const& e) {
      leave(e.what());
    } catch (...) {
      leave("an exception that is no std::exception");
    }
  }
  void throw_put_off() const {
    if (put_off_) std::rethrow_exception(put_off_);
  }
  void start() {
    const round_plan plan = schedule_->plan_of(run_.round, place());
    queue().place = {backend().rank(), static_cast<std::int64_t>(run_.round), label_of(plan)};
    rate_ = options_.rate_at({run_.samples, run_.steps}, queue().place);
    works_.carry(accumulator_.launch(queue(), quiet_, plan.keeps), plan);
    const bool rested = std::exchange(quiet_, false), replaced = std::exchange(replaced_, false);
    const bool late = !rested && !replaced && !waits_;
    round_counts carried = mine_;
    if (plan.keeps) {
      if (options_.in_place) schedule_->encode_kept(works_);
    } else {
      mine_ = {.commits_rest = mine_.commits_rest};
    }
    carried.rate = rate_;
    if (std::exchange(compared_, false)) carried.shown = digest_words::of(works_.shown());
    flight_ = {};  // and not by names of members: nvcc 13.0 takes them for others in a class template's own struct
    flight_.digests_state = options_.digest_every != 0 && commits(plan) && (run_.steps + 1) % options_.digest_every == 0;
    flight_.digests_shown = compares(run_.round);
    flight_.micro_batches = std::exchange(micro_batches_, 0);
    copies_.start(commits(plan));
    carried.saving = copies_.tell();
    carried.unseen = habits_.first_unseen();
    if (schedule_->measures() && flight_.micro_batches != 0) {
      carried.micro_batch_seconds = queue().clock().micro_batch_seconds();
      carried.estimate_seconds = run_.estimate_seconds;
      carried.commit_seconds = run_.commit_seconds;
    }
    in_flight_ = true;
    queue().clock().start();

    works_.begin(carried,
                 {run_.steps, run_.samples, rate_, scaler_.computing(), commits(plan) ? spikes_.most() : 0, late, moved_});
    accumulator_.empty(queue());
    flight_.sends_differences = schedule_->enqueue(works_, plan, run_.steps + 1);
    round_end<Storage> wanted{.shown = flight_.digests_shown, .state = flight_.digests_state};
    copies_.enqueue(wanted, [&](state_staging<Storage>& to) { copy_state(to, plan); });
    works_.end(wanted);
    if (commits(plan)) scaler_.begin_step();  // what is accumulated from now on
  }
  /// Before anything else is enqueued behind a round in flight: throws what it found. Every rank that calls a collective now
  /// does, or will when it lands the round.
  void settle() {
    throw_put_off();
    if (!in_flight_) {
      queue().place = {backend().rank(), static_cast<std::int64_t>(run_.round), ""};
      return;
    }
    queue().wait();
    if (!works_.numbers().nothing) raise();
  }
  /// Throws what the round has found, on every rank alike. No parameter has changed; the round is over.
  void raise() {
    if (!works_.numbers().ends()) return;
    in_flight_ = false;
    end_copies();
    verdicts_.raise(rate_);
  }
  /// Waits for the round in flight and brings what it gathered into use. Nothing if the round turned out to be empty on every
  /// rank.
  std::optional<round_report> land() {
    queue().wait();
    queue().before_computation();
    round_numbers const& n = works_.numbers();
    const round_plan plan = works_.plan();
    end_copies();
    copies_.hear(n.all.saving, backend().size());
    if (n.nothing) {
      in_flight_ = false;
      sums_.dropped += n.step_weight;
      (void)works_.take_flight();
      accumulator_.drop(queue());
      return std::nullopt;
    }
    raise();
    in_flight_ = false;
    accumulator_.land(queue(), works_.take_flight());
    habits_.shown();
    showing_committed_ = shows_committed(plan);
    showing_masters_ = showing_committed_ && !flight_.sends_differences;
    compared_ = flight_.digests_shown;
    if (n.apply && commits(plan)) {
      ++run_.steps;
      run_.samples += n.step_weight;
      if (!std::exchange(counted_, false)) works_.count_updates();
      scaler_.updated();
      spikes_.updated(n.norm);
    }
    if (n.skip && !n.spike) scaler_.overflowed(n.loss_scale);
    if (!norms_.empty()) works_.norms().tell(layout_, options_.norms, n.step_weight * n.loss_scale, norms_);
    if (commits(plan)) run_.skipped = n.skip ? run_.skipped + 1 : n.apply ? 0 : run_.skipped;
    (commits(plan) ? run_.commit_seconds : run_.estimate_seconds) = works_.times().seconds();
    if (schedule_->measures() && !commits(plan) && n.all.finishing == 0) {
      const auto ranks = static_cast<double>(backend().size());
      schedule_->measured({n.all.micro_batch_seconds / ranks, n.all.estimate_seconds / ranks, n.all.commit_seconds / ranks});
    }
    if (plan.gradients == carried::fresh) run_.step_weight = run_.step_loss_sum = 0;
    run_.step_weight += n.all.weight;
    run_.step_loss_sum += n.all.loss_sum;
    if (commits(plan)) run_.empty = n.step_weight == 0 && !n.skip ? run_.empty + 1 : 0;
    round_report report = describe_round(queue().clock().land());
    if (n.skip) run_.step_weight = run_.step_loss_sum = 0;
    sums_.add(report);
    ++run_.round;
    verdicts_.look_for_skips(run_);
    if (checks_habits_) verdicts_.look_for_gradients(run_, rate_);
    verdicts_.look_for_weight(run_, watcher_ != nullptr);
    return report;
  }

  [[nodiscard]] round_report describe_round(computation_times const& computation) const {
    round_numbers const& n = works_.numbers();
    return {
        .round = run_.round,
        .plan = works_.plan(),
        .committed = showing_committed_,
        .skipped = n.skip,
        .spike = n.spike,
        .step = run_.steps,
        .samples = run_.samples,
        .weight = n.all.weight,
        .mean_loss = n.all.weight > 0 ? n.all.loss_sum / n.all.weight : 0,
        .step_weight = run_.step_weight,
        .step_loss = run_.step_weight > 0 ? run_.step_loss_sum / run_.step_weight : 0,
        .gradient_norm = n.norm,
        .clip_scale = n.clip,
        .loss_scale = n.loss_scale,
        .learning_rate_scale = rate_,
        .micro_batches = flight_.micro_batches,
        .first = schedule_->minimum(step_part::first),
        .second = schedule_->minimum(step_part::second),
        .compute_seconds = computation.computed.seconds(),
        .communication_seconds = works_.times().seconds(),
        .exposed_seconds = computation.exposed,
        .bytes_sent = works_.bytes(),
        .digest = flight_.digests_state ? std::optional(n.state_all.sum() + digest_of(run_.steps, run_.samples)) : std::nullopt,
        .progress = progress_policy(),
        .computing = computation.computed,
        .communicating = works_.times()};
  }

  std::unique_ptr<schedule_in_use<works_type>> schedule_;
  Rule rule_;
  parameter_layout layout_;
  options options_;
  bool waits_;  // whether the computation waits for rounds
  placement placement_;
  partition shares_;
  adopted_memory adopted_;  // the trainer's arrays that the accumulator works in
  bool checks_habits_;
  gradient_accumulator<Storage> accumulator_;
  habit_watch<Storage> habits_;

  // The trainer's side.
  loss_scaler scaler_;
  spike_watch spikes_;
  std::vector<double> norms_;  // of the round that landed last
  round_counts mine_;          // of the micro-batches since the last boundary
  std::size_t micro_batches_ = 0;
  run_counters run_;
  std::uint64_t frozen_values_ = 0;  // how often they were set
  bool in_flight_ = false;
  bool quiet_ = true;  // the next launch must not move the trainer's spans
  bool showing_committed_ = true;
  bool showing_masters_ = true;  // the committed parameters exactly, not a copy that arrived as encoded differences
  round_totals sums_;
  std::exception_ptr put_off_;  // thrown by the next call

  // Saving.
  state_copies<Storage> copies_;
  std::unique_ptr<loaded_state<Storage>> loaded_;  // until `resume`

  // Of the round in flight, as the trainer's thread knows it.
  struct facts {
    bool sends_differences = false;  // parameters travel encoded
    bool digests_state = false, digests_shown = false;
    std::size_t micro_batches = 0;
  };
  facts flight_;
  bool compared_ = false;  // the round that landed last has digested the parameters in use, for the next one to compare
  double rate_ = 1;
  double moved_ = 0;
  bool replaced_ = false;  // the masters were, since the last round started
  bool counted_ = false;   // updates of tensors have the round in flight, which was restored
  between_rounds* watcher_ = nullptr;

  works_type works_;  // its queue's threads use what is above
  state_transfer<Rule, Storage, Backend> transfer_{works_, accumulator_, adopted_, layout_, shares_};
  membership<Backend> membership_{works_.backend()};
  round_verdicts<Rule, Storage, Backend> verdicts_{works_, options_, habits_, membership_};
};

}  // namespace ACCO_ENGINE_NAMESPACE

#include "acco/restore_macros.hpp"
