// SPDX-License-Identifier: Apache-2.0
// A stranger's program over MPI: compiled and linked wherever the component is found.
#include <cstdio>

#include <acco/acco.hpp>
#include <acco/mpi.hpp>

int main(int count, char** words) {
  return acco::mpi_backend::run(count, words, [](acco::mpi_backend const& world) { std::printf("rank %d\n", world.rank()); });
}
