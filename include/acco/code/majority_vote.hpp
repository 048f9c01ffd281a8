// SPDX-License-Identifier: Apache-2.0
// One bit a number, its sign: summed over the ranks, a vote.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/code/encoding.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The arithmetic of one number, the same on host and device. It looks at bits: what a processor flushes to 0 has a
/// sign everywhere.
struct vote_code {
  static constexpr std::uint32_t magnitude_mask = 0x7fffffffU, infinite = 0x7f800000U, one = 0x3f800000U;
  /// 1 for what is below 0. A 0 counts as positive, whatever its own sign.
  [[nodiscard]] static constexpr std::uint32_t code(std::uint32_t bits) noexcept { return bits > 0x80000000U ? 1U : 0U; }
  /// The bits of what a block with this largest magnitude votes with: 1; 0, where it holds nothing; not a number.
  [[nodiscard]] static constexpr std::uint32_t size_bits(std::uint32_t largest) noexcept {
    return largest >= infinite ? 0x7fc00000U : largest == 0 ? 0U : one;
  }
  /// The bits of a vote.
  [[nodiscard]] static constexpr std::uint32_t value_bits(std::uint32_t code, std::uint32_t size_bits) noexcept {
    return size_bits == one ? one | code << 31U : size_bits;
  }
};

/// signSGD with majority vote (Bernstein et al., arXiv 1810.05291, Algorithm 1): a number is its sign, 1 or -1. The sum over
/// the ranks is votes for less votes against, and a rule that takes its sign moves as most ranks want: `lion{.beta1 = 0}`.
/// The sum is exact, so the order of ranks changes no bit. Where it is 0, such a rule does not move: an even split is
/// no majority. Every rank has one vote, however many samples it has seen.
///
/// A bit cannot say 0: a 0, +0 or -0, votes for positive, in a block that holds something. A block of zeros abstains, and so
/// does a rank without samples. A layout with `update_group::leave_without_gradient` refuses it.
///
/// A block is a float (1; 0: it abstains) and 32 bytes, of which byte k has the signs of the numbers k, k + 32, ...
/// k + 224, the first lowest: 36 bytes for 256 numbers, 0.141 a number. For gradients: sizes are lost, so parameters do
/// not travel in it, and no feedback knows what was lost.
struct majority_vote {
  static constexpr char const* name = "majority_vote";
  static constexpr std::size_t block_size = 256;
  static constexpr std::size_t block_bytes = sizeof(float) + block_size / 8;
  static constexpr bool biased = true, loose = true, unscaled = true, no_zero = true;
  using arithmetic = vote_code;

  static void encode(float const* values, std::byte* bytes) noexcept {
    std::uint8_t votes[stretch] = {};
    std::uint32_t largest = 0;
    for (unsigned j = 0; j < 8; ++j) {
      std::uint32_t bits[stretch];
      std::memcpy(bits, values + j * stretch, sizeof bits);
      for (std::size_t k = 0; k < stretch; ++k) {
        const std::uint32_t magnitude = bits[k] & arithmetic::magnitude_mask;
        largest = largest < magnitude ? magnitude : largest;
        votes[k] = static_cast<std::uint8_t>(votes[k] | arithmetic::code(bits[k]) << j);
      }
    }
    const std::uint32_t size = arithmetic::size_bits(largest);
    std::memcpy(bytes, &size, sizeof size);
    std::memcpy(bytes + sizeof size, votes, sizeof votes);
  }
  static void decode(std::byte const* bytes, float* values) noexcept {
    std::uint8_t votes[stretch];
    std::uint32_t size = 0;
    std::memcpy(&size, bytes, sizeof size);
    std::memcpy(votes, bytes + sizeof size, sizeof votes);
    for (unsigned j = 0; j < 8; ++j) {
      std::uint32_t bits[stretch];
      for (std::size_t k = 0; k < stretch; ++k)
        bits[k] = arithmetic::value_bits(static_cast<std::uint32_t>(votes[k]) >> j & 1U, size);
      std::memcpy(values + j * stretch, bits, sizeof bits);
    }
  }

 private:
  static constexpr std::size_t stretch = block_size / 8;
};
static_assert(encoding<majority_vote>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
