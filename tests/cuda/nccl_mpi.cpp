// SPDX-License-Identifier: Apache-2.0
// One process of an MPI job asks NCCL for a world: it gets one where there is a GPU, and NCCL's reason where there is
// none.
#include <cstdio>

#include <acco/cuda/nccl_mpi.hpp>

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int devices = 0, code = 1;
  const bool gpu = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  try {
    const acco::nccl_backend world = acco::nccl_from_mpi(MPI_COMM_WORLD, {.deadline = 20});
    std::printf("rank %d of %d\n", world.rank(), world.size());
    code = gpu && world.size() == 1 ? 0 : 1;
  } catch (acco::device_error const& e) {
    std::printf("%s\n", e.what());
    code = gpu ? 1 : 0;
  }
  MPI_Finalize();
  return code;
}
