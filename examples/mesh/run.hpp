// SPDX-License-Identifier: Apache-2.0
// What both programs have in common: a small task, the same training on one rank and unsplit, how they are compared, and
// ranks as threads or processes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <acco/acco.hpp>
#include <acco/make.hpp>
#if defined(EXAMPLE_GLOO)
#include <acco/gloo.hpp>
#endif

#include "part.hpp"
#include "text.hpp"

namespace mesh {

inline constexpr toy_gpt::shape model_shape{.context = 16, .layers = 2, .width = 32, .heads = 4};
inline constexpr std::size_t sequences = 4;  // of a micro-batch
inline constexpr int models = 2, parts = 2;  // so many models of so many parts are the ranks
inline constexpr std::uint64_t seed = 1;

/// So many micro-batches has each part of a step on each rank; a second of 0: there is one part.
struct step_lengths {
  unsigned first, second;
};
[[nodiscard]] inline step_lengths lengths_of(std::string_view schedule) {
  return schedule == "synchronous" ? step_lengths{4, 0} : step_lengths{3, 1};
}

/// Words of a small language, drawn at random.
[[nodiscard]] inline toy_gpt::corpus task() {
  constexpr std::string_view words[] = {"the ", "mesh ", "has ", "two ", "ranks ", "of ", "a ", "model ", "and ", "sums. "};
  std::string text;
  for (std::uint64_t k = 1; text.size() < 40000; ++k) text += words[(k * k * 0x9e3779b97f4a7c15ULL >> 40U) % std::size(words)];
  return {text, model_shape.context};
}

/// The optimizer of either: schedules by name, over any world and layout.
template <class World>
acco::any_optimizer<float> make_training(std::string_view schedule, unsigned ranks_in_one, World const& world,
                                         acco::parameter_layout const& layout, acco::options const& options) {
  using schedules = acco::only<acco::named_schedules, "synchronous", "two_phase", "two_phase+coded">;
  const step_lengths of_rank = lengths_of(schedule);
  return acco::make<schedules>(
      schedule, acco::fixed_pace{.first = of_rank.first * ranks_in_one, .second = of_rank.second * ranks_in_one},
      acco::adamw{.learning_rate = 2e-3, .weight_decay = 0.1}, acco::host_storage<float>{}, world, layout, options);
}
[[nodiscard]] inline acco::options options_of_training() { return {.clip_norm = 1.5}; }

struct step_numbers {
  double loss, norm, clip;
};
[[nodiscard]] inline step_numbers numbers_of(acco::round_report const& report) {
  return {report.step_loss, report.gradient_norm, report.clip_scale};
}

/// One rank with the whole model and the samples of all.
[[nodiscard]] inline std::vector<step_numbers> train_unsplit(std::string_view schedule, std::uint64_t steps) {
  toy_gpt::gpt<float> model(model_shape);
  const toy_gpt::corpus text = task();
  auto training = make_training(schedule, models, acco::solo_backend{}, model.layout(), options_of_training());
  training.initialize(model.initial(seed));
  std::vector<step_numbers> curve;
  toy_gpt::batch batch;
  for (std::uint64_t k = 0; training.steps() < steps; ++k) {
    text.draw(batch, sequences, seed, k % models, k / models);
    const double loss = model.add_gradients(batch, training.parameters(), training.gradients());
    const auto report = training.accumulated(sequences, loss);
    if (report && acco::commits(report->plan)) curve.push_back(numbers_of(*report));
  }
  training.finish();
  return curve;
}

/// Throws where the two trainings differ: the same numbers up to rounding, or, of one that is `coarse`, a loss that is
/// near in the end.
inline void compare(std::string_view schedule, std::vector<step_numbers> const& split, std::vector<step_numbers> const& unsplit,
                    bool coarse) {
  double of_losses = 0, of_norms = 0, end = 0, unsplit_end = 0;
  std::size_t clipped = 0;
  const std::size_t steps = std::min(split.size(), unsplit.size()), last = steps - steps / 4;
  for (std::size_t k = 0; k < steps; ++k) {
    of_losses = std::max(of_losses, std::abs(split[k].loss - unsplit[k].loss) / unsplit[k].loss);
    of_norms = std::max(of_norms, std::abs(split[k].norm - unsplit[k].norm) / unsplit[k].norm);
    clipped += split[k].clip < 1 ? 1 : 0;
    if (k < last) continue;
    end += split[k].loss / static_cast<double>(steps - last);
    unsplit_end += unsplit[k].loss / static_cast<double>(steps - last);
  }
  std::printf("%-16s %3zu steps, %3zu clipped: loss %.4f to %.4f, unsplit %.4f", std::string(schedule).c_str(), steps, clipped,
              split[0].loss, end, unsplit_end);
  if (coarse) {
    std::printf(" (%+.2f %%)\n", 100 * (end / unsplit_end - 1));
  } else {
    std::printf(" (differ by %.1e at most, norms by %.1e)\n", of_losses, of_norms);
  }
  const bool near = coarse ? std::abs(end / unsplit_end - 1) < 0.02 : of_losses < 1e-5 && of_norms < 1e-4;
  if (split.size() != unsplit.size() || !near) throw std::runtime_error("the split model did not train like the whole one");
  if (end > 0.9 * split[0].loss) throw std::runtime_error("nothing was learned: give it more --steps");
  if (clipped == 0 || clipped == steps) throw std::runtime_error("all steps were clipped alike, or none: that tests little");
}

/// All schedules, each beside the unsplit training of it; the coarse one beside the synchronous one. train(world,
/// schedule, steps) returns the curve; the rank that `tells` compares it.
template <class World, class Train>
void run_schedules(World const& world, std::uint64_t steps, bool tells, Train&& train) {
  if (world.size() != models * parts)
    throw std::invalid_argument("there are " + std::to_string(world.size()) + " ranks: start " + std::to_string(models * parts) +
                                ", for as many have their samples in the unsplit training");
  std::vector<step_numbers> synchronous;
  for (char const* const schedule : {"synchronous", "two_phase", "two_phase+coded"}) {
    const auto split = train(world, schedule, steps);
    if (!tells) continue;
    const bool coarse = std::string_view(schedule) == "two_phase+coded";
    const auto unsplit = coarse ? synchronous : train_unsplit(schedule, steps);
    compare(schedule, split, unsplit, coarse);
    if (synchronous.empty()) synchronous = unsplit;
  }
}

/// PROGRAM [--steps N] [--gloo]: ranks are threads, or this process is the one that RANK, WORLD_SIZE, MASTER_ADDR and
/// MASTER_PORT say. each_rank(world, steps).
template <class Function>
int run(int count, char** words, Function&& each_rank) try {
  std::uint64_t steps = 60;
  bool gloo = false;
  for (int k = 1; k < count; ++k) {
    const std::string_view word = words[k];
    if (word == "--gloo") {
      gloo = true;
    } else if (word == "--steps" && k + 1 < count && std::atoi(words[k + 1]) > 0) {
      steps = static_cast<std::uint64_t>(std::atoi(words[++k]));
    } else {
      throw std::invalid_argument("usage: " + std::string(words[0]) + " [--steps N] [--gloo], N 1 or more");
    }
  }
  if (gloo) {
#if defined(EXAMPLE_GLOO)
    return acco::gloo_backend::run([&](acco::gloo_backend const& world) { each_rank(world, steps); });
#else
    throw std::runtime_error(
        "built without Gloo: apt-get install libgloo-dev: with CMake configure again, else compile with -DEXAMPLE_GLOO and "
        "-lgloo");
#endif
  }
  acco::threads_backend::run(models * parts, [&](acco::threads_backend const& world) { each_rank(world, steps); });
  return 0;
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}

}  // namespace mesh
