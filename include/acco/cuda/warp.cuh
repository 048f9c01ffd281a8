// SPDX-License-Identifier: Apache-2.0
// What 32 threads find out together.
#pragma once

#include <cstdint>

#include <cub/warp/warp_reduce.cuh>
#include <cuda_runtime.h>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr unsigned warp_lanes = 32;

/// The largest of what of(lane) gives for the lanes of a warp; all lanes call it together.
template <class Of>
__device__ std::int32_t warp_maximum(unsigned lane, Of&& of) {
  using reduce = cub::WarpReduce<std::int32_t>;
  typename reduce::TempStorage unused;  // of a whole warp: shuffles, no shared memory
  const auto larger = [](std::int32_t a, std::int32_t b) { return a < b ? b : a; };
  const std::int32_t mine = reduce(unused).Reduce(of(lane), larger);
  return __shfl_sync(0xffffffffU, mine, 0);
}

/// The sum of what of(lane) gives for the lanes of a warp, in lane 0; all lanes call it together.
template <class Of>
__device__ double warp_sum(unsigned lane, Of&& of) {
  using reduce = cub::WarpReduce<double>;
  typename reduce::TempStorage unused;
  return reduce(unused).Sum(of(lane));
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
