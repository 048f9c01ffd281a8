// SPDX-License-Identifier: Apache-2.0
// The stand-in's warps: threads run one after the other, so each asks for all.
#pragma once

#include <cstdint>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr unsigned warp_lanes = 32;

template <class Of>
std::int32_t warp_maximum(unsigned, Of&& of) {
  std::int32_t largest = of(0);
  for (unsigned lane = 1; lane < warp_lanes; ++lane) largest = largest < of(lane) ? of(lane) : largest;
  return largest;
}

template <class Of>
double warp_sum(unsigned, Of&& of) {
  double sum = 0;
  for (unsigned lane = 0; lane < warp_lanes; ++lane) sum += of(lane);
  return sum;
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
