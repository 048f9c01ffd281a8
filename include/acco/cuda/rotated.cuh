// SPDX-License-Identifier: Apache-2.0
// Codes of turned blocks on a device: the rotation goes through the lanes, sum by sum as on the host.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "acco/code/hadamard.hpp"
#include "acco/code/rotated.hpp"
#include "acco/cuda/access.cuh"
#include "acco/cuda/coding.cuh"
#include "acco/cuda/launch.cuh"
#include "acco/cuda/levels.cuh"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// code/hadamard.hpp, in a warp.
struct device_hadamard {
  using values = device_levels::values;
  static __device__ void turn(values& x, unsigned lane) {
    sign(x, lane);
    transform(x, lane);
  }
  static __device__ void turn_back(values& x, unsigned lane) {
#pragma unroll
    for (float& each : x.value) each *= hadamard::scale;
    transform(x, lane);
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      if (hadamard::flips(static_cast<std::uint32_t>(x.index(k, lane)))) x.value[k] = -x.value[k];
    }
  }

 private:
  static __device__ void sign(values& x, unsigned lane) {
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      const float scaled = x.value[k] * hadamard::scale;
      x.value[k] = hadamard::flips(static_cast<std::uint32_t>(x.index(k, lane))) ? -scaled : scaled;
    }
  }
  static __device__ void pair(float& a, float& b) {
    const float sum = a + b, difference = a - b;
    a = sum;
    b = difference;
  }
  static __device__ void transform(values& x, unsigned lane) {
    auto& v = x.value;
#pragma unroll
    for (unsigned s = 0; s < 8; s += 4) {
      pair(v[s], v[s + 1]);
      pair(v[s + 2], v[s + 3]);
      pair(v[s], v[s + 2]);
      pair(v[s + 1], v[s + 3]);
    }
#pragma unroll
    for (unsigned apart = 1; apart < warp_lanes; apart *= 2) {
#pragma unroll
      for (float& each : v) {
        const float other = __shfl_xor_sync(whole_warp, each, static_cast<int>(apart));
        each = (lane & apart) != 0 ? other - each : other + each;
      }
    }
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) pair(v[k], v[k + 4]);
  }
};

template <class Code>
struct device_encoding<rotated<Code>> : device_levels {
  using flag = std::conditional_t<rotated<Code>::flag_bytes == 4, std::uint32_t, std::uint16_t>;
  static constexpr int resident = 2;  // a lane holds its numbers twice, turned and not

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    device_encoding<Code>::encode(to, lane, turned(to, lane, x));
  }
  static __device__ void encode(std::byte* to, unsigned lane, values const& x, std::uint32_t random) {
    device_encoding<Code>::encode(to, lane, turned(to, lane, x), random);
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    device_encoding<Code>::decode(from, lane, x);
    if (load<1>(reinterpret_cast<flag const*>(from + Code::block_bytes)).value[0] != 0) device_hadamard::turn_back(x, lane);
  }

 private:
  /// What is encoded; says behind the code whether it was turned.
  static __device__ values turned(std::byte* to, unsigned lane, values const& given) {
    const bool turns = hadamard::turns(block_size - count_above(given, 0), largest_magnitude(given));
    values x = given;
    if (turns) device_hadamard::turn(x, lane);  // alike in all lanes
    if (lane == 0) store<1>(reinterpret_cast<flag*>(to + Code::block_bytes), {static_cast<flag>(turns ? 0x01010101U : 0U)});
    return x;
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
