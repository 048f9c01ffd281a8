// SPDX-License-Identifier: Apache-2.0
// Votes on a device: 256 numbers a warp, eight a lane.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "acco/code/majority_vote.hpp"
#include "acco/cuda/coding.cuh"
#include "acco/cuda/launch.cuh"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// Word lane % 8 of the votes has those of four lanes.
template <>
struct device_encoding<majority_vote> {
  using arithmetic = vote_code;
  using values = block_values<majority_vote>;

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    std::uint32_t largest = 0, votes = 0;
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      const auto bits = std::bit_cast<std::uint32_t>(x.value[k]);
      const std::uint32_t magnitude = bits & arithmetic::magnitude_mask;
      largest = largest < magnitude ? magnitude : largest;
      votes |= arithmetic::code(bits) << place(k, lane);
    }
    const std::uint32_t size = arithmetic::size_bits(warp_maximum(largest));
    votes |= __shfl_xor_sync(whole_warp, votes, 8);
    votes |= __shfl_xor_sync(whole_warp, votes, 16);
    auto* const words = reinterpret_cast<std::uint32_t*>(to);
    if (lane == 0) store<1>(words, {size});
    if (lane < 8) store<1>(words + 1 + lane, {votes});
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    auto const* const words = reinterpret_cast<std::uint32_t const*>(from);
    const std::uint32_t size = load<1>(words).value[0], votes = load<1>(words + 1 + lane % 8).value[0];
#pragma unroll
    for (unsigned k = 0; k < 8; ++k)
      x.value[k] = std::bit_cast<float>(arithmetic::value_bits(votes >> place(k, lane) & 1U, size));
  }

 private:
  /// Of a lane's k-th number, the bit in the word.
  [[nodiscard]] static __device__ unsigned place(unsigned k, unsigned lane) { return 8 * (k % 4) + 4 * (k / 4) + lane / 8; }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
