// SPDX-License-Identifier: Apache-2.0
// One bit a number, its sign: summed over the ranks, a vote.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/code/block_scale.hpp"
#include "acco/code/block_sign.hpp"
#include "acco/code/encoding.hpp"
#include "acco/opaque.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The arithmetic of one number, the same on host and device.
struct vote_code : sign_code {
  static constexpr std::uint32_t magnitude_mask = 0x7fffffffU, infinite = 0x7f800000U, one = 0x3f800000U;
  /// The bits of what a block with this largest magnitude votes with: 1; 0, where it holds nothing; not a number.
  [[nodiscard]] static constexpr std::uint32_t size_bits(std::uint32_t largest) noexcept {
    return largest >= infinite ? 0x7fc00000U : largest == 0 ? 0U : one;
  }
  /// The bits of a vote.
  [[nodiscard]] static constexpr std::uint32_t value_bits(std::uint32_t code, std::uint32_t size_bits) noexcept {
    return size_bits == one ? one | code << 31U : size_bits;
  }
};

/// signSGD with majority vote (Bernstein et al., arXiv 1810.05291, Algorithm 1): a number is its sign, 1 or -1. The sum
/// over the ranks is votes for less votes against, and a rule that takes its sign moves as most ranks want:
/// `lion{.beta1 = 0}`. The sum is exact, so the order of ranks changes no bit. Where it is 0, such a rule does not
/// move: an even split is no majority. Every rank has one vote, however many samples it has seen.
///
/// A bit cannot say 0: a 0, +0 or -0, votes for positive, in a block that holds something. A block of zeros abstains,
/// and so does a rank without samples. A layout with `update_group::leave_without_gradient` refuses it.
///
/// A block is a float (1; 0: it abstains) and its signs (`block_signs`): 36 bytes for 256 numbers, 0.141 a number. For
/// gradients: sizes are lost, so parameters do not travel in it, and no feedback knows what was lost.
struct majority_vote {
  static constexpr char const* name = "majority_vote";
  static constexpr std::size_t block_size = block_signs::size;
  static constexpr std::size_t block_bytes = sizeof(float) + block_signs::bytes;
  static constexpr bool biased = true, loose = true, unscaled = true, no_zero = true;
  using arithmetic = vote_code;

  static void encode(float const* values, std::byte* bytes) noexcept {
    const std::uint32_t size = arithmetic::size_bits(largest_magnitude<block_size>(values));
    std::memcpy(bytes, &size, sizeof size);
    block_signs::put(values, bytes + sizeof size);
  }
  static void decode(std::byte const* bytes, float* values) noexcept {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes, sizeof size);
    if (size == arithmetic::one) return block_signs::take(bytes + sizeof size, size, values);
    std::fill_n(values, block_size, std::bit_cast<float>(opaque(size)));
  }
};
static_assert(encoding<majority_vote>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
