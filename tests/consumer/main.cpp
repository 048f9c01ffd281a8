// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <vector>

#include <acco/acco.hpp>

double rate_from_the_other_unit();

int main() {
  acco::threads_backend::run(2, [](acco::threads_backend world) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::adamw{.learning_rate = rate_from_the_other_unit()}, acco::host_storage<float>{}, world, 5};
    training.initialize(std::vector<float>(5, 1.0F));
    while (training.samples() < 8) {
      for (std::size_t i = 0; i < 5; ++i) training.gradients()[i] += training.parameters()[i];
      training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0 && training.samples() >= 8 && training.parameters()[0] < 1)
      std::printf("committed 8 samples on %d ranks\n", world.size());
  });
}
