// SPDX-License-Identifier: Apache-2.0
// The README's quick start: four ranks in one process fit a parabola. What differs in a real trainer is
// `add_gradients`.
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

#include <acco/acco.hpp>

// ADDS the gradient of the SUM over the batch's samples; returns the sum of their losses.
static double add_gradients(std::span<float const> parameters, std::span<float> gradients) {
  double loss = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float error = parameters[i] - 3.0F;
    loss += 0.5 * error * error;
    gradients[i] += error;
  }
  return loss;
}

int main() {
  // [quick start]
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {  // 4 ranks in this process
    const std::size_t parameter_count = 1000;
    const std::vector<float> initial(parameter_count, 0.0F);

    acco::optimizer training{acco::two_phase{}, acco::adamw{.learning_rate = 0.1}, acco::host_storage<float>{}, world,
                             parameter_count,   acco::options{.clip_norm = 100.0}};
    training.initialize(initial);
    while (training.samples() < 4000) {
      const auto report = training.step([&](std::span<float const> parameters, std::span<float> gradients) {
        return acco::micro_batch_sums{.weight = 1, .loss_sum = add_gradients(parameters, gradients)};
      });
      if (report.step % 100 == 0 && world.rank() == 0) {
        std::printf("step %3llu  loss %8.3f  hidden %3.0f %%\n", static_cast<unsigned long long>(report.step), report.step_loss,
                    100 * report.hidden_fraction());
      }
    }
    training.finish();  // parameters() now holds committed weights on every rank
    if (world.rank() == 0)
      std::printf("parameters[0] = %.3f after %.0f samples\n", static_cast<double>(training.parameters()[0]), training.samples());
    if (std::abs(training.parameters()[999] - 3.0F) > 0.05F) throw std::runtime_error("the parabola was not found");
  });
  // [quick start]
}
