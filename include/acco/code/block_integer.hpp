// SPDX-License-Identifier: Apache-2.0
// Block quantisation: small integers, and one scale a block.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/code/encoding.hpp"
#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The arithmetic of one number, the same on host and device, bit by bit: it multiplies only where the product is
/// exact, or says itself what is fused, so no compiler's choice changes a result.
template <int Bits>
struct integer_code {
  static constexpr int largest = (1 << (Bits - 1)) - 1;
  static constexpr std::int32_t magnitude_mask = 0x7fffffff, infinite = 0x7f800000;
  static constexpr std::int32_t negligible = 0x0d800000;  ///< 2^-100: a block with no larger magnitude travels as zeros
  static constexpr float rounder = 12582912.0F;           ///< 1.5 * 2^23: adding it rounds to nearest even
  static constexpr std::int32_t rounder_bits = 0x4b400000;

  /// The bits of the scale of a block whose largest magnitude has these bits: the smallest number with eight
  /// significant bits such that no code exceeds `largest`. Eight bits of the scale and at most seven of a code make an
  /// exact product. Not a number, where the block holds what is not finite: therefore bits, of which a compiler assumes
  /// nothing.
  [[nodiscard]] static constexpr std::int32_t scale_bits(std::int32_t largest_magnitude) noexcept {
    if (largest_magnitude >= infinite) return 0x7fc00000;
    if (largest_magnitude < negligible) return 0;
    const float exact = std::bit_cast<float>(largest_magnitude) / static_cast<float>(largest);
    return (std::bit_cast<std::int32_t>(exact) + 0xffff) & ~0xffff;
  }
  /// Whether a block with this scale has codes: it holds something, and nothing that is not finite.
  [[nodiscard]] static constexpr bool has_codes(std::int32_t scale_bits) noexcept {
    return scale_bits > 0 && scale_bits < infinite;
  }
  /// The code of a number; 0 < scale.
  [[nodiscard]] static constexpr std::int32_t code(float value, float scale) noexcept { return code_of_quotient(value / scale); }
  [[nodiscard]] static constexpr std::int32_t code_of_quotient(float quotient) noexcept {
    return std::bit_cast<std::int32_t>(quotient + rounder) - rounder_bits;
  }
  /// The code of a quotient, rounded down or up at random: `share` is uniform from 0 to before 2^20, then the mean is
  /// the quotient, to 2^-20. Integers, so that no compiler's choice changes a bit. Of one number, or of a vector;
  /// finite.
  [[nodiscard]] static constexpr std::int32_t code_at_random(float quotient, std::int32_t share) noexcept {
    const std::int32_t code = (static_cast<std::int32_t>(quotient * 0x1p20F) + share) >> 20U;
    return code > largest ? largest : code < -largest ? -largest : code;
  }
  template <class Quotients, class Integers>
  [[nodiscard]] static Integers code_at_random(Quotients quotients, Integers shares) noexcept {
    const Integers codes = (__builtin_convertvector(quotients * 0x1p20F, Integers) + shares) >> 20;
    Integers most{};
    most += largest;  // number/int8_blocks.hpp
    const Integers below = codes > most ? most : codes;
    return below < -most ? -most : below;
  }
  /// Number k of a block has these bits of the block's: by another irrational share of a turn than steps.
  template <class Number>
  [[nodiscard]] static constexpr Number bits_of_number(std::uint32_t random, Number k) noexcept {
    return random + k * 0xc13fa9a9U;
  }
  /// value / scale without a division, for who has 1 / scale: once corrected it is the same number where it makes a
  /// difference, from a quarter of the scale on, because a scale has eight significant bits.
  [[nodiscard]] static constexpr float quotient(float value, float scale, float inverse) noexcept {
    const float near = value * inverse;
    return __builtin_fmaf(__builtin_fmaf(-near, scale, value), inverse, near);
  }
  [[nodiscard]] static constexpr float value(std::int32_t code, float scale) noexcept { return static_cast<float>(code) * scale; }
};

/// A block is a float, the scale, and `Block` codes of `Bits` bits, -largest to largest. |decoded - value| is at most
/// half the scale: 1/2 (1 + 2^-7) / largest of the block's largest magnitude. With four bits byte k holds the codes of
/// the numbers k (low) and k + Block/2 (high).
template <int Bits, std::size_t Block>
struct block_integer {
  static_assert(Bits == 4 || Bits == 8);
  static_assert(Block == 128 || Block == 256 || Block == 512 || Block == 1024,
                "acco: a block of integers has 128, 256, 512 or 1024 numbers");
  static constexpr std::size_t block_size = Block;
  static constexpr std::size_t block_bytes = sizeof(float) + Block * Bits / 8;
  using arithmetic = integer_code<Bits>;

  static void encode(float const* values, std::byte* bytes) noexcept {
    encode_with(values, bytes, [](std::size_t, float const* from, float scale) { return codes_of(from, scale); });
  }
  /// Rounds at random: |decoded - value| is less than the scale.
  static void encode(float const* values, std::byte* bytes, std::uint32_t random) noexcept {
    encode_with(values, bytes,
                [random](std::size_t k, float const* from, float scale) { return codes_at_random(from, scale, random, k); });
  }

  static bool says_non_finite(std::byte const* bytes) noexcept {
    std::int32_t scale_bits = 0;
    std::memcpy(&scale_bits, bytes, sizeof scale_bits);
    return scale_bits >= arithmetic::infinite;
  }
  static void decode(std::byte const* bytes, float* values) noexcept {
    float scale = 0;
    std::memcpy(&scale, bytes, sizeof scale);
    bytes += sizeof scale;
    for (std::size_t i = 0; i < stretch; i += lanes) {
      small narrow;
      std::memcpy(&narrow, bytes + i, sizeof narrow);
      const auto codes = __builtin_convertvector(narrow, integers);
      if constexpr (Bits == 4) {
        put((codes << 28) >> 28, scale, values + i);
        put(codes >> 4, scale, values + stretch + i);
      } else {
        put(codes, scale, values + i);
      }
    }
  }

 private:
  using numbers = pack<float>;
  using integers = numbers::vector_of<std::int32_t>::type;
  using words = numbers::vector_of<std::uint32_t>::type;
  using small = numbers::vector_of<std::int8_t>::type;
  static constexpr std::size_t lanes = numbers::lanes;
  static constexpr std::size_t stretch = Block * Bits / 8;  // bytes of codes

  /// codes(k, from, scale): of the numbers from the k-th on.
  template <class Codes>
  static void encode_with(float const* values, std::byte* bytes, Codes const& codes_from) noexcept {
    const std::int32_t scale_bits = arithmetic::scale_bits(largest_magnitude(values));
    std::memcpy(bytes, &scale_bits, sizeof scale_bits);
    bytes += sizeof scale_bits;
    if (!arithmetic::has_codes(scale_bits)) {
      std::memset(bytes, 0, block_bytes - sizeof scale_bits);
      return;
    }
    const auto scale = std::bit_cast<float>(scale_bits);
    for (std::size_t i = 0; i < stretch; i += lanes) {
      integers codes = codes_from(i, values + i, scale);  // NOLINT(misc-const-correctness): of four bits it changes
      if constexpr (Bits == 4) codes = (codes & 15) | (codes_from(stretch + i, values + stretch + i, scale) << 4);
      const auto narrow = __builtin_convertvector(codes, small);
      std::memcpy(bytes + i, &narrow, sizeof narrow);
    }
  }

  static std::int32_t largest_magnitude(float const* values) noexcept {
    integers most[4] = {};
    for (std::size_t i = 0; i < Block; i += 4 * lanes) {
      for (std::size_t k = 0; k < 4; ++k) {
        integers bits;
        std::memcpy(&bits, values + i + k * lanes, sizeof bits);
        bits &= arithmetic::magnitude_mask;
        most[k] = most[k] < bits ? bits : most[k];
      }
    }
    std::int32_t result = 0;
    for (auto const& each : most) {
      for (std::size_t k = 0; k < lanes; ++k) result = result < each[k] ? each[k] : result;
    }
    return result;
  }
  static integers codes_of(float const* values, float scale) noexcept {
    const auto shifted = (numbers::load(values) / numbers(scale) + numbers(arithmetic::rounder)).value;
    integers bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    return bits - arithmetic::rounder_bits;
  }
  static integers codes_at_random(float const* values, float scale, std::uint32_t random, std::size_t k) noexcept {
    words lane{};
    for (std::size_t i = 0; i < lanes; ++i) lane[i] = static_cast<std::uint32_t>(i);
    const words shifted = arithmetic::bits_of_number(random, lane + static_cast<std::uint32_t>(k)) >> 12U;
    integers share;
    std::memcpy(&share, &shifted, sizeof share);
    return arithmetic::code_at_random((numbers::load(values) / numbers(scale)).value, share);
  }
  static void put(integers codes, float scale, float* values) noexcept {
    const auto decoded = __builtin_convertvector(codes, numbers::vector) * scale;
    std::memcpy(values, &decoded, sizeof decoded);
  }
};

/// Eight bits a number: error at most 1/252 of the block's largest magnitude; 1.016 bytes a number.
template <std::size_t Block = 256>
struct block_int8 : block_integer<8, Block> {
  static constexpr char const* name = "block_int8";
  using says = block_int8;
};
/// Four bits a number: error at most 1/13.8 of the block's largest magnitude; 0.516 bytes a number.
template <std::size_t Block = 256>
struct block_int4 : block_integer<4, Block> {
  static constexpr char const* name = "block_int4";
  using says = block_int4;
};
static_assert(encoding<block_int8<>> && encoding<block_int4<>>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
