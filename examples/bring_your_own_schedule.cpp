// SPDX-License-Identifier: Apache-2.0
// A schedule of your own: three rounds a step. Two estimates, each from all gradients of the step so far, then the
// commit.
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <acco/acco.hpp>

// [schedule]
/// Round 3k:   estimate from the first part.
/// Round 3k+1: a better estimate from the first and second part (the reduced first part was kept on its owners).
/// Round 3k+2: commit with all three.
struct three_phase {
  acco::fixed_pace pace = {};

  static constexpr std::size_t period = 3;
  static constexpr char const* name = "three_phase";
  constexpr acco::round_plan plan(std::size_t round) const {
    switch (round % 3) {
      case 0: return {.gradients = acco::carried::fresh, .parameters = acco::update::predict};
      case 1: return {.gradients = acco::carried::kept_and_fresh, .parameters = acco::update::predict};
      default: return {.gradients = acco::carried::kept_and_fresh, .parameters = acco::update::commit};
    }
  }
};
static_assert(acco::schedule<three_phase>);
// [schedule]

int main() {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer training{three_phase{}, acco::adamw{.learning_rate = 0.05}, acco::host_storage<float>{}, world, 10};
    training.initialize(std::vector<float>(10, 1.0F));
    std::size_t commits = 0;
    while (training.samples() < 1200) {
      for (std::size_t i = 0; i < 10; ++i) training.gradients()[i] += training.parameters()[i] + 0.5F;
      auto const report = training.accumulated(1);
      if (!report || !report->committed) continue;
      ++commits;
      if (report->samples != 6 * static_cast<double>(report->step))
        throw std::runtime_error("a step must have three micro-batches of two ranks");
    }
    training.finish();
    if (world.rank() == 0)
      std::printf("three_phase: %zu commits, parameters[0] = %.3f\n", commits, static_cast<double>(training.parameters()[0]));
    if (std::abs(training.parameters()[9] + 0.5F) > 0.05F) throw std::runtime_error("three_phase did not learn");
  });
}
