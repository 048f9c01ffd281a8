// SPDX-License-Identifier: Apache-2.0
// Arrays of numbers of eight bits, of which 64 neighbours share a scale: as memory, nothing travels in it. The
// arithmetic is the same on host and device, bit by bit.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/number/pack.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A number is code * scale. A code has -127 to 127. The scale of a block is a power of two, such that the largest
/// magnitude's code is 64 or more. Codes are rounded to nearest, ties to even: of a number at most half the scale is
/// lost, which is at most 1/127 of the block's largest magnitude. (Of numbers from 255 2^120 on, the whole scale.) A
/// block with no magnitude from 2^-100 on is one of zeros. Every such number is a bfloat16, and blocks that are
/// unpacked and packed again have the same bytes. An array is its codes, and behind them the exponents of its scales:
/// 1 + 1/64 bytes a number. What is not finite becomes some number.
struct int8_blocks {
  static constexpr char const* name = "int8_blocks";
  static constexpr std::size_t block_size = 64;
  static constexpr std::int32_t largest = 127;
  static constexpr std::int32_t magnitude_mask = 0x7fffffff;

  /// Of so many numbers, a multiple of 64; and back.
  [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t count) noexcept { return count + count / block_size; }
  [[nodiscard]] static constexpr std::size_t count_of(std::size_t bytes) noexcept {
    return bytes / (block_size + 1) * block_size;
  }

  /// Of the bits of a block's largest magnitude: the exponent, as a float has it, of what seven significant bits round
  /// it to; the scale is 2^-6 of that power of two. 0: all are zeros.
  [[nodiscard]] static constexpr std::uint8_t exponent_of(std::int32_t largest_magnitude) noexcept {
    constexpr std::int32_t negligible = 0x0d800000, most = 254;  // 2^-100
    if (largest_magnitude < negligible) return 0;
    const auto bits = static_cast<std::uint32_t>(largest_magnitude);
    const auto exponent = static_cast<std::int32_t>((bits + 0xffffU + (bits >> 17U & 1U)) >> 23U);
    return static_cast<std::uint8_t>(exponent < most ? exponent : most);
  }
  [[nodiscard]] static constexpr float scale_of(std::uint8_t exponent) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent > 6 ? exponent - 6 : 0) << 23U);
  }
  [[nodiscard]] static constexpr float inverse_of(std::uint8_t exponent) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent > 6 ? 260 - exponent : 0) << 23U);
  }
  static constexpr float rounder = 12582912.0F;  ///< 1.5 * 2^23: adding it rounds to nearest even
  static constexpr std::int32_t rounder_bits = 0x4b400000;
  /// The product is exact, so it does not matter whether a compiler fuses it with the sum.
  [[nodiscard]] static constexpr std::int32_t code_of(float value, float inverse) noexcept {
    const std::int32_t code = std::bit_cast<std::int32_t>(value * inverse + rounder) - rounder_bits;
    return code > largest ? largest : code < -largest ? -largest : code;
  }
  [[nodiscard]] static constexpr float value_of(std::int8_t code, float scale) noexcept {
    return static_cast<float>(code) * scale;
  }

  /// One block.
  [[nodiscard]] static std::uint8_t encode(float const* values, std::int8_t* codes) noexcept {
    integers most{};
    for (std::size_t i = 0; i < block_size; i += lanes) {
      integers bits;
      std::memcpy(&bits, values + i, sizeof bits);
      bits &= magnitude_mask;
      most = bits > most ? bits : most;
    }
    std::int32_t largest_magnitude = 0;
    for (std::size_t k = 0; k < lanes; ++k) largest_magnitude = most[k] > largest_magnitude ? most[k] : largest_magnitude;
    const std::uint8_t exponent = exponent_of(largest_magnitude);
    const vector inverse = vector{} + inverse_of(exponent);
    for (std::size_t i = 0; i < block_size; i += lanes) {
      const vector rounded = numbers::load(values + i).value * inverse + rounder;
      integers wide;
      std::memcpy(&wide, &rounded, sizeof wide);
      wide -= rounder_bits;
      integers above{};
      above += largest;  // nvcc ends where wide registers are made of constants
      wide = wide > above ? above : wide;
      wide = wide < -above ? -above : wide;
      const auto narrow = __builtin_convertvector(wide, small);
      std::memcpy(codes + i, &narrow, sizeof narrow);
    }
    return exponent;
  }
  static void decode(std::int8_t const* codes, std::uint8_t exponent, float* values) noexcept {
    const float scale = scale_of(exponent);
    for (std::size_t i = 0; i < block_size; i += lanes) {
      small narrow;
      std::memcpy(&narrow, codes + i, sizeof narrow);
      numbers(__builtin_convertvector(narrow, vector) * scale).store(values + i);
    }
  }

 private:
  using numbers = pack<float>;
  using vector = numbers::vector;
  using integers = numbers::vector_of<std::int32_t>::type;
  using small = numbers::vector_of<std::int8_t>::type;
  static constexpr std::size_t lanes = numbers::lanes;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
