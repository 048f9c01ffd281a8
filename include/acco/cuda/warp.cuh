// SPDX-License-Identifier: Apache-2.0
// What 32 threads find out together. All lanes of a warp call these, and all get the result.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr unsigned warp_lanes = 32;
inline constexpr unsigned whole_warp = 0xffffffffU;

/// combine(a, b) over the lanes, in the order of a tree: the same bits in every run.
template <class T, class Combine>
__device__ T over_warp(T mine, Combine combine) {
  for (int distance = static_cast<int>(warp_lanes) / 2; distance > 0; distance /= 2)
    mine = combine(mine, __shfl_xor_sync(whole_warp, mine, distance));
  return mine;
}
template <class T>
__device__ T warp_maximum(T mine) {
  return over_warp(mine, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
__device__ T warp_minimum(T mine) {
  return over_warp(mine, [](T a, T b) { return b < a ? b : a; });
}
template <class T>
__device__ T warp_sum(T mine) {
  return over_warp(mine, [](T a, T b) { return a + b; });
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
