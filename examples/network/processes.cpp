// SPDX-License-Identifier: Apache-2.0
// The smallest training over processes: each is a rank that a launcher has given RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT. They fit a parabola; docs/processes.md starts it.
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <acco/acco.hpp>
#include <acco/gloo.hpp>

int main() {
  return acco::gloo_backend::run([](acco::gloo_backend const& world) {
    acco::optimizer training{acco::two_phase{}, acco::adamw{.learning_rate = 0.1}, acco::host_storage<float>{}, world, 1000};
    training.initialize(std::vector<float>(1000, 0.0F));
    while (training.samples() < 2000) {
      training.step([](auto parameters, auto gradients) {
        for (std::size_t i = 0; i < parameters.size(); ++i) gradients[i] += parameters[i] - 3;
        return 1;
      });
    }
    training.finish();
    if (std::abs(training.parameters()[999] - 3) > 0.05F) throw std::runtime_error("the parabola was not found");
    if (world.rank() == 0)
      std::printf("%d ranks, %.0f samples: %.2f\n", world.size(), training.samples(),
                  static_cast<double>(training.parameters()[0]));
  });
}
