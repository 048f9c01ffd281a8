// SPDX-License-Identifier: Apache-2.0
// Two optimizers in one program: dense parameters, which all ranks share, and two experts, each of which half of the
// ranks train. `split` makes the world of an expert's ranks; everything else is as in quick_start.cpp.
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

#include <acco/acco.hpp>

// Half the squared distance to a target, in every parameter: ADDS its gradient, returns the loss.
static double add_gradients(std::span<float const> parameters, std::span<float> gradients, float target) {
  double loss = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float error = parameters[i] - target;
    loss += 0.5 * error * error;
    gradients[i] += error;
  }
  return loss;
}

int main() {
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {
    // [split]
    // ranks 0 and 2 train expert 0, ranks 1 and 3 expert 1
    const int expert = world.rank() % 2;
    acco::threads_backend const its_ranks = world.split(expert);  // every rank calls it
    constexpr acco::two_phase schedule{.pace = acco::fixed_pace{1}};
    acco::optimizer dense{schedule, acco::adamw{.learning_rate = 0.1}, acco::host_storage<float>{}, world, 1000};
    acco::optimizer own{schedule, acco::adamw{.learning_rate = 0.1}, acco::host_storage<float>{}, its_ranks, 500};
    // [split]
    dense.initialize(std::vector<float>(1000, 0.0F));
    own.initialize(std::vector<float>(500, 0.0F));
    const float target = 5.0F + static_cast<float>(expert);
    while (dense.samples() < 8000) {
      const double loss = add_gradients(dense.parameters(), dense.gradients(), 3.0F);
      const double loss_of_expert = add_gradients(own.parameters(), own.gradients(), target);
      dense.accumulated(1, loss);
      own.accumulated(1, loss_of_expert);
    }
    dense.finish();
    own.finish();
    if (its_ranks.rank() == 0)
      std::printf("expert %d, %d of %d ranks: %.2f, with dense parameters of %.2f\n", expert, its_ranks.size(), world.size(),
                  static_cast<double>(own.parameters()[0]), static_cast<double>(dense.parameters()[0]));
    if (std::abs(dense.parameters()[999] - 3.0F) > 0.05F || std::abs(own.parameters()[499] - target) > 0.05F)
      throw std::runtime_error("a minimum was not found");
  });
}
