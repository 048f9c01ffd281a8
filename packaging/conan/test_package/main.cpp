// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <vector>

#include <acco/acco.hpp>

int main() {
  acco::optimizer training{acco::synchronous{}, acco::sgd{.learning_rate = 0.5}, acco::host_storage<float>{},
                           acco::solo_backend{}, 3};
  training.initialize(std::vector<float>{1, 2, 3});
  training.step([](auto parameters, auto gradients) {
    for (std::size_t i = 0; i < parameters.size(); ++i) gradients[i] += parameters[i];
    return 1;
  });
  std::printf("acco %d.%d.%d: %g %g %g\n", acco::version.major, acco::version.minor, acco::version.patch,
              static_cast<double>(training.parameters()[0]), static_cast<double>(training.parameters()[1]),
              static_cast<double>(training.parameters()[2]));
}
