// SPDX-License-Identifier: Apache-2.0
// Arrays of numbers of eight bits, of which 64 neighbours share a scale: as memory, nothing travels in it. The
// arithmetic is the same on host and device, bit by bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "acco/bfloat16.hpp"
#include "acco/number/convert.hpp"
#include "acco/number/digest.hpp"
#include "acco/number/pack.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A number is code * scale. A code has -127 to 127. The scale of a block is a power of two, such that the largest
/// magnitude's code is 64 or more. Codes are rounded to nearest, ties to even: of a number at most half the scale is
/// lost, which is at most 1/127 of the block's largest magnitude. (Of numbers from 255 2^120 on, the whole scale.) A
/// block with no magnitude from 2^-100 on is one of zeros. Every such number is a bfloat16, and blocks that are unpacked
/// and packed again have the same bytes. An array is its codes, and behind them the exponents of its scales: 1 + 1/64
/// bytes a number. What is not finite becomes some number.
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
    for (std::size_t k = 0; k < lanes; ++k) largest_magnitude = std::max<std::int32_t>(largest_magnitude, most[k]);
    const std::uint8_t exponent = exponent_of(largest_magnitude);
    const vector inverse = vector{} + inverse_of(exponent);
    for (std::size_t i = 0; i < block_size; i += lanes) {
      const vector rounded = numbers::load(values + i).value * inverse + rounder;
      integers wide;
      std::memcpy(&wide, &rounded, sizeof wide);
      wide -= rounder_bits;
      const integers above = integers{} + largest;
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

/// Where numbers of such an array lie, from the number `first` of it on: in the place of a pointer.
struct int8_place {
  std::int8_t* codes = nullptr;       ///< that of this number
  std::uint8_t* exponents = nullptr;  ///< those of the array
  std::size_t first = 0;

  [[nodiscard]] constexpr int8_place operator+(std::size_t n) const noexcept { return {codes + n, exponents, first + n}; }
  [[nodiscard]] constexpr std::uint8_t& exponent(std::size_t i = 0) const noexcept {
    return exponents[(first + i) / int8_blocks::block_size];
  }
  [[nodiscard]] constexpr float operator[](std::size_t i) const noexcept {
    return int8_blocks::value_of(codes[i], int8_blocks::scale_of(exponent(i)));
  }
  /// visit(numbers, index of the first, how many) for `count` of them, at most 64 at a time.
  template <class Visitor>
  void unpack(std::size_t count, Visitor&& visit) const {
    alignas(64) float values[int8_blocks::block_size];
    for (std::size_t i = 0, n = 0; i < count; i += n) {
      const std::size_t behind = (first + i) % int8_blocks::block_size;
      n = std::min(int8_blocks::block_size - behind, count - i);
      int8_blocks::decode(codes + i - behind, exponent(i), values);
      visit(static_cast<float const*>(values + behind), i, n);
    }
  }
  template <class To>
  void unpack(To* to, std::size_t count) const {
    unpack(count, [to](float const* from, std::size_t i, std::size_t n) { elementwise::convert(from, to + i, n); });
  }
  /// `count` numbers from a block's border on; what its last block lacks is filled up with zeros.
  void pack(float const* from, std::size_t count) const noexcept {
    constexpr std::size_t size = int8_blocks::block_size;
    for (std::size_t i = 0; i < count; i += size) {
      if (count - i >= size) {
        exponent(i) = int8_blocks::encode(from + i, codes + i);
      } else {
        alignas(64) float last[size] = {};
        std::copy_n(from + i, count - i, last);
        exponent(i) = int8_blocks::encode(last, codes + i);
      }
    }
  }
};

/// The part of `count` of them in a digest: that of the bfloat16s that they are.
[[nodiscard]] inline std::uint64_t digest_of(int8_place from, std::size_t count, digest_key key) noexcept {
  std::uint64_t sum = 0;
  from.unpack(count, [&](float const* values, std::size_t i, std::size_t n) {
    bfloat16 narrow[int8_blocks::block_size];
    elementwise::convert(values, narrow, n);
    sum += digest_of(static_cast<bfloat16 const*>(narrow), n, {key(i), key.stride});
  });
  return sum;
}

/// What lies at a place, and where an array of it lies.
template <class Place>
struct number_at {
  using type = std::remove_cv_t<std::remove_pointer_t<Place>>;
};
template <>
struct number_at<int8_place> {
  using type = int8_blocks;
};
template <class Number>
using pointer_to = std::conditional_t<std::is_same_v<std::remove_const_t<Number>, int8_blocks>, int8_place, Number*>;

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
