// SPDX-License-Identifier: Apache-2.0
// A stranger's program with device memory, compiled by any C++ compiler; kernels would be in a .cu file.
#include <cstdio>

#include <acco/acco.hpp>
#include <acco/cuda.hpp>

int main() {
  using storage = acco::cuda_storage<acco::bfloat16>;
  int version = 0;
  std::printf("%zu bytes, runtime %d\n", storage::allocation_size(1000, 0),
              cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0);
}
