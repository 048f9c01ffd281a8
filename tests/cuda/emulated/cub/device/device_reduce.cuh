// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_runtime_api.h"

namespace cub {
struct DeviceReduce {
  template <class In, class Out, class Plus, class Transform, class T>
  static cudaError_t TransformReduce(void* scratch, std::size_t& bytes, In in, Out out, std::size_t count, Plus plus,
                                     Transform transform, T start, cudaStream_t on) {
    bytes = 64;
    if (scratch == nullptr) return cudaSuccess;
    emulated::of(on).enqueue([=] {
      T total = start;
      for (std::size_t i = 0; i < count; ++i) total = plus(total, transform(in[i]));
      *out = total;
    });
    return cudaSuccess;
  }
};
}  // namespace cub
