// SPDX-License-Identifier: Apache-2.0
// The GPU's own time.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// Nanoseconds, alike on all multiprocessors; steps of about a microsecond.
inline __device__ std::uint64_t global_nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
/// Lets other threads of the multiprocessor go on.
inline __device__ void nap() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  __nanosleep(1000);
#endif
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
