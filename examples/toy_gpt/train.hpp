// SPDX-License-Identifier: Apache-2.0
// The training loop of one rank: the model and acco meet here, through the trainer's API only.
#pragma once

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <acco/acco.hpp>

#include "display.hpp"
#include "gpt.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

/// What a run does with its rounds beside training; called on rank 0 only.
using round_sink = std::function<void(acco::round_report const&, double seconds)>;

/// The model where the parameters of `Storage` are: here on the host, in floats whatever the parameters are stored in.
template <class Storage>
class computation {
 public:
  using parameter = typename Storage::parameter_type;
  using gradient = typename Storage::gradient_type;

  explicit computation(settings const& s) : model_(s.model) {
    if constexpr (!direct) {
      parameters_.resize(layout().size());
      gradients_.resize(layout().size());
    }
  }
  [[nodiscard]] acco::parameter_layout const& layout() const { return model_.layout(); }
  [[nodiscard]] std::vector<float> initial(std::uint64_t seed) const { return model_.initial(seed); }
  /// The storage that works beside this computation.
  [[nodiscard]] Storage attached(Storage storage) const { return storage; }
  /// Called before every layer: the place to poll a network that makes no progress by itself.
  void between_layers(std::function<void()> work) { model_.between_layers = std::move(work); }
  /// A round begins (for profilers).
  void begin_round(std::size_t) {}

  /// Adds the gradient of the summed loss of the batch; returns that sum.
  double add_gradients(batch const& data, std::span<parameter const> parameters, std::span<gradient> gradients) {
    if constexpr (direct) {
      return model_.add_gradients(data, parameters, gradients);
    } else {
      std::fill(gradients_.begin(), gradients_.end(), 0.0F);
      const double loss = model_.add_gradients(data, on_host(parameters), gradients_);
      for (std::size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = gradient(static_cast<float>(gradients[i]) + gradients_[i]);
      return loss;
    }
  }
  /// The same work for nothing: a slower machine.
  void work_in_vain(batch const& data, std::span<parameter const> parameters) {
    gradients_.assign(layout().size(), 0.0F);
    model_.add_gradients(data, on_host(parameters), gradients_);
  }
  double loss(batch const& data, std::span<parameter const> parameters) { return model_.loss(data, on_host(parameters)); }
  std::span<float const> on_host(std::span<parameter const> parameters) {
    if constexpr (std::is_same_v<parameter, float>) {
      return parameters;
    } else {
      parameters_.assign(parameters.begin(), parameters.end());
      return parameters_;
    }
  }
  /// Room for committed parameters.
  std::span<parameter> room() {
    committed_.resize(layout().size());
    return committed_;
  }

 private:
  static constexpr bool direct = std::is_same_v<parameter, float> && std::is_same_v<gradient, float>;
  gpt<float> model_;
  std::vector<float> parameters_, gradients_;
  std::vector<parameter> committed_;
};

/// Continues a prompt, one byte at a time, at temperature 0.7.
inline std::string generate(gpt<float>& model, shape const& s, std::span<float const> parameters, std::string const& prompt,
                            std::size_t length, std::uint64_t seed) {
  std::string text = prompt;
  std::mt19937_64 generator(seed);
  for (std::size_t k = 0; k < length; ++k) {
    const std::string recent = text.substr(text.size() > s.context ? text.size() - s.context : 0);
    const std::vector<unsigned char> bytes(recent.begin(), recent.end());
    const auto logits = model.logits_after(bytes, parameters);
    std::vector<double> weights;
    const float largest = *std::max_element(logits.begin(), logits.end());
    for (const float logit : logits) weights.push_back(std::exp(static_cast<double>(logit - largest) / 0.7));
    std::discrete_distribution<int> choose(weights.begin(), weights.end());
    text += static_cast<char>(choose(generator));
  }
  return text;
}

/// Trains one rank; rank 0 reports. `schedule`, `rule`, `storage` and `world` are the four types the library is made of.
template <class Schedule, class Rule, class Storage, class World>
void train_rank(settings const& s, corpus const& text, Schedule schedule, Rule rule, Storage storage, World const& world,
                acco::trace* trace, round_sink const& sink, std::string const& source, summary& result, std::string& sample) {
  using parameter = typename Storage::parameter_type;
  const int rank = world.rank();
  const bool speaks = rank == 0;
  computation<Storage> model(s);

  // The three lines that attach a trainer: construct, initialize, and accumulated() below.
  acco::optimizer training{
      schedule,
      rule,
      model.attached(storage),
      world,
      model.layout(),
      acco::options{.clip_norm = s.clip,
                    .learning_rate = acco::warmup_cosine{.warmup = s.warmup, .total = static_cast<double>(s.samples)},
                    .deadline = s.deadline}};
  if (speaks && !s.quiet) print_model(s, model.layout(), training.memory(), text, source);
  std::vector<parameter> initial;
  for (const float value : model.initial(s.seed)) initial.push_back(parameter(value));
  training.initialize(initial);
  if constexpr (requires { world.driver(); }) {
    if (s.progress == "poll") model.between_layers([&training] { training.poll(); });
  }

  progress_line line(s);
  batch data;
  const auto clock = [start = std::chrono::steady_clock::now()] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double paused = 0;  // spent on validation
  double smooth = 0;
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
    const auto report = training.accumulated(static_cast<double>(s.batch), loss);
    if (!report) continue;

    model.begin_round(report->round + 1);
    result.progress = report->progress;
    result.first = report->first;
    result.second = report->second;
    if (trace != nullptr) trace->record(rank, *report);
    smooth = smooth == 0 ? report->mean_loss : 0.95 * smooth + 0.05 * report->mean_loss;
    if (speaks) {
      const double seconds = clock() - paused;
      if (sink) sink(*report, seconds);
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
  result.train_loss = smooth;
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
    if (!s.quiet) {
      text.draw_validation(data, 1, 3);
      const std::string prompt(data.inputs.begin(), data.inputs.begin() + static_cast<std::ptrdiff_t>(s.model.context / 2));
      gpt<float> speaker(s.model);
      sample = generate(speaker, s.model, model.on_host(training.parameters()), prompt, 400, s.seed);
    }
  }
}

}  // namespace toy_gpt
