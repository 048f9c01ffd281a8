// SPDX-License-Identifier: Apache-2.0
// An optimizer of static storage that has not finished outlives MPI_Finalize, as one does where a loop was left: it
// says so, and calls MPI no more.
#include <optional>
#include <vector>

#include <acco/acco.hpp>
#include <acco/mpi.hpp>

namespace {
std::optional<acco::mpi_backend> world;
acco::any_optimizer<double> training;
}  // namespace

int main(int count, char** words) {
  int level = 0;
  MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &level);
  world.emplace(MPI_COMM_WORLD);
  training = acco::optimizer{acco::synchronous{}, acco::sgd{.learning_rate = 0.1}, acco::host_storage<double>{}, *world, 20000};
  training.initialize(std::vector<double>(20000, 0.5));
  for (int step = 0; step < 3; ++step) {
    for (double& g : training.gradients()) g += 1;
    training.accumulated(1);
  }
  MPI_Finalize();
}
