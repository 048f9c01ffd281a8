// SPDX-License-Identifier: Apache-2.0
// Compiled without precompiled headers: what it uses is what any_optimizer.hpp gives.
#include "any_optimizer_user.hpp"

#include <vector>

double add_quadratic(std::span<float const> parameters, std::span<float> gradients, int rank) {
  double loss = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float difference = parameters[i] - 0.01F * static_cast<float>(i % 97) + 0.1F * static_cast<float>(rank);
    gradients[i] += difference;
    loss += 0.5 * static_cast<double>(difference) * static_cast<double>(difference);
  }
  return loss;
}

void train_elsewhere(acco::any_optimizer<float>& training, int rank, int micro_batches) {
  training.initialize(std::vector<float>(training.layout().size(), 1.0F));
  for (int m = 0; m < micro_batches; ++m) {
    const double loss = add_quadratic(training.parameters(), training.gradients(), rank);
    training.accumulated(1 + rank, loss);
  }
  training.finish();
}
