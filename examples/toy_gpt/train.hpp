// SPDX-License-Identifier: Apache-2.0
// The training loop of one rank: the model and acco meet here, through the trainer's API only. It knows the optimizer as an
// acco::any_optimizer, so it is compiled once for each type of parameters.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <acco/any_optimizer.hpp>
#include <acco/options.hpp>

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

inline acco::options options_of(settings const& s) {
  return {.clip_norm = s.clip,
          .learning_rate = acco::warmup_cosine{.warmup = std::min(s.warmup, static_cast<double>(s.samples)),
                                               .total = static_cast<double>(s.samples)},
          .deadline = s.deadline};
}

/// What a model with these parameters writes after a few words of the validation text.
std::string sample_of(settings const& s, corpus const& text, std::span<float const> parameters);

/// Trains one rank; rank 0 reports. `Model` computes gradients where the parameters are; `Training` is an acco::any_optimizer, or
/// has what is used of it.
template <class Model, class Training>
void train_rank(job& one, int rank, Model& model, Training& training, summary& result) {
  using parameter = typename Model::parameter;
  settings const& s = one.chosen;
  corpus const& text = one.text;
  const bool speaks = rank == 0;
  progress_line line(s);

  if (speaks && !s.quiet) print_model(s, model.layout(), training.memory(), text, one.source);
  std::vector<parameter> initial;
  for (const float value : model.initial(s.seed)) initial.push_back(parameter(value));
  bookmark here;
  std::vector<point>&curve = result.training, &validated = result.validation;
  const double goal = static_cast<double>(s.samples), between_validations = goal / static_cast<double>(s.validations);
  here.next_validation = between_validations;
  std::uint64_t restored_step = 0;
  double last_loss = 0, last_weight = 0;  // that the training had told when it was cut, and nobody had heard
  if (s.resume.empty()) {
    training.initialize(initial);
  } else if constexpr (has_checkpoints) {
    auto const found = training.restore(s.resume);
    here = bookmark::of(found.trainers, static_cast<std::size_t>(rank), s, text);
    restored_step = found.step;
    curve = here.training;
    validated = here.validation;
    last_weight = found.last_weight;
    last_loss = stop_mark::read(found.last_loss, found.last_weight).mean_loss;
    line.skip_to(here.next_line);
    if (speaks) line.resumed(found.path, found.samples, found.skipped);
  }
  if (s.progress == "poll") model.between_layers([&training] { training.poll(); });

  batch data;
  const auto clock = [start = std::chrono::steady_clock::now(), before = here.seconds] {
    return before + std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double paused = 0;  // spent on validation
  result.schedule = s.label();
  result.parameters = model.layout().size();
  result.memory_bytes = training.memory().total();
  // Under local updates samples() are those that the anchor holds, of exchanges that have landed; here all that have been trained
  // on.
  const bool local = is_local(s.schedule);
  double own = 0;
  std::uint64_t own_steps = 0;
  const auto trained = [&] { return local ? own : training.samples(); };

  constexpr std::size_t validation_batches = 24;
  const auto validate = [&](std::span<parameter const> parameters) {
    const double began = clock();
    double numbers[] = {0.0, 0.0};  // loss, sequences
    for (std::size_t k = static_cast<std::size_t>(rank); k < validation_batches; k += static_cast<std::size_t>(s.ranks)) {
      text.draw_validation(data, 16, k);
      numbers[0] += model.loss(data, parameters);
      numbers[1] += 16;
    }
    training.sum_over_ranks(numbers);
    const double loss = numbers[0] / numbers[1];
    paused += clock() - began;
    validated.push_back({trained(), began - paused + (clock() - began), loss});
    if (speaks) line.validated(trained(), validated.back().seconds, loss);
    return loss;
  };

  const auto validate_if_due = [&](bool committed) {
    if (trained() < here.next_validation || trained() >= goal) return;
    here.next_validation += between_validations;
    if (committed) {
      validate(training.parameters());
    } else {  // parameters() are a prediction: ask for the committed ones
      const std::span<parameter> room = model.room();
      training.gather_committed(room);
      validate(room);
    }
  };
  const auto smoothen = [&](double loss) {
    here.smooth = here.smooth == 0 ? loss : 0.95 * here.smooth + 0.05 * loss;
    if (speaks && here.rounds % 8 == 0) curve.push_back({trained(), clock() - paused, here.smooth});
    ++here.rounds;
  };

  bool cut = false;  // since the last save was asked for
  const auto save = [&] {
    cut = false;
    if constexpr (has_checkpoints) {
      training.save(s.save, [&] {
        cut = true;
        bookmark now = here;
        now.seconds = clock() - paused;
        now.next_line = line.next_share();
        now.training = curve;
        now.validation = validated;
        return now.words(s, text);
      });
    }
  };
  const auto tell = [&](acco::save_outcome const& saved) {
    result.unsaved = !saved.complete();
    result.saved = saved.complete() ? saved.path : saved.problem;
    if (speaks) line.saved(result);
  };

  if (last_weight > 0) {  // what the call of `accumulated` gave back in which the training was cut
    smoothen(last_loss);
    line.shown_at(training.samples());
    if (s.schedule != "two_phase") validate_if_due(s.schedule != "weight_prediction");  // whose cuts come after an estimate
  }
  bool marked = false, stopping = false;
  for (std::uint64_t saved_at = training.steps(); trained() < goal && !result.stopped;) {
    text.draw(data, s.batch, s.seed, static_cast<std::uint64_t>(rank), here.next);
    if (rank == s.slow_rank) {
      model.work_in_vain(data, training.parameters());
    }
    const double loss = stop_mark::grains(model.add_gradients(data, training.parameters(), training.gradients()));
    const bool marks = stop_signal != 0 && !local && !marked && !stopping;
    marked = marked || marks;
    ++here.next;
    auto report = training.accumulated(static_cast<double>(s.batch), loss + (marks ? stop_mark::size : 0));
    if (!report) continue;

    marked = false;
    if (local) {
      if (acco::commits(report->plan)) own += report->weight * s.ranks / s.group;
      report->samples = own;
    }
    model.begin_round(report->round + 1);
    result.progress = report->progress;
    result.first = report->first;
    result.second = report->second;
    if (one.trace != nullptr) one.trace->record(rank, *report);
    const stop_mark told = stop_mark::read(report->mean_loss, report->weight);
    report->mean_loss = told.mean_loss;
    if (told.stops && !stopping) {  // on all ranks
      stopping = true;
      if (s.save.empty()) break;
      save();  // and go on until it is done: a run that ended first would not be the same
    }
    smoothen(report->mean_loss);
    if (speaks) {
      const double seconds = clock() - paused;
      if (one.sink) one.sink(*report, seconds);
      line.show(*report, here.smooth, seconds, training.totals());
    }
    if (report->saved != nullptr) {
      tell(*report->saved);
      result.stopped = stopping && cut;
    }
    if (!acco::commits(report->plan)) continue;
    const bool last = training.samples() >= goal;  // the end is saved below, once
    if (!s.save.empty() && !stopping && !last && report->step % s.save_every == 0 && report->step != saved_at) {
      saved_at = report->step;
      save();
    }
    if (!result.stopped) validate_if_due(report->committed);
    if (local) result.stopped = one.stop.reached(++own_steps, stop_signal != 0);
  }
  result.stopped = result.stopped || (stopping && s.save.empty()) || (local && stop_signal != 0);  // too late for an earlier end
  training.finish();
  if (!s.save.empty() && !result.stopped) {
    auto const* const newest = training.saved();
    if ((newest != nullptr && newest->complete() ? newest->step : restored_step) != training.steps())
      save();  // and wait for it: nothing is in flight
    if (training.saved() != nullptr) tell(*training.saved());
  }
  result.seconds = clock() - paused;
  result.train_loss = here.smooth != 0
                          ? here.smooth
                          : std::numeric_limits<double>::quiet_NaN();  // stopped before the first report: null in the log
  result.validation_loss = validate(training.parameters());
  result.samples = training.samples();
  result.steps = training.steps();
  result.samples_per_second = result.samples / result.seconds;
  result.hidden_fraction = training.totals().hidden_fraction();
  result.bytes_sent = training.totals().bytes_sent;
  result.rounds = training.totals().rounds;
  result.compute_seconds = training.totals().compute_seconds;
  result.communication_seconds = training.totals().communication_seconds;
  result.exposed_seconds = training.totals().exposed_seconds;
  if (speaks) {
    line.close();
    if (!s.quiet && s.compare.size() < 2) one.sample = sample_of(s, text, model.on_host(training.parameters()));
  }
}

}  // namespace toy_gpt
