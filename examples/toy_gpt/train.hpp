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

#include "interrupt.hpp"
#include "progress.hpp"
#include "runner.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

inline acco::options options_of(settings const& s) {
  return {.clip_norm = s.clip,
          .learning_rate = acco::warmup_cosine{.warmup = std::min(s.warmup, static_cast<double>(s.samples)),
                                               .total = static_cast<double>(s.samples)},
          .deadline = s.deadline};
}

/// What a model with these parameters writes after a few words of the validation text.
std::string sample_of(settings const& s, corpus const& text, std::span<float const> parameters);

/// Trains one rank; rank 0 reports. `Model` computes gradients where the parameters are.
template <class Model>
void train_rank(job& one, int rank, Model& model,
                acco::any_optimizer<typename Model::parameter, typename Model::gradient>& training, summary& result) {
  using parameter = typename Model::parameter;
  settings const& s = one.chosen;
  corpus const& text = one.text;
  const bool speaks = rank == 0;

  if (speaks && !s.quiet) print_model(s, model.layout(), training.memory(), text, one.source);
  std::vector<parameter> initial;
  for (const float value : model.initial(s.seed)) initial.push_back(parameter(value));
  training.initialize(initial);
  if (s.progress == "poll") model.between_layers([&training] { training.poll(); });

  progress_line line(s);
  batch data;
  const auto clock = [start = std::chrono::steady_clock::now()] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double paused = 0;  // spent on validation
  double smooth = 0;
  // No loss is that large. A rank that is to stop adds it to its own: all see it in the report of the same round, and end there.
  constexpr double stop_mark = 1e200;
  result.schedule = s.label();
  result.parameters = model.layout().size();

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
    result.validation.push_back({training.samples(), began - paused + (clock() - began), loss});
    if (speaks) line.validated(training.samples(), result.validation.back().seconds, loss);
    return loss;
  };

  const double between_validations = static_cast<double>(s.samples) / static_cast<double>(s.validations);
  double next_validation = between_validations;
  for (std::uint64_t number = 0; training.samples() < static_cast<double>(s.samples); ++number) {
    text.draw(data, s.batch, s.seed, static_cast<std::uint64_t>(rank), number);
    if (rank == s.slow_rank) {
      model.work_in_vain(data, training.parameters());
    }
    const double loss = model.add_gradients(data, training.parameters(), training.gradients());
    const auto report = training.accumulated(static_cast<double>(s.batch), loss + (stop_signal != 0 ? stop_mark : 0));
    if (!report) continue;

    model.begin_round(report->round + 1);
    result.progress = report->progress;
    result.first = report->first;
    result.second = report->second;
    if (one.trace != nullptr) one.trace->record(rank, *report);
    result.stopped = std::isfinite(report->mean_loss) && report->mean_loss > 1e-20 * stop_mark;
    if (result.stopped) break;
    smooth = smooth == 0 ? report->mean_loss : 0.95 * smooth + 0.05 * report->mean_loss;
    if (speaks) {
      const double seconds = clock() - paused;
      if (one.sink) one.sink(*report, seconds);
      if (report->round % 8 == 0) result.training.push_back({training.samples(), seconds, smooth});
      line.show(*report, smooth, seconds, training.totals());
    }
    if (acco::commits(report->plan) && training.samples() >= next_validation &&
        training.samples() < static_cast<double>(s.samples)) {
      next_validation += between_validations;
      if (report->committed) {
        validate(training.parameters());
      } else {  // parameters() are a prediction: ask for the committed ones
        const std::span<parameter> committed = model.room();
        training.gather_committed(committed);
        validate(committed);
      }
    }
  }
  training.finish();
  result.seconds = clock() - paused;
  result.train_loss =
      smooth != 0 ? smooth : std::numeric_limits<double>::quiet_NaN();  // stopped before the first report: null in the log
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
