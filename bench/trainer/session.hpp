// SPDX-License-Identifier: Apache-2.0
// What surrounds the training loop of one rank (examples/toy_gpt/train.hpp): where a run begins or goes on, validation,
// checkpoints, Ctrl-C, what a person sees, and what a run gives back.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <acco/any_optimizer.hpp>

#ifdef TOY_GPT_CHECKPOINTS
#include <acco/checkpoint.hpp>
#endif

#include "bookmark.hpp"
#include "interrupt.hpp"
#include "progress.hpp"
#include "runner.hpp"
#include "settings.hpp"
#include "stop_mark.hpp"
#include "text.hpp"

namespace toy_gpt {

#ifdef TOY_GPT_CHECKPOINTS
inline constexpr bool has_checkpoints = true;
#else
inline constexpr bool has_checkpoints = false;
#endif

/// What a model with these parameters writes after a few words of the validation text.
std::string sample_of(settings const& s, corpus const& text, std::span<float const> parameters);

/// Of one rank; rank 0 speaks. `Training` is an acco::any_optimizer, or has what is used of it.
template <class Model, class Training>
class session {
 public:
  session(job& one, int rank, Model& model, Training& training, summary& result)
      : one_(one),
        s_(one.chosen),
        rank_(rank),
        speaks_(rank == 0),
        model_(model),
        training_(training),
        result_(result),
        line_(s_),
        local_(is_local(s_.schedule)),
        goal_(static_cast<double>(s_.samples)) {
    if (speaks_ && !s_.quiet) print_model(s_, model.layout(), training.memory(), one.text, one.source);
    result_.schedule = s_.label();
    result_.parameters = model.layout().size();
    result_.memory_bytes = training.memory().total();
    here_.next_validation = between_validations();
  }

  /// From the seed's parameters, or from a checkpoint.
  void begin() {
    std::vector<parameter> initial;
    for (const float value : model_.initial(s_.seed)) initial.push_back(parameter(value));
    stop_mark told{};
    double told_weight = 0;  // of a report that the training had told when it was cut, and nobody had heard
    if (s_.resume.empty()) {
      training_.initialize(initial);
    } else if constexpr (has_checkpoints) {
      auto const found = training_.restore(s_.resume);
      here_ = bookmark::of(found.trainers, static_cast<std::size_t>(rank_), s_, one_.text);
      restored_step_ = found.step;
      result_.training = here_.training;
      result_.validation = here_.validation;
      told_weight = found.last_weight;
      told = stop_mark::read(found.last_loss, found.last_weight);
      line_.skip_to(here_.next_line);
      if (speaks_) line_.resumed(found.path, found.samples, found.skipped);
    }
    if (s_.progress == "poll") model_.between_layers([this] { training_.poll(); });
    start_ = std::chrono::steady_clock::now();
    before_ = here_.seconds;
    saved_at_ = training_.steps();
    if (told_weight > 0) {
      if (local_) here_.own += told_weight * s_.ranks / s_.group;
      smoothen(told.mean_loss);
      line_.shown_at(trained());
      if (s_.schedule != "two_phase")
        validate_if_due(s_.schedule != "weight_prediction" && !local_);  // whose cuts come after an estimate
    }
  }

  [[nodiscard]] bool goes_on() const { return !left_ && trained() < goal_ && !result_.stopped; }
  [[nodiscard]] std::uint64_t next_micro_batch() { return here_.next++; }
  /// The loss to report, with a mark where this rank was asked to stop.
  [[nodiscard]] double marked(double loss) {
    const bool marks = stop_signal != 0 && !local_ && !marked_ && !stopping_;
    marked_ = marked_ || marks;
    return stop_mark::grains(loss) + (marks ? stop_mark::size : 0);
  }

  /// A round has ended.
  void landed(acco::round_report& report) {
    marked_ = false;
    if (local_) {
      if (acco::commits(report.plan)) here_.own += report.weight * s_.ranks / s_.group;
      report.samples = here_.own;
    }
    model_.begin_round(report.round + 1);
    result_.progress = report.progress;
    result_.first = report.first;
    result_.second = report.second;
    if (one_.trace != nullptr) one_.trace->record(rank_, report);
    const stop_mark told = stop_mark::read(report.mean_loss, report.weight);
    report.mean_loss = told.mean_loss;
    if (told.stops && !stopping_) {  // on all ranks
      stopping_ = true;
      left_ = s_.save.empty();
      if (left_) return;
      save();  // and go on until it is done: a run that ended first would not be the same
    }
    smoothen(report.mean_loss);
    if (speaks_) {
      const double seconds = clock() - paused_;
      if (one_.sink) one_.sink(report, seconds);
      line_.show(report, here_.smooth, seconds, training_.totals());
    }
    if (report.saved != nullptr) {
      tell(*report.saved);
      result_.stopped = stopping_ && cut_;
    }
    if (acco::commits(report.plan)) committed(report);
  }

  /// The loop has ended.
  void leave() {
    const bool too_late = (stopping_ && s_.save.empty()) || (local_ && stop_signal != 0);  // for an earlier end
    result_.stopped = result_.stopped || too_late;
  }
  /// The training has ended, too.
  void end() {
    if (!s_.save.empty() && (!result_.stopped || local_)) {
      auto const* const newest = training_.saved();
      if ((newest != nullptr && newest->complete() ? newest->step : restored_step_) != training_.steps())
        save();  // and wait for it: nothing is in flight
      if (training_.saved() != nullptr) tell(*training_.saved());
    }
    result_.seconds = clock() - paused_;
    result_.train_loss = here_.smooth != 0 ? here_.smooth
                                           // stopped before the first report: null in the log
                                           : std::numeric_limits<double>::quiet_NaN();
    result_.validation_loss = validate(training_.parameters());
    result_.samples = training_.samples();
    result_.steps = training_.steps();
    result_.samples_per_second = result_.samples / result_.seconds;
    auto const& totals = training_.totals();
    result_.hidden_fraction = totals.hidden_fraction();
    result_.bytes_sent = totals.bytes_sent;
    result_.rounds = totals.rounds;
    result_.compute_seconds = totals.compute_seconds;
    result_.communication_seconds = totals.communication_seconds;
    result_.exposed_seconds = totals.exposed_seconds;
    double means[] = {totals.compute_seconds / s_.ranks, totals.communication_seconds / s_.ranks};
    training_.sum_over_ranks(means);
    result_.mean_compute_seconds = means[0];
    result_.mean_communication_seconds = means[1];
    if (!speaks_) return;
    line_.close();
    if (!s_.quiet && s_.compare.size() < 2) one_.sample = sample_of(s_, one_.text, model_.on_host(training_.parameters()));
  }

 private:
  using parameter = typename Model::parameter;

  [[nodiscard]] double clock() const {
    return before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  [[nodiscard]] double between_validations() const { return goal_ / static_cast<double>(s_.validations); }
  /// Under local updates samples() are those that the anchor holds, of exchanges that have landed; here all that have
  /// been trained on.
  [[nodiscard]] double trained() const { return local_ ? here_.own : training_.samples(); }

  /// A step has been committed.
  void committed(acco::round_report const& report) {
    // the end is saved in end(), once
    const bool last = trained() >= goal_;
    // the anchor makes several at once
    const bool due = local_ ? report.step / s_.save_every != saved_at_ / s_.save_every
                            : report.step % s_.save_every == 0 && report.step != saved_at_;
    if (!s_.save.empty() && !stopping_ && !last && due) {
      saved_at_ = report.step;
      save();
    }
    if (!result_.stopped) validate_if_due(report.committed);
    if (local_) result_.stopped = one_.stop.reached(++own_steps_, stop_signal != 0);
  }

  double validate(std::span<parameter const> parameters) {
    constexpr std::size_t batches = 24;
    const double began = clock();
    double numbers[] = {0.0, 0.0};  // loss, sequences
    for (std::size_t k = static_cast<std::size_t>(rank_); k < batches; k += static_cast<std::size_t>(s_.ranks)) {
      one_.text.draw_validation(data_, 16, k);
      numbers[0] += model_.loss(data_, parameters);
      numbers[1] += 16;
    }
    training_.sum_over_ranks(numbers);
    const double loss = numbers[0] / numbers[1];
    paused_ += clock() - began;
    result_.validation.push_back({trained(), began - paused_ + (clock() - began), loss});
    if (speaks_) line_.validated(trained(), result_.validation.back().seconds, loss);
    return loss;
  }
  void validate_if_due(bool shows_committed) {
    if (trained() < here_.next_validation || trained() >= goal_) return;
    here_.next_validation += between_validations();
    if (shows_committed) {
      validate(training_.parameters());
    } else {  // parameters() are a prediction: ask for the committed ones
      const std::span<parameter> room = model_.room();
      training_.gather_committed(room);
      validate(room);
    }
  }
  void smoothen(double loss) {
    here_.smooth = here_.smooth == 0 ? loss : 0.95 * here_.smooth + 0.05 * loss;
    if (speaks_ && here_.rounds % 8 == 0) result_.training.push_back({trained(), clock() - paused_, here_.smooth});
    ++here_.rounds;
  }
  void save() {
    cut_ = false;
    if constexpr (has_checkpoints) {
      training_.save(s_.save, [this] {
        cut_ = true;
        bookmark now = here_;
        now.seconds = clock() - paused_;
        now.next_line = line_.next_share();
        now.training = result_.training;
        now.validation = result_.validation;
        return now.words(s_, one_.text);
      });
    }
  }
  void tell(acco::save_outcome const& saved) {
    result_.unsaved = !saved.complete();
    result_.saved = saved.complete() ? saved.path : saved.problem;
    if (speaks_) line_.saved(result_);
  }

  job& one_;
  settings const& s_;
  int rank_;
  bool speaks_;
  Model& model_;
  Training& training_;
  summary& result_;
  progress_line line_;
  bool local_;
  double goal_;

  bookmark here_;
  batch data_;  // to validate
  std::chrono::steady_clock::time_point start_;
  double before_ = 0, paused_ = 0;  // seconds: of the run before this one; spent on validation
  std::uint64_t own_steps_ = 0, saved_at_ = 0, restored_step_ = 0;
  bool marked_ = false, stopping_ = false, left_ = false;
  bool cut_ = false;  // since the last save was asked for
};

}  // namespace toy_gpt
