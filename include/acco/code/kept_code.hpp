// SPDX-License-Identifier: Apache-2.0
// How the few numbers travel that a code keeps of a block, and where they were.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "acco/code/block_integer.hpp"
#include "acco/code/block_scale.hpp"
#include "acco/opaque.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What kept numbers are, in `Bits` bits each, and a word of 16 bits for all of them: small integers with a scale, as
/// `block_integer` has them. The same on host and device, bit by bit.
template <int Bits>
struct kept_code {
  static_assert(Bits == 4 || Bits == 8, "acco: numbers that are kept travel in 2, 4 or 8 bits");
  using arithmetic = integer_code<Bits>;
  float scale;

  explicit constexpr kept_code(std::uint16_t word) noexcept
      : scale(std::bit_cast<float>(opaque(static_cast<std::uint32_t>(word) << 16U))) {}
  /// Of kept numbers of which the largest magnitude has these bits.
  template <class Above>
  [[nodiscard]] static constexpr std::uint16_t word_of(std::uint32_t most, Above&&) noexcept {
    return static_cast<std::uint16_t>(arithmetic::scale_bits(static_cast<std::int32_t>(most)) >> 16);
  }
  /// Whether there are codes: else the block is 0, or not finite.
  [[nodiscard]] static constexpr bool any(std::uint16_t word) noexcept {
    return arithmetic::has_codes(static_cast<std::int32_t>(static_cast<std::uint32_t>(word) << 16U));
  }
  [[nodiscard]] constexpr std::uint8_t code(float value) const noexcept {
    return static_cast<std::uint8_t>(static_cast<std::uint32_t>(arithmetic::code(value, scale)) & ((1U << Bits) - 1));
  }
  [[nodiscard]] constexpr float value(std::uint8_t code) const noexcept {
    return arithmetic::value(static_cast<std::int32_t>(static_cast<std::uint32_t>(code) << (32 - Bits)) >> (32 - Bits), scale);
  }
};

/// In two bits: the sign, and one of two magnitudes, which are fitted to the kept numbers (Lloyd's iteration: each is
/// the mean of those that are nearer to it), as SparseLoCo has them (Sarfi et al., arXiv 2508.15706). The word is the
/// larger magnitude, in five significant bits, and how many sixteenths of it the smaller one is, in the four others.
/// The fit computes with whole numbers, so a sum is the same in any order.
template <>
struct kept_code<2> {
  float lower, upper, middle;
  static constexpr std::uint32_t unit_bits = 20;  ///< magnitudes are whole numbers below 2^20
  static constexpr std::uint64_t counted = std::uint64_t{1} << 40U;

  explicit constexpr kept_code(std::uint16_t word) noexcept
      : lower(0), upper(std::bit_cast<float>(opaque((word & 0x7ff8U) << 16U))), middle(0) {
    const auto ratio = static_cast<float>((word >> 12U & 8U) | (word & 7U));
    lower = upper * (ratio / 16);  // exact, as is the other one
    middle = upper * ((16 + ratio) / 32);
  }
  /// `above(exponent, threshold)`: the sum of units(magnitude, exponent) + `counted` over the kept numbers with not
  /// fewer units than `threshold`.
  template <class Above>
  [[nodiscard]] static constexpr std::uint16_t word_of(std::uint32_t most, Above&& above) noexcept {
    if (most >= 0x7f800000U) return block_scale::not_a_number;
    if (most < static_cast<std::uint32_t>(integer_code<8>::negligible)) return 0;
    const std::uint32_t exponent = most >> 23U;
    const std::uint64_t all = above(exponent, 0U), count = all / counted, sum = all % counted;
    std::uint64_t threshold = sum / count, high = threshold, low = 0;
    for (int pass = 0; pass < 4; ++pass) {
      const std::uint64_t part = above(exponent, static_cast<std::uint32_t>(threshold));
      high = part % counted / (part / counted);
      low = part / counted < count ? (sum - part % counted) / (count - part / counted) : high;
      threshold = (high + low + 1) / 2;
    }
    return word_of_levels(static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(low), exponent);
  }
  /// A magnitude in units of a 2^20th of what is twice the largest one's power of two; smaller parts are left out.
  [[nodiscard]] static constexpr std::uint32_t units(std::uint32_t magnitude, std::uint32_t exponent) noexcept {
    const auto factor = std::bit_cast<float>((253 + unit_bits - exponent) << 23U);
    return static_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * factor);
  }
  [[nodiscard]] static constexpr bool any(std::uint16_t word) noexcept { return (word & 0x7ff8U) - 1U < 0x7f7fU; }
  [[nodiscard]] constexpr std::uint8_t code(float value) const noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_high = (bits & 0x7fffffffU) >= std::bit_cast<std::uint32_t>(middle);
    return static_cast<std::uint8_t>((is_high ? 2U : 0U) | bits >> 31U);
  }
  [[nodiscard]] constexpr float value(std::uint8_t code) const noexcept {
    const float magnitude = (code & 2U) != 0 ? upper : lower;
    return (code & 1U) != 0 ? -magnitude : magnitude;
  }

 private:
  /// high is 2^7 or more: the largest of at most 4096 numbers has 2^19 units or more.
  [[nodiscard]] static constexpr std::uint16_t word_of_levels(std::uint32_t high, std::uint32_t low,
                                                              std::uint32_t exponent) noexcept {
    constexpr std::uint32_t most = 31U << (unit_bits - 5);  // never beyond the range of floats
    std::uint32_t width = 0;
    while (high >> width != 0) ++width;
    const std::uint32_t cut = width - 5, near = (high + (1U << (cut - 1))) >> cut << cut, rounded = near < most ? near : most;
    const std::uint32_t near_ratio = (32 * low + rounded) / (2 * rounded), ratio = near_ratio < 15 ? near_ratio : 15;
    const float level = static_cast<float>(rounded) * std::bit_cast<float>((exponent + 1 - unit_bits) << 23U);
    return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(level) >> 16U) | (ratio & 7U) | (ratio & 8U) << 12U);
  }
};

/// A block of which `Count` numbers are kept: the word, where they were, what they are, each packed from the lowest bit
/// on; an even number of bytes. Places ascend; where fewer are kept, the last one repeats. What wants bytes asks for
/// each alone, so host and device write the same ones.
template <std::size_t Count, std::size_t Block, int Bits>
struct kept_layout {
  static_assert(Block == 256 || Block == 4096, "acco: a block of which few numbers are kept has 256 or 4096 numbers");
  static_assert(Count >= 1 && Count <= Block, "acco: a code keeps 1 to all of a block's numbers");
  static constexpr int bits = Bits;
  static constexpr std::size_t place_bits = Block == 256 ? 8 : 12, in_a_byte = 8 / static_cast<std::size_t>(Bits);
  static constexpr std::size_t places_at = block_scale::bytes, codes_at = places_at + (Count * place_bits + 7) / 8;
  static constexpr std::size_t block_bytes = (codes_at + (Count * Bits + 7) / 8 + 1) / 2 * 2;

  /// Byte i of a block, one of places; places[n] of the n-th kept number.
  template <class Places>
  [[nodiscard]] static constexpr std::uint8_t place_byte(std::size_t i, Places const& places) noexcept {
    const std::size_t at = i - places_at;
    if constexpr (place_bits == 8) {
      return static_cast<std::uint8_t>(places[at]);
    } else {
      const std::size_t n = at / 3 * 2;
      const std::uint32_t first = places[n], second = n + 1 < Count ? places[n + 1] : std::uint32_t{0};
      return static_cast<std::uint8_t>((first | second << 12U) >> (8 * (at % 3)));
    }
  }
  /// One of codes, or behind them.
  template <class Codes>
  [[nodiscard]] static constexpr std::uint8_t code_byte(std::size_t i, Codes const& codes) noexcept {
    std::uint32_t made = 0;
    for (std::size_t k = 0; k < in_a_byte; ++k) {
      const std::size_t n = (i - codes_at) * in_a_byte + k;
      if (n < Count) made |= static_cast<std::uint32_t>(codes[n]) << (k * static_cast<std::size_t>(Bits));
    }
    return static_cast<std::uint8_t>(made);
  }
  /// byte_at(i): byte i of a block.
  template <class ByteAt>
  [[nodiscard]] static constexpr std::uint32_t place(std::size_t n, ByteAt&& byte_at) noexcept {
    if constexpr (place_bits == 8) {
      return byte_at(places_at + n);
    } else {
      const std::size_t at = places_at + n / 2 * 3 + n % 2;
      const std::uint32_t both = byte_at(at) | static_cast<std::uint32_t>(byte_at(at + 1)) << 8U;
      return n % 2 == 0 ? both & 0xfffU : both >> 4U;
    }
  }
  template <class ByteAt>
  [[nodiscard]] static constexpr std::uint8_t code(std::size_t n, ByteAt&& byte_at) noexcept {
    const std::uint32_t byte = byte_at(codes_at + n / in_a_byte);
    return static_cast<std::uint8_t>(byte >> (n % in_a_byte * static_cast<std::size_t>(Bits)) & ((1U << Bits) - 1));
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
