// SPDX-License-Identifier: Apache-2.0
// The engine: what the trainer does becomes parts of steps and rounds. It branches on the plan; the schedule's type is behind an
// interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/adopted_memory.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/construction.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/gradient_norm.hpp"
#include "acco/round/habits.hpp"
#include "acco/round/loss_scaler.hpp"
#include "acco/round/membership.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/training_engine.hpp"
#include "acco/round/works.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/storage/host_clock.hpp"
#include "acco/storage/scoped_buffer.hpp"

namespace ACCO_ENGINE_NAMESPACE {

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
        options_(checked(std::move(chosen), *schedule_, layout_, backend.rank())),
        waits_(schedule_->plan(0).meanwhile == computation::waits),
        shares_(layout_.trainable_size(), backend.size(), bucket_elements(backend.size())),
        checks_habits_(checks_habits(options_.check_habits) && Storage::host_memory),
        accumulator_(layout_, shares_, waits_, options_.stable_addresses, checks_habits_),
        habits_(layout_, accumulator_, checks_habits_),
        scaler_(options_.loss_scale),
        works_(rule_, std::move(storage), std::move(backend), layout_, options_, accumulator_, shares_,
               schedule_->keeps_reduced()) {
    schedule_->add_wires(works_);
    if (options_.norms != norm_detail::total)
      norms_.resize(options_.norms == norm_detail::groups ? layout_.groups().size() : layout_.tensor_count(), 0.0);
    check_groups(rule_, layout_, this->backend().rank());
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
    return table;
  }

  /// Compares the ranks' construction, allocates, and gives every rank the parameters of rank 0. Collective; blocks.
  void initialize(std::span<parameter_type const> values) override {
    queue().place.phase = "initialize";
    membership_.join();
    works_.joined(schedule_->same_everywhere());
    description construction;
    schedule_->describe(construction);  // first: what is named first in a mismatch is what is chosen by a flag
    describe_construction<Storage>(construction, rule_, options_, layout_);
    construction.add("checks habits", checks_habits_);
    membership_.together([&] { agree(queue(), backend(), construction.lines(), queue().place); });
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
    take_from_rank_0(values);
    works_.state().begin_averages(queue());
    queue().wait();
  }
  [[nodiscard]] memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) override {
    return adopted_.claim(memory, bytes, trained);
  }
  void adopt(std::span<parameter_type> parameters, std::span<gradient_type> gradients) override {
    accumulator_.adopt(parameters, gradients);
    initialize(parameters);
  }
  void adopt(std::span<tensor_memory<parameter_type, gradient_type> const> tensors) override {
    accumulator_.adopt(layout_, tensors);
    const scoped_buffer whole(queue(), works_.storage().allocate(layout_.size() * sizeof(parameter_type), 0));
    const std::span<parameter_type> initial(whole.template as<parameter_type>(), layout_.size());
    accumulator_.copy_parameters(queue(), initial);
    initialize(initial);
  }
  void set_parameters(std::span<parameter_type const> values) override {
    queue().place = {backend().rank(), static_cast<std::int64_t>(next_round_), "set_parameters"};
    take_back_memory();
    take_from_rank_0(values);
    showing_masters_ = showing_committed_ = true;
  }
  [[nodiscard]] bool at_rest() const noexcept override { return quiet_ && !in_flight_ && micro_batches_ == 0; }

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
  [[nodiscard]] double samples() const noexcept override { return samples_; }
  [[nodiscard]] std::uint64_t steps() const noexcept override { return steps_; }
  [[nodiscard]] round_totals const& totals() const noexcept override { return sums_; }
  [[nodiscard]] parameter_layout const& layout() const noexcept override { return layout_; }
  [[nodiscard]] error_place place() const noexcept override {
    return {works_.backend().rank(), static_cast<std::int64_t>(next_round_), ""};
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
    const step_part part = schedule_->plan(next_round_ + (in_flight_ ? 1 : 0)).part;  // of the round that will carry it
    const unsigned least = schedule_->minimum(part), most = schedule_->maximum(part);
    if (least != most) queue().pass();
    if (micro_batches_ < least || (micro_batches_ < most && in_flight_ && !queue().over())) {
      habits_.rest(true);
      return std::nullopt;
    }
    habits_.part(mine_.weight);
    auto report = end_part();
    habits_.rest(works_.plan().keeps);
    return report;
  }

  void poll() override { queue().poll(); }

  /// Takes part in rounds until every rank is finishing and nothing is left to commit; then shows committed parameters.
  /// Collective; blocks.
  void finish(unfinished rest) override {
    throw_put_off();
    take_back_memory();  // other ranks may still train, and then this one's arrays change
    membership_.take_part();
    queue().clock().arrive(micro_batches_);
    if (!at_rest()) habits_.settle({backend().rank(), static_cast<std::int64_t>(next_round_), "finish"});
    if (in_flight_) land();
    mine_.commits_rest = rest == unfinished::commit ? 1 : 0;
    for (;;) {
      const round_plan plan = schedule_->plan(next_round_);
      const bool completes = micro_batches_ != 0 && micro_batches_ >= schedule_->minimum(plan.part);
      mine_.finishing = completes && rest == unfinished::drop ? 0 : 1;
      start();
      const bool landed = land().has_value();
      if (waits_) scaler_.begin_step();
      if (!landed) break;  // nobody had anything left
      if (commits(plan) && works_.numbers().all.finishing == static_cast<double>(backend().size())) break;  // this was everything
    }
    mine_ = {};
    while (!begins_step(*schedule_, next_round_)) ++next_round_;
    scaler_.begin_step();
    if (!showing_masters_) {
      auto masters_arrive = accumulator_.launch(queue(), true);
      accumulator_.empty(queue());
      queue().after_computation();
      works_.gather_masters(masters_arrive.parameters());
      queue().before_computation();
      accumulator_.land(queue(), std::move(masters_arrive));
      showing_masters_ = true;
    }
    quiet_ = true;
    habits_.shown();
    habits_.rest(false);
    membership_.finish();
    adopted_.rest();
    queue().clock().begin();
  }

  /// Writes the committed parameters, after the round in flight if it commits, into `out`, in the order of the layout.
  /// Collective; blocks.
  void gather_committed(std::span<parameter_type> out) override { gather(out, false); }
  /// The same of their averages, where those are kept.
  void gather_average(std::span<parameter_type> out) override { gather(out, true); }

  /// Replaces the numbers by their sums over all ranks. Collective; blocks until the round in flight is done.
  void sum_over_ranks(std::span<double> numbers) override {
    queue().clock().interrupt();
    settle();
    works_.sum_over_ranks(numbers);
    queue().clock().go_on();
  }

  [[nodiscard]] std::uint64_t state_digest() override {
    queue().clock().interrupt();
    settle();
    const bool committed = in_flight_ && works_.numbers().apply && commits(works_.plan());
    const std::uint64_t digest = works_.state().digest(queue(), steps_ + (committed ? 1 : 0));
    queue().clock().go_on();
    return digest;
  }

  void leave(std::string_view reason) noexcept override {
    membership_.leave(reason);
    if constexpr (requires { queue().run_out(); }) queue().run_out();  // before the caller's arrays go
    adopted_.rest();                                                   // nothing is written there any more
  }
  [[nodiscard]] bool in_step() const noexcept override { return membership_.in_step(); }

 private:
  /// What `finish` has given back to who may adopt it.
  void take_back_memory() {
    if (adopted_.resume()) return;
    throw usage_error(place(), text("another optimizer of this process has adopted this one's arrays since finish()"),
                      text("Let one of them train at a time: finish the other, or end it"));
  }
  /// The values of rank 0 become the parameters in use, and the masters, of every rank. Collective; blocks.
  void take_from_rank_0(std::span<parameter_type const> values) {
    auto whole = accumulator_.parameters();
    const bool apart = accumulator_.lies_apart();
    const scoped_buffer gathered(queue(), apart ? works_.storage().allocate(values.size_bytes(), 0) : typename Storage::buffer());
    if (apart) {
      whole = {gathered.template as<parameter_type>(), values.size()};
      Storage::copy(queue(), values.data(), whole.data(), values.size());
    } else {
      accumulator_.set_parameters(queue(), values);
    }
    queue().after_computation();
    backend().broadcast(queue(), replicated<parameter_type>(whole), 0);
    accumulator_.for_slice(backend().rank(), whole.data(),
                           [&](std::size_t offset, parameter_type const* from, std::size_t count) {
                             works_.state().set_masters(queue(), offset, from, count);
                           });
    queue().wait();
    queue().before_computation();
    if (apart) {
      accumulator_.set_parameters(queue(), whole);
      queue().after_computation();
      queue().wait();  // before what was gathered goes
      queue().before_computation();
    }
    habits_.shown();
    queue().clock().begin();
  }
  void gather(std::span<parameter_type> out, bool averaged) {
    queue().clock().interrupt();
    settle();
    const scoped_buffer whole(queue(), works_.storage().allocate(gathered_bytes(), 0));
    auto* const gathered = whole.template as<parameter_type>();
    queue().after_computation();
    works_.gather_masters(replicated<parameter_type>({gathered, shares_.padded_size()}), averaged);
    queue().before_computation();
    accumulator_.copy_parameters(queue(), out);  // the frozen elements
    accumulator_.scatter(queue(), gathered, out);
    queue().after_computation();
    queue().wait();
    queue().clock().go_on();
  }
  [[nodiscard]] std::size_t gathered_bytes() const noexcept { return shares_.padded_size() * sizeof(parameter_type); }
  static options checked(options chosen, schedule_in_use<works_type> const& schedule, parameter_layout const& layout, int rank) {
    chosen.check({.rank = rank});
    if (layout.trainable_size() == 0) {
      throw usage_error({.rank = rank}, text("the layout has ", layout.size(), " parameters and none of them is trainable"),
                        text("Give a positive parameter count, or a layout with a group that is not frozen"));
    }
    schedule.check({.rank = rank});
    return chosen;
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
    const round_plan plan = schedule_->plan_of(next_round_, place());
    queue().place = {backend().rank(), static_cast<std::int64_t>(next_round_), label_of(plan)};
    rate_ = options_.rate_at({samples_, steps_}, queue().place);
    works_.carry(accumulator_.launch(queue(), quiet_, plan.keeps), plan);
    quiet_ = false;
    round_counts carried = mine_;
    if (plan.keeps) {
      schedule_->encode_kept(works_);
    } else {
      mine_ = {.commits_rest = mine_.commits_rest};
    }
    carried.rate = rate_;
    carried.unseen = habits_.first_unseen();
    const bool measures = schedule_->measures();
    if (measures && micro_batches_ != 0) {
      carried.micro_batch_seconds = queue().clock().micro_batch_seconds();
      carried.estimate_seconds = seconds_of_[0];
      carried.commit_seconds = seconds_of_[1];
    }
    carried_micro_batches_ = std::exchange(micro_batches_, 0);
    in_flight_ = true;
    queue().clock().start();

    works_.begin(carried,
                 measures         ? round_counts::all_numbers
                 : checks_habits_ ? round_counts::checked_numbers
                                  : round_counts::usual_numbers,
                 {steps_, samples_, rate_, scaler_.computing()});
    accumulator_.empty(queue());
    sends_differences_ = schedule_->enqueue(works_, plan, steps_ + 1);
    works_.end();
    if (commits(plan)) scaler_.begin_step();  // what is accumulated from now on
  }
  /// Before anything else is enqueued behind a round in flight: throws what it found. Every rank that calls a collective now
  /// does, or will when it lands the round.
  void settle() {
    throw_put_off();
    if (!in_flight_) {
      queue().place = {backend().rank(), static_cast<std::int64_t>(next_round_), ""};
      return;
    }
    queue().wait();
    if (!works_.numbers().nothing) raise();
  }
  /// Throws what the round has found, on every rank alike. No parameter has changed; the round is over.
  void raise() {
    round_numbers const& n = works_.numbers();
    if (!n.not_finite && !n.rates_differ && n.diverged_all == 0) return;
    in_flight_ = false;
    membership_.together([&] {
      if (n.rates_differ) works_.raise_rates(rate_);
      works_.raise_non_finite();
    });
  }
  /// Waits for the round in flight and brings what it gathered into use. Nothing if the round turned out to be empty on every
  /// rank.
  std::optional<round_report> land() {
    queue().wait();
    queue().before_computation();
    round_numbers const& n = works_.numbers();
    const round_plan plan = works_.plan();
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
    showing_masters_ = showing_committed_ && !sends_differences_;
    if (n.apply && commits(plan)) {
      ++steps_;
      samples_ += n.step_weight;
      scaler_.updated();
    }
    if (n.skip) scaler_.overflowed(n.loss_scale);
    tell_norms();
    if (commits(plan)) skipped_in_a_row_ = n.skip ? skipped_in_a_row_ + 1 : n.apply ? 0 : skipped_in_a_row_;
    seconds_of_[commits(plan) ? 1 : 0] = works_.times().seconds();
    if (schedule_->measures() && !commits(plan) && n.all.finishing == 0) {
      const auto ranks = static_cast<double>(backend().size());
      schedule_->measured({n.all.micro_batch_seconds / ranks, n.all.estimate_seconds / ranks, n.all.commit_seconds / ranks});
    }
    if (plan.gradients == carried::fresh) step_ = {};
    step_.weight += n.all.weight;
    step_.loss_sum += n.all.loss_sum;
    if (commits(plan)) empty_in_a_row_ = n.step_weight == 0 && !n.skip ? empty_in_a_row_ + 1 : 0;
    const round_report report = describe_round(queue().clock().land());
    if (n.skip) step_ = {};
    sums_.add(report);
    ++next_round_;
    if (skipped_in_a_row_ > options_.skip_limit) {
      membership_.together([this] {
        throw non_finite_error(
            queue().place, text(skipped_in_a_row_, " updates in a row were skipped because of gradients that are not finite"),
            text("The model has diverged: start again with a lower learning rate, or raise options::skip_limit"));
      });
    }
    if (checks_habits_) look_for_gradients(plan);
    if (empty_in_a_row_ > options_.empty_limit) {
      membership_.together([this] {
        throw usage_error(queue().place, text(empty_in_a_row_, " steps in a row weighed nothing on any rank"),
                          text("Tell accumulated the samples of each micro-batch, or raise options::empty_limit"));
      });
    }
    return report;
  }

  /// Norms of the mean gradient of each group, or tensor, where they are wanted.
  void tell_norms() noexcept {
    if (norms_.empty()) return;
    round_norms<Storage> const& found = works_.norms();
    std::fill(norms_.begin(), norms_.end(), 0.0);
    const bool of_groups = options_.norms == norm_detail::groups;
    for (std::size_t k = 0; k < layout_.tensor_count() && !of_groups; ++k) {
      if (const std::size_t region = found.regions().of_tensor(k); region != update_regions::none)
        norms_[k] = found.squares(region);
    }
    for (std::size_t r = 0; r < found.regions().size() && of_groups; ++r)
      norms_[found.regions()[r].clips_with] += found.squares(r);
    for (std::size_t g = 0; g < norms_.size() && of_groups; ++g) norms_[g] = norms_[layout_.clips_with(g)];
    round_numbers const& n = works_.numbers();
    const double weight = n.step_weight * n.loss_scale;
    for (double& each : norms_) each = weight > 0 ? gradient_norm(each, weight) : 0;
  }

  /// Throws, on every rank alike, where gradients are missing on all of them, or nothing is learned from them.
  void look_for_gradients(round_plan const& plan) {
    round_numbers const& n = works_.numbers();
    if (commits(plan) && n.step_weight > 0 && !n.skip) {
      silent_steps_ = n.squares_all == 0 ? silent_steps_ + 1 : 0;
      had_gradients_ = had_gradients_ || n.squares_all != 0;
      idle_steps_ = rate_ == 0 ? idle_steps_ + 1 : 0;
    }
    if (idle_steps_ > std::max(options_.empty_limit, habit_watch<Storage>::silent_parts)) {
      membership_.together([&] {
        throw usage_error(queue().place, text("the learning rate has been 0 in ", idle_steps_, " steps in a row"),
                          text("Shapes count samples: where warm-up and total are meant in steps, write acco::in_steps{...}. "
                               "Where this is meant, raise options::empty_limit, or set check_habits = habit_checks::off"));
      });
    }
    const double unseen = n.all.unseen, ranks = backend().size();
    const bool same = unseen > 0 && ranks * n.all.unseen_squared == unseen * unseen;
    if ((silent_steps_ == 0 || silent_steps_ < (had_gradients_ ? options_.empty_limit : habit_watch<Storage>::silent_parts)) &&
        !(same && had_gradients_))
      return;
    membership_.together([&] {
      if (same && had_gradients_) habits_.raise_unseen(queue().place);
      throw usage_error(
          queue().place,
          text("gradients() stayed zero on all ranks, in ", silent_steps_,
               " steps in a row, though the micro-batches have a weight"),
          text("Add to the span that gradients() returns now: not to one of before the last report, nor to tensors that a "
               "zero_grad has detached from it. Where this is meant, options::check_habits = habit_checks::off"));
    });
  }

  [[nodiscard]] round_report describe_round(computation_times const& computation) const {
    round_numbers const& n = works_.numbers();
    return {.round = next_round_,
            .plan = works_.plan(),
            .committed = showing_committed_,
            .skipped = n.skip,
            .step = steps_,
            .samples = samples_,
            .weight = n.all.weight,
            .mean_loss = n.all.weight > 0 ? n.all.loss_sum / n.all.weight : 0,
            .step_weight = step_.weight,
            .step_loss = step_.weight > 0 ? step_.loss_sum / step_.weight : 0,
            .gradient_norm = n.norm,
            .clip_scale = n.clip,
            .loss_scale = n.loss_scale,
            .learning_rate_scale = rate_,
            .micro_batches = carried_micro_batches_,
            .first = schedule_->minimum(step_part::first),
            .second = schedule_->minimum(step_part::second),
            .compute_seconds = computation.computed.seconds(),
            .communication_seconds = works_.times().seconds(),
            .exposed_seconds = computation.exposed,
            .bytes_sent = works_.bytes(),
            .progress = progress_policy(),
            .computing = computation.computed,
            .communicating = works_.times()};
  }

  std::unique_ptr<schedule_in_use<works_type>> schedule_;
  Rule rule_;
  parameter_layout layout_;
  options options_;
  bool waits_;  // whether the computation waits for rounds
  partition shares_;
  adopted_memory adopted_;  // the trainer's arrays that the accumulator works in
  bool checks_habits_;
  gradient_accumulator<Storage> accumulator_;
  habit_watch<Storage> habits_;

  // The trainer's side.
  loss_scaler scaler_;
  std::vector<double> norms_;  // of the round that landed last
  round_counts mine_;          // of the micro-batches since the last boundary
  std::size_t micro_batches_ = 0;
  std::size_t next_round_ = 0;  // the round that starts next, or is in flight
  bool in_flight_ = false;
  bool quiet_ = true;  // the next launch must not move the trainer's spans
  bool showing_committed_ = true;
  bool showing_masters_ = true;  // the committed parameters exactly, not a copy that arrived as encoded differences
  std::uint64_t steps_ = 0;      // updates committed
  double samples_ = 0;           // weight committed
  round_counts step_;            // of the rounds of the step so far, over all ranks
  std::size_t skipped_in_a_row_ = 0, empty_in_a_row_ = 0, silent_steps_ = 0, idle_steps_ = 0;
  bool had_gradients_ = false;
  double seconds_of_[2] = {};  // of the last estimate and commit
  round_totals sums_;
  std::exception_ptr put_off_;  // thrown by the next call

  // Of the round in flight, as the trainer's thread knows it.
  bool sends_differences_ = false;  // parameters travel encoded
  std::size_t carried_micro_batches_ = 0;
  double rate_ = 1;

  works_type works_;  // its queue's threads use what is above
  membership<Backend> membership_{works_.backend()};
};

}  // namespace ACCO_ENGINE_NAMESPACE
