// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace emulated {
template <class Work>
void for_each_index(std::size_t count, Work work) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) work(i);
}
}  // namespace emulated

namespace cub {
struct DeviceFor {
  template <class Work>
  static cudaError_t Bulk(std::size_t count, Work work, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    cudaLaunchConfig_t shape{};
    shape.blockDim = dim3(256);
    shape.gridDim = dim3(static_cast<unsigned>((count + 255) / 256));
    shape.stream = stream;
    return cudaLaunchKernelEx(&shape, emulated::for_each_index<Work>, count, work);
  }
};
}  // namespace cub
