// SPDX-License-Identifier: Apache-2.0
// A GPT with experts, and the dense one that computes as much for each token, on the same text: four ranks, in two
// groups of two that own two experts each.
//
//   experts [--gloo] [FILE [STEPS]]     the text, or the repository's own; steps of each training, 1000
//
// Ranks are threads; with --gloo this process is the one that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#if defined(EXAMPLE_GLOO)
#include <acco/gloo.hpp>
#endif

#include "../toy_gpt/text.hpp"
#include "trainer.hpp"

namespace {

constexpr int ranks = 4;

struct outcome {
  std::vector<double> losses;  // of each step
  double validation = 0;       // nats a byte
  std::size_t parameters = 0;  // of all experts, and dense
  std::vector<double> parts;   // of the validation's tokens that chose each expert
  double dropped = 0;          // of them, that found no slot
};

template <class World>
outcome train(World const& world, experts::settings const& s, toy_gpt::corpus const& text, std::uint64_t validations) {
  toy_gpt::use_one_thread_for_products();
  experts::trainer<float, World> training(s, world);
  outcome found;
  const auto rank = static_cast<std::uint64_t>(world.rank());
  toy_gpt::batch data;
  for (std::uint64_t k = 0; training.dense().samples() < s.tokens; ++k) {
    text.draw(data, s.sequences, s.seed, rank, k);
    auto const report = training.micro_batch(data);
    if (report && commits(report->plan)) found.losses.push_back(report->step_loss);
  }
  training.finish();

  const std::size_t n = s.model.experts.experts;
  std::vector<double> sums(n + 4);  // tokens by expert, without a slot, of all layers; loss, tokens
  for (std::uint64_t k = 0; k < validations; ++k) {
    text.draw_validation(data, s.sequences, k * ranks + rank);
    sums[n + 2] += training.loss(data);
    sums[n + 3] += static_cast<double>(data.targets.size());
    for (std::size_t l = 0; l < s.model.trunk.layers; ++l) {
      auto const& layer = training.network().experts_of(l);
      for (std::size_t e = 0; e < n; ++e) sums[e] += static_cast<double>(layer.tokens()[e]);
      sums[n] += static_cast<double>(layer.dropped());
      sums[n + 1] += static_cast<double>(data.targets.size());
    }
  }
  training.dense().sum_over_ranks(sums);
  found.validation = sums[n + 2] / sums[n + 3];
  found.parameters = training.dense().layout().size() + s.model.experts.owners * training.own().layout().size();
  for (std::size_t e = 0; e < n; ++e) found.parts.push_back(sums[e] / sums[n + 1]);
  found.dropped = sums[n] / sums[n + 1];
  return found;
}

double mean_before(std::vector<double> const& losses, std::size_t end, std::size_t steps) {
  double sum = 0;
  for (std::size_t k = end - steps; k < end; ++k) sum += losses[k];
  return sum / static_cast<double>(steps);
}

/// Every rank's; rank 0 prints.
template <class World>
void compare(World const& world, toy_gpt::corpus const& text, std::size_t steps) {
  if (world.size() != ranks)
    throw std::invalid_argument("there are " + std::to_string(world.size()) + " ranks: start " + std::to_string(ranks));
  experts::settings s;
  s.tokens = static_cast<double>(steps * ranks * (s.pace.first + s.pace.second) * s.sequences * s.model.trunk.context);
  const std::uint64_t validations = std::min<std::uint64_t>(steps, 16);  // of each rank
  const outcome sparse = train(world, s, text, validations);
  s.model.experts = {.experts = 1, .owners = 1, .capacity = 1, .auxiliary = 0};
  const outcome dense = train(world, s, text, validations);
  if (world.rank() != 0) return;
  std::printf("loss in nats a byte      4 experts    dense\n");
  const std::size_t lines = steps < 10 ? steps : 10;
  for (std::size_t k = 1; k <= lines; ++k) {
    const std::size_t end = k * steps / lines;
    std::printf("  up to step %4zu          %8.4f %8.4f\n", end, mean_before(sparse.losses, end, steps / lines),
                mean_before(dense.losses, end, steps / lines));
  }
  std::printf("  validation              %8.4f %8.4f\nparameters                %8zu %8zu\n", sparse.validation, dense.validation,
              sparse.parameters, dense.parameters);
  std::printf("validation tokens by expert:");
  for (const double part : sparse.parts) std::printf(" %.0f %%", 100 * part);
  std::printf("; without a slot %.1f %%\n", 100 * sparse.dropped);
}

}  // namespace

int main(int count, char** words) {
  try {
    const bool gloo = count > 1 && words[1] == std::string("--gloo");
    const int file = gloo ? 2 : 1;
    const experts::settings s;
    const toy_gpt::corpus text(count > file ? toy_gpt::read_file(words[file]) : toy_gpt::repository_text(TOY_GPT_REPOSITORY),
                               s.model.trunk.context);
    const long steps = count > file + 1 ? std::atol(words[file + 1]) : 1000;
    if (steps < 1) throw std::invalid_argument(std::string(words[file + 1]) + " steps: give 1 or more");
    const auto each_rank = [&](auto const& world) { compare(world, text, static_cast<std::size_t>(steps)); };
    if (!gloo) {
      acco::threads_backend::run(ranks, each_rank);
      return 0;
    }
#if defined(EXAMPLE_GLOO)
    return acco::gloo_backend::run(each_rank);
#else
    throw std::runtime_error(
        "built without Gloo: apt-get install libgloo-dev: with CMake configure again, else compile with -DEXAMPLE_GLOO and "
        "-lgloo");
#endif
  } catch (std::exception const& e) {
    std::fprintf(stderr, "experts: %s\n", e.what());
    return 1;
  }
}
