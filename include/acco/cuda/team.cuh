// SPDX-License-Identifier: Apache-2.0
// The threads that share a block of an encoding: the lanes of a warp, or a thread block. What they find out together,
// and who of the block's numbers comes before whom. Whoever looks for the largest numbers counts, 31 times, what lies
// in registers: cub::BlockRadixSort would move all of them through shared memory to find one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "acco/cuda/block_sources.cuh"
#include "acco/cuda/launch.cuh"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

template <std::size_t Block>
struct block_team {
  using values = values_of_block<Block>;
  static constexpr std::size_t warps = values::warps, threads = values::threads, in_one = block_warps / warps;

  static __device__ void meet() {
    if constexpr (warps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  /// Which of the teams of a thread block this is.
  static __device__ std::size_t number() { return threadIdx.x / threads; }

  /// Of whole numbers: the same in any order.
  template <class T, class Combine>
  static __device__ T together(T mine, Combine combine) {
    mine = for_warp(mine, combine);
    if constexpr (warps > 1) {
      __shared__ T of_warps[warps];
      if (threadIdx.x % warp_lanes == 0) of_warps[threadIdx.x / warp_lanes] = mine;
      __syncthreads();
      mine = of_warps[0];
      for (std::size_t w = 1; w < warps; ++w) mine = combine(mine, of_warps[w]);
      __syncthreads();
    }
    return mine;
  }
  template <class T>
  static __device__ T sum(T mine) {
    return together(mine, [](T a, T b) { return a + b; });
  }
  template <class T>
  static __device__ T maximum(T mine) {
    return together(mine, [](T a, T b) { return a < b ? b : a; });
  }
  static __device__ std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }
  /// The bits of the largest magnitude.
  static __device__ std::uint32_t largest_magnitude(values const& x) {
    std::uint32_t most = 0;
#pragma unroll
    for (float const each : x.value) most = most < magnitude(each) ? magnitude(each) : most;
    return maximum(most);
  }
  static __device__ unsigned count_at_least(values const& x, std::uint32_t bits) {
    unsigned some = 0;
#pragma unroll
    for (float const each : x.value) some += magnitude(each) >= bits ? 1U : 0U;
    return sum(some);
  }

  /// Some of a block's numbers, a bit each, in shared memory.
  struct selection {
    static constexpr std::size_t words = Block / 32, of_a_lane = (words + warp_lanes - 1) / warp_lanes;
    std::uint32_t bits[words], before[words], all;

    /// Bit k of `mine`: a thread's k-th number is in it.
    __device__ void make(unsigned thread, unsigned mine) {
      meet();
#pragma unroll
      for (unsigned s = 0; s < values::stretches; ++s) {
        std::uint32_t word = (mine >> (4 * s) & 15U) << (4 * (thread % 8));
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2) word |= __shfl_xor_sync(whole_warp, word, apart);
        if (thread % 8 == 0) bits[values::index(4 * s, thread) / 32] = word;
      }
      meet();
      if (thread < warp_lanes) count(thread);
      meet();
    }
    /// How many come before number i.
    [[nodiscard]] __device__ unsigned rank(std::size_t i) const {
      return before[i / 32] + static_cast<unsigned>(__popc(bits[i / 32] & ((1U << i % 32) - 1)));
    }

   private:
    __device__ void count(unsigned lane) {
      unsigned mine = 0;
      for (std::size_t w = of_a_lane * lane; w < words && w < of_a_lane * (lane + 1); ++w)
        mine += static_cast<unsigned>(__popc(bits[w]));
      unsigned sum = mine;
#pragma unroll
      for (unsigned by = 1; by < warp_lanes; by *= 2) {
        const unsigned other = __shfl_sync(whole_warp, sum, static_cast<int>(lane >= by ? lane - by : lane));
        if (lane >= by) sum += other;
      }
      if (lane == warp_lanes - 1) all = sum;
      sum -= mine;
      for (std::size_t w = of_a_lane * lane; w < words && w < of_a_lane * (lane + 1); ++w) {
        before[w] = sum;
        sum += static_cast<unsigned>(__popc(bits[w]));
      }
    }
  };

  static __device__ void fill(float with, values& x) {
#pragma unroll
    for (float& each : x.value) each = with;
  }
  /// A block in shared memory.
  static __device__ void put(values const& x, unsigned thread, float* to) {
    meet();
#pragma unroll
    for (std::size_t k = 0; k < 4 * values::stretches; ++k) to[values::index(k, thread)] = x.value[k];
    meet();
  }
  static __device__ void take(float const* from, unsigned thread, values& x) {
    meet();
#pragma unroll
    for (std::size_t k = 0; k < 4 * values::stretches; ++k) x.value[k] = from[values::index(k, thread)];
    meet();
  }
  /// Blocks begin at even bytes.
  static __device__ void put_word(std::byte* to, unsigned thread, std::uint16_t word) {
    if (thread == 0) store<1>(reinterpret_cast<std::uint16_t*>(to), {word});
  }
  static __device__ std::uint16_t take_word(std::byte const* from) {
    return load<1>(reinterpret_cast<std::uint16_t const*>(from)).value[0];
  }
  /// byte(i) is byte i, from `begin` to before `end`.
  template <class Byte>
  static __device__ void put_bytes(std::byte* to, unsigned thread, std::size_t begin, std::size_t end, Byte&& byte) {
    for (std::size_t i = begin + thread; i < end; i += threads)
      store<1>(reinterpret_cast<std::uint8_t*>(to) + i, {static_cast<std::uint8_t>(byte(i))});
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
