// SPDX-License-Identifier: Apache-2.0
// The stand-in's time is the host's.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline std::uint64_t global_nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}
inline void nap() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
