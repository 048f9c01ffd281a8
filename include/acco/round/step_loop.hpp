// SPDX-License-Identifier: Apache-2.0
// The trainer's side of rounds: micro-batches become parts, a boundary lands one round and launches the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/adopted_memory.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/membership.hpp"
#include "acco/round/outside_rounds.hpp"
#include "acco/round/run_record.hpp"
#include "acco/round/saving.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/round/tasks.hpp"
#include "acco/round/verdicts.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/storage/storage_traits.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Refers to what an engine owns. At most one round is in flight. All members are called by the trainer's thread.
template <class Storage>
class step_loop {
 public:
  using tasks_type = round_tasks<Storage>;
  using schedule_type = schedule_in_use<Storage>;
  using master_type = typename Storage::master_type;

  step_loop(tasks_type& tasks, schedule_type& schedule, gradient_accumulator<Storage>& accumulator, membership& ranks,
            adopted_memory& adopted, parameter_layout const& layout, options const& chosen, run_record& record,
            saving<Storage>& saves, bool waits)
      : tasks_(tasks),
        schedule_(schedule),
        accumulator_(accumulator),
        membership_(ranks),
        adopted_(adopted),
        layout_(layout),
        options_(chosen),
        record_(record),
        saves_(saves),
        waits_(waits),
        verdicts_(tasks, accumulator, layout, chosen, ranks) {
    if (chosen.norms != norm_detail::total)
      norms_.resize(chosen.norms == norm_detail::groups ? layout.groups().size() : layout.tensor_count(), 0.0);
  }

  [[nodiscard]] bool at_rest() const noexcept { return phase_ == phase::at_rest && micro_batches_ == 0; }
  [[nodiscard]] bool in_flight() const noexcept { return phase_ == phase::in_flight; }
  /// Of the round that landed last, where norms of groups or tensors are wanted.
  [[nodiscard]] std::span<double const> norms() const noexcept { return norms_; }
  /// Its rounds are those of one worker among others.
  void serve_worker() noexcept { saves_.serve_worker(); }
  [[nodiscard]] bool serves_worker() const noexcept { return saves_.of_worker(); }

  /// Ends a micro-batch; ends this rank's part of a round too when the pace says so. Here and below between(report)
  /// acts when a round has landed, before the next one starts: a level around this one replaces masters there.
  template <class Between>
  std::optional<round_report> accumulated(double weight, double loss_sum, Between&& between) {
    begin_call();
    queue().poll();
    mine_.weight += weight;
    mine_.loss_sum += loss_sum;
    ++micro_batches_;
    const step_part part = schedule_.plan(record_.run.round + (in_flight() ? 1 : 0)).part;
    const unsigned least = schedule_.minimum(part), most = schedule_.maximum(part);
    if (least != most) queue().pass();
    if (micro_batches_ < least || (micro_batches_ < most && in_flight() && !queue().over())) return std::nullopt;
    auto report = boundary(between);
    // once, to who sees it: step() sees no other reports
    if (report && commits(report->plan)) report->saved = saves_.news();
    return report;
  }

  // The end, in parts, for who finishes several engines side by side: `begin_finish`, rounds, `end_finish`.

  template <class Between>
  void begin_finish(unfinished rest, Between&& between) {
    begin_call();  // other ranks may still train, and then this one's arrays change
    queue().clock().arrive(micro_batches_);
    if (auto report = in_flight() ? land() : std::nullopt) between(*report);
    mine_.commits_rest = rest == unfinished::commit ? 1 : 0;
  }
  /// Whether that was everything, of every rank.
  template <class Between>
  bool finish_round(unfinished rest, Between&& between) {
    const round_plan plan = schedule_.plan(record_.run.round);
    const bool completes = micro_batches_ != 0 && micro_batches_ >= schedule_.minimum(plan.part);
    mine_.finishing = completes && rest == unfinished::drop ? 0 : 1;
    launch(between);
    auto landed = land();
    if (landed) between(*landed);
    if (!landed) return true;  // nobody had anything left
    return commits(plan) && tasks_.numbers().all.finishing == static_cast<double>(tasks_.backend().size());
  }
  void end_finish() {
    mine_ = {};
    while (!schedule_.starts(record_.run.round)) ++record_.run.round;
    if (visible_ != visible::masters) show_masters();
    rests();
    if (!serves_worker()) saves_.rest();
    membership_.finish();
    adopted_.rest();
    queue().clock().begin();
  }

  // Between rounds, for a level around this one.

  /// This rank's shard of the masters, padding included.
  [[nodiscard]] std::span<master_type> masters() noexcept { return tasks_.state().slice(); }
  /// The masters have been replaced on every rank, and become the parameters in use. What the trainer has accumulated
  /// since the last boundary stays; it was computed at the parameters of before. Collective; blocks; allocates nothing.
  void masters_changed() {
    show_masters();
    replaced_ = true;
  }
  /// Lands the round in flight, if one is, before the next boundary does. Collective; blocks.
  template <class Between>
  void land_now(Between&& between) {
    throw_put_off();
    if (!in_flight()) return;
    queue().clock().arrive(micro_batches_);
    if (auto report = land()) between(*report);
    queue().clock().resume();
  }
  /// The parameters in use have come so far since the gradients of the next round were measured (`norm_limits::moved`).
  void moved(double distance) noexcept { moved_ = distance; }
  /// This rank brings it to the next round (`round_counts::speed`).
  void brings(double speed) noexcept { mine_.speed = speed; }
  /// Sums over the ranks, of the round that has landed last, until the next one starts.
  [[nodiscard]] round_counts const& counts() const noexcept { return tasks_.numbers().all; }

  /// For whoever communicates himself: the round in flight is done, and stays.
  template <class Action>
  void outside_rounds(Action&& action) {
    queue().clock().interrupt();
    settle();
    action();
    queue().clock().go_on();
  }
  /// Updates and weight committed, the round in flight included, whose tasks are done.
  [[nodiscard]] training_position committed() const noexcept {
    round_numbers const& n = tasks_.numbers();
    const bool more = in_flight() && n.apply && commits(tasks_.plan());
    return {record_.run.samples + (more ? n.step_weight : 0), record_.run.steps + (more ? 1 : 0)};
  }
  /// What `finish` has given back to who may adopt it.
  void take_back_memory() {
    if (adopted_.resume()) return;
    throw usage_error(place(), text("another optimizer of this process has adopted this one's arrays since finish()"),
                      text("Let one of them train at a time: finish the other, or end it"));
  }

  // Parameters and state have come from outside (state_transfer.hpp).

  void shows(visible what) noexcept { visible_ = what; }
  /// A state has been restored, and nothing of it is in flight.
  void rests() noexcept {
    phase_ = phase::at_rest;
    compared_ = false;
  }
  /// The round that the state was copied in is in flight again, all its tasks done.
  void goes_on(flight_facts const& flight) {
    record_.flight = flight;
    record_.flight.digests_in_use = compares(record_.run.round);
    if (record_.flight.digests_in_use) tasks_.digest_shown();
    phase_ = phase::in_flight;
  }
  /// Lands it, where the computation waits for rounds.
  template <class Between>
  void land_if_waiting(Between&& between) {
    if (auto report = waits_ && in_flight() ? land() : std::nullopt) between(*report);
  }

  [[nodiscard]] error_place place() const noexcept { return place_in(""); }
  [[nodiscard]] error_place place_in(char const* what) const noexcept {
    return {tasks_.backend().rank(), static_cast<std::int64_t>(record_.run.round), what};
  }
  /// Between the rounds of a training: throws what was put off, takes arrays back, takes part.
  void begin_call() {
    throw_put_off();
    take_back_memory();
    membership_.take_part();
  }
  void leave(std::string_view reason) noexcept {
    if (!serves_worker() || tasks_.backend().size() > 1) membership_.leave(reason);  // a worker alone may go on among others
    if constexpr (queue_traits_of<typename Storage::queue>.works_elsewhere) queue().run_out();
    adopted_.rest();  // nothing is written there any more
  }

 private:
  [[nodiscard]] typename Storage::queue& queue() noexcept { return tasks_.queue(); }
  /// Whether the parameters in use are digested at this round's end, to be compared by the next one.
  [[nodiscard]] bool compares(std::uint64_t round) const noexcept {
    return digests<Storage> && tasks_.backend().size() > 1 && options_.compare_every != 0 &&
           (round + 1) % options_.compare_every == 0;
  }
  /// Lands the round in flight, launches the next one.
  template <class Between>
  std::optional<round_report> boundary(Between&& between) {
    queue().clock().arrive(micro_batches_);
    auto report = in_flight() ? land() : std::nullopt;
    if (report) {
      between(*report);
      try {
        launch(between);
      } catch (...) {  // what has landed is reported; the next call throws
        put_off();
      }
    } else {
      launch(between);
    }
    if (waits_) {
      report = land();
      if (report) between(*report);
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

  /// between.starting(whether a step begins), where there is one, acts before gradients leave, and tells what it sent.
  template <class Between>
  void launch(Between&& between) {
    std::uint64_t sent = 0;  // NOLINT(misc-const-correctness): of some it is told
    if constexpr (requires { between.starting(true); }) sent = between.starting(begins_step(schedule_, record_.run.round));
    launch();
    tasks_.has_sent_before(sent);
  }
  void launch() {
    run_counters const& run = record_.run;
    const round_plan plan = schedule_.plan_of(run.round, place());
    queue().place = place_in(label_of(plan));
    const double rate = options_.rate_at({run.samples, run.steps}, queue().place);
    const bool rested = phase_ == phase::at_rest;
    tasks_.carry(accumulator_.launch(queue(), rested, plan.keeps), plan);
    const bool late = !std::exchange(replaced_, false) && !rested && !waits_;
    phase_ = phase::computing;
    record_.flight = {
        .plan = plan,
        .rate = rate,
        .micro_batches = std::exchange(micro_batches_, 0),
        .digests_state = options_.digest_every != 0 && commits(plan) && (run.steps + 1) % options_.digest_every == 0,
        .digests_in_use = compares(run.round)};
    round_counts carried = mine_;
    if (plan.keeps) {
      if (options_.in_place) tasks_.encode_kept(schedule_.keeper(plan, queue().place));
    } else {
      mine_ = {.commits_rest = mine_.commits_rest};
    }
    carried.rate = rate;
    carried.saving = saves_.launch(commits(plan));
    if (std::exchange(compared_, false)) carried.shown = digest_words::of(tasks_.shown());
    if (schedule_.measures() && record_.flight.micro_batches != 0) {
      carried.micro_batch_seconds = queue().clock().micro_batch_seconds();
      carried.estimate_seconds = run.estimate_seconds;
      carried.commit_seconds = run.commit_seconds;
    }
    phase_ = phase::in_flight;
    queue().clock().start();
    tasks_.begin(carried,
                 {run.steps, run.samples, rate, options_.loss_scale, commits(plan) ? record_.spikes.most() : 0, late, moved_});
    accumulator_.empty(queue());
    auto const& wire = schedule_.wire(plan);
    record_.flight.differences = !plan.exact && wire.differs(commits(plan) ? run.steps + 1 : 0);
    tasks_.enqueue(*wire.up, wire.differs() && !record_.flight.differences ? *wire.exact : *wire.down, schedule_.learner());
    round_end<Storage> wanted{.shown = record_.flight.digests_in_use, .state = record_.flight.digests_state};
    saves_.enqueue(wanted);
    tasks_.end(wanted);
  }
  /// Waits for the round in flight and brings what it gathered into use. Nothing where the round was empty everywhere.
  std::optional<round_report> land() {
    queue().wait();
    queue().before_computation();
    round_numbers const& n = tasks_.numbers();
    saves_.end();
    saves_.hear(n.all.saving);
    phase_ = phase::computing;
    if (n.nothing) {
      record_.totals.dropped += n.step_weight;
      (void)tasks_.take_flight();
      accumulator_.drop(queue());
      return std::nullopt;
    }
    raise();
    accumulator_.land(queue(), tasks_.take_flight());
    flight_facts const& flight = record_.flight;
    visible_ = !shows_committed(flight.plan) ? visible::prediction
               : flight.differences          ? visible::decoded_commit
                                             : visible::masters;
    compared_ = flight.digests_in_use;
    return record_landing();
  }
  /// The numbers of the round that has landed enter the record, the report and the pace; throws where the run is over.
  round_report record_landing() {
    round_numbers const& n = tasks_.numbers();
    flight_facts const& flight = record_.flight;
    run_counters& run = record_.run;
    const bool commit = commits(flight.plan);
    if (n.apply && commit) {
      if (!flight.counted) tasks_.norms().count_updates(tasks_.state());
      record_.spikes.updated(n.norm);
    }
    if (!norms_.empty()) tasks_.norms().tell(layout_, options_.norms, n.step_weight * n.loss_scale, norms_);
    advance(run, n, flight.plan, tasks_.times().seconds());
    if (schedule_.measures() && !commit && n.all.finishing == 0) {
      const auto ranks = static_cast<double>(tasks_.backend().size());
      schedule_.measured({n.all.micro_batch_seconds / ranks, n.all.estimate_seconds / ranks, n.all.commit_seconds / ranks});
    }
    round_report report = describe(run, n, flight,
                                   {.computation = queue().clock().land(),
                                    .communication = tasks_.times(),
                                    .bytes = tasks_.bytes(),
                                    .first = schedule_.minimum(step_part::first),
                                    .second = schedule_.minimum(step_part::second),
                                    .codes = tasks_.view().codes,
                                    .progress = tasks_.backend().progress_policy()},
                                   visible_ != visible::prediction);
    record_.totals.add(report);
    end_round(run, n);
    verdicts_.look_for_skips(run);
    verdicts_.look_for_weight(run, serves_worker());
    return report;
  }
  /// Before anything else is enqueued behind a round in flight: throws what it found. Every rank that calls a
  /// collective now does, or will when it lands the round.
  void settle() {
    throw_put_off();
    if (!in_flight()) {
      queue().place = place();
      return;
    }
    queue().wait();
    if (!tasks_.numbers().nothing) raise();
  }
  /// Throws what the round has found, on every rank alike. No parameter has changed; the round is over.
  void raise() {
    if (!tasks_.numbers().ends()) return;
    phase_ = phase::computing;
    saves_.end();
    verdicts_.raise(record_.flight.rate);
  }
  void show_masters() {
    auto arriving = accumulator_.arrive();
    queue().after_computation();
    gather_masters(tasks_, arriving.parameters());
    queue().before_computation();
    accumulator_.land(queue(), std::move(arriving));
    visible_ = visible::masters;
  }

  tasks_type& tasks_;
  schedule_type& schedule_;
  gradient_accumulator<Storage>& accumulator_;
  membership& membership_;
  adopted_memory& adopted_;
  parameter_layout const& layout_;
  options const& options_;
  run_record& record_;
  saving<Storage>& saves_;
  bool waits_;  // the computation waits for rounds
  round_verdicts<Storage> verdicts_;

  phase phase_ = phase::at_rest;
  visible visible_ = visible::masters;
  round_counts mine_;  // of the micro-batches since the last boundary
  std::size_t micro_batches_ = 0;
  bool compared_ = false;  // the round that landed last has digested the parameters in use, for the next one to compare
  bool replaced_ = false;  // the masters were, since the last round started
  double moved_ = 0;
  std::vector<double> norms_;
  std::exception_ptr put_off_;  // thrown by the next call
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
