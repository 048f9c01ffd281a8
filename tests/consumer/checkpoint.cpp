// SPDX-License-Identifier: Apache-2.0
// A stranger's program with checkpoints: saves, and another training goes on with what was saved.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

namespace {
auto new_training() {
  return acco::optimizer{acco::synchronous{}, acco::sgd{.learning_rate = 0.5}, acco::host_storage<float>{}, acco::solo_backend{},
                         3};
}
void step(auto& training) {
  training.step([](auto parameters, auto gradients) {
    for (std::size_t i = 0; i < parameters.size(); ++i) gradients[i] += parameters[i];
    return 1;
  });
}
}  // namespace

int main(int, char** words) {
  const std::string run = std::string(words[0]) + ".run";
  std::filesystem::remove_all(run);
  auto training = new_training();
  training.initialize(std::vector<float>{1, 2, 3});
  training.save(run, [] { return 42; });
  step(training);
  training.finish();  // waits for what is being written
  auto again = new_training();
  auto const found = again.restore(run);
  if (found.position<int>() == 42 && again.world_digest() == training.world_digest())
    std::printf("restored step %d\n", static_cast<int>(found.step));
}
