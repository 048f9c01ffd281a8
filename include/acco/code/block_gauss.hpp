// SPDX-License-Identifier: Apache-2.0
// Two to four bits a number: the levels that lose least of Gaussian numbers, scaled by the block's root mean square.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/code/bit_planes.hpp"
#include "acco/code/block_scale.hpp"
#include "acco/code/block_sign.hpp"
#include "acco/code/encoding.hpp"
#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Up to eight levels, positive ones in 4096ths, sixteen bits each: numbers, not an array, so that device code can hold
/// them.
struct packed_levels {
  std::uint64_t low = 0, high = 0;
  template <class... Level>
  [[nodiscard]] static constexpr packed_levels of(Level... level) noexcept {
    packed_levels made;
    unsigned k = 0;
    ((k < 4 ? made.low |= static_cast<std::uint64_t>(level) << (16 * k)
            : made.high |= static_cast<std::uint64_t>(level) << (16 * (k - 4)),
      ++k),
     ...);
    return made;
  }
  [[nodiscard]] constexpr std::int32_t operator[](unsigned k) const noexcept {
    return static_cast<std::int32_t>((k < 4 ? low : high) >> (16 * (k % 4)) & 0xffffU);
  }
};

/// The levels of Lloyd (1957; IEEE Trans. Inf. Theory 28, 1982) and Max (IRE Trans. Inf. Theory 6, 1960) for a Gaussian
/// of variance 1: 2^Bits levels, none of which is 0, or 2^Bits - 1, one of which is. Of as many levels no others lose
/// less: tests/code/block_gauss.cpp finds them anew.
template <int Bits>
[[nodiscard]] constexpr packed_levels gaussian_levels(bool zero) noexcept {
  static_assert(Bits >= 2 && Bits <= 4);
  constexpr packed_levels with = Bits == 2   ? packed_levels::of(0, 5014)
                                 : Bits == 3 ? packed_levels::of(0, 2296, 4867, 8329)
                                             : packed_levels::of(0, 1122, 2272, 3486, 4812, 6333, 8219, 10981);
  constexpr packed_levels without = Bits == 2   ? packed_levels::of(1855, 6187)
                                    : Bits == 3 ? packed_levels::of(1004, 3097, 5505, 8814)
                                                : packed_levels::of(526, 1589, 2690, 3860, 5146, 6628, 8475, 11193);
  return {zero ? with.low : without.low, zero ? with.high : without.high};
}

/// The arithmetic of one number, the same on host and device, bit by bit: every product is exact. A code is the
/// number's sign above the index of its level.
template <int Bits>
struct gaussian_code {
  static constexpr unsigned magnitudes = 1U << (Bits - 1);
  static constexpr float unit = 1.0F / 4096;

  [[nodiscard]] static constexpr packed_levels levels_of(bool zero) noexcept { return gaussian_levels<Bits>(zero); }
  /// What lies between the k-th level and the next, of a block with this scale.
  [[nodiscard]] static constexpr float threshold(packed_levels of, unsigned k, float scale) noexcept {
    return static_cast<float>(of[k] + of[k + 1]) * (scale * (unit / 2));
  }
  [[nodiscard]] static constexpr std::uint32_t code(float value, packed_levels of, float scale) noexcept {
    const float magnitude = value < 0 ? -value : value;
    std::uint32_t index = 0;
    for (unsigned k = 0; k < magnitudes - 1; ++k) index += magnitude > threshold(of, k, scale) ? 1U : 0U;
    return index | (value < 0 ? magnitudes : 0U);
  }
  [[nodiscard]] static constexpr float value(std::uint32_t code, packed_levels of, float scale) noexcept {
    const std::int32_t level = of[code % magnitudes];
    return static_cast<float>(code >= magnitudes ? -level : level) * (scale * unit);
  }
  /// A magnitude with bits above these lies so far out that a wider scale may lose less: beyond four times the root
  /// mean square, as one of 16,000 Gaussian numbers does.
  [[nodiscard]] static constexpr std::uint32_t outlier(std::uint16_t scale) noexcept {
    return std::bit_cast<std::uint32_t>(4 * block_scale::value(scale));
  }
  /// That by which the outermost level of those with a 0 is the largest magnitude.
  [[nodiscard]] static constexpr std::uint16_t scale_of_largest(std::uint32_t largest) noexcept {
    constexpr float share = 4096.0F / static_cast<float>(gaussian_levels<Bits>(true)[magnitudes - 1]);
    return block_scale::of_number(std::bit_cast<float>(largest) * share);
  }
};

/// A block of 256 numbers is a scale (2 bytes) and 256 codes. The scale is the root mean square of the numbers that are
/// not 0. A number that is exactly 0 stays 0: a block that holds one (the scale's sign says so) has levels with a 0
/// among them, one level less. Rules that divide by a gradient's own size, as AdamW does, would otherwise move
/// parameters that nothing asks to move: embeddings of words that a batch does not have. Such levels, with the largest
/// number on the outermost, are also for a block with numbers beyond four times its root mean square, where they lose
/// less.
///
/// The codes lie in planes: of four bits byte k holds the numbers k (low) and k + 128; of two bits k, k + 64, k + 128,
/// k + 192; of three bits the indices of levels lie like two bits, and behind them the signs, byte k those of k,
/// k + 32, ... k + 224.
///
/// Biased: beside a loud number quiet ones are 0 in every step, and what is quiet everywhere is the innermost level. It
/// does not round at random: what is beyond the outermost level would be cut off all the same.
template <int Bits>
struct block_gauss {
  static_assert(Bits >= 2 && Bits <= 4);
  static constexpr bool biased = true;
  static constexpr std::size_t block_size = 256;
  static constexpr std::size_t block_bytes = block_scale::bytes + block_size * Bits / 8;
  using arithmetic = gaussian_code<Bits>;

  static void encode(float const* values, std::byte* bytes) noexcept {
    block_sums::bits least = block_sums::no_magnitude();
    const double squares = sums_of_block<block_size, 1>(
        values,
        [&](auto const& bits, auto const& put) {
          const auto magnitude = bits & 0x7fffffff;
          least = magnitude < least ? magnitude : least;
          put(0, bits);
        },
        [](auto& of) {
          for (auto& x : of[0]) x *= x;
        })[0];
    bool zero = block_sums::any_zero(least);
    std::uint16_t scale = zero ? block_scale::of_root_mean_square(squares, not_zero(values))
                               : block_scale::of_root_mean_square(squares, block_size);  // no division
    if (!block_scale::has_codes(scale)) {
      block_scale::put(scale, bytes);
      std::memset(bytes + block_scale::bytes, 0, block_bytes - block_scale::bytes);
      return;
    }
    std::byte* const codes = bytes + block_scale::bytes;
    const bool outlier = put_codes(values, arithmetic::levels_of(zero), scale, codes);
    if (outlier) {
      const std::uint16_t wide = arithmetic::scale_of_largest(largest_magnitude<block_size>(values));
      std::byte other[block_bytes - block_scale::bytes];
      put_codes(values, arithmetic::levels_of(true), wide, other);
      if (lost(values, other, true, wide) < lost(values, codes, zero, scale)) {
        std::memcpy(codes, other, sizeof other);
        zero = true;
        scale = wide;
      }
    }
    block_scale::put(zero ? scale | block_scale::sign : scale, bytes);
  }

  static bool says_non_finite(std::byte const* bytes) noexcept { return block_scale::says_non_finite(bytes); }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const std::uint16_t scale = block_scale::take(bytes);
    if (!block_scale::has_codes(scale)) {
      std::fill_n(values, block_size, block_scale::value(scale));
      return;
    }
    const bool zero = (scale & block_scale::sign) != 0;
    values_of(bytes + block_scale::bytes, arithmetic::levels_of(zero), scale, values);
  }

 private:
  using planes = bit_planes<block_size>;
  using integers = planes::integers;
  using numbers = pack<float>;

  /// Calls f(k) for k < `Count`. No generic lambda: nvcc would compile that for devices, too.
  template <unsigned Count, unsigned K = 0, class F>
  [[gnu::always_inline]] static void unrolled(F const& f) noexcept {
    if constexpr (K < Count) {
      f(K);
      unrolled<Count, K + 1>(f);
    }
  }
  static std::size_t not_zero(float const* values) noexcept {
    integers count = {};
    for (std::size_t i = 0; i < block_size; i += planes::lanes) count -= (planes::bits(values + i) & 0x7fffffff) > 0;
    return block_sums::total(count);
  }
  /// The sum of squares of what these codes lack.
  static double lost(float const* values, std::byte const* codes, bool zero, std::uint16_t scale) noexcept {
    alignas(64) float lacks[block_size];
    values_of(codes, arithmetic::levels_of(zero), scale, lacks);
    for (std::size_t i = 0; i < block_size; i += numbers::lanes)
      (numbers::load(values + i) - numbers::load(lacks + i)).store(lacks + i);
    return sum_of_squares<block_size>(lacks);
  }
  /// Returns whether a number lies so far out that a wider scale may lose less.
  static bool put_codes(float const* values, packed_levels levels, std::uint16_t scale, std::byte* to) noexcept {
    integers between[arithmetic::magnitudes - 1];
    for (unsigned k = 0; k < arithmetic::magnitudes - 1; ++k)
      between[k] = integers{} + std::bit_cast<std::int32_t>(arithmetic::threshold(levels, k, block_scale::value(scale)));
    integers most = {};
    const integers none = {};  // nvcc has no constant vectors in lambdas
    const auto codes = [&](std::size_t i) {
      const integers bits = planes::bits(values + i), magnitude = bits & 0x7fffffff;
      integers code = Bits == 3 ? none : planes::below_zero(bits, magnitude) << (Bits - 1);
      unrolled<arithmetic::magnitudes - 1>([&](unsigned k) { code -= magnitude > between[k]; });
      most = most < magnitude ? magnitude : most;
      return code;
    };
    auto* const bytes = reinterpret_cast<std::uint8_t*>(to);
    planes::template put<Bits == 3 ? 2 : Bits>(codes, bytes);
    if constexpr (Bits == 3) block_signs::put(values, to + block_size / 4);
    return largest_of(most) > arithmetic::outlier(scale);
  }
  static void values_of(std::byte const* bytes, packed_levels levels, std::uint16_t scale, float* values) noexcept {
    alignas(64) std::uint8_t codes[block_size];
    auto const* const from = reinterpret_cast<std::uint8_t const*>(bytes);
    planes::template take<Bits == 3 ? 2 : Bits, 0>(from, codes);
    if constexpr (Bits == 3) thin_planes<block_size>::take<1, 2>(from + block_size / 4, codes);
    using shorts = planes::shorts;
    constexpr auto highest = static_cast<std::int16_t>(arithmetic::magnitudes - 1);
    const float by = block_scale::value(scale) * arithmetic::unit;
    shorts steps[arithmetic::magnitudes];
    for (unsigned k = 0; k < highest; ++k) steps[k] = shorts{} + static_cast<std::int16_t>(levels[k + 1] - levels[k]);
    const shorts lowest = shorts{} + static_cast<std::int16_t>(levels[0]);
    planes::for_shorts(codes, [&](std::size_t i, shorts const& code) {
      const shorts index = code & highest, minus = code > highest;  // -1: -x is ~x + 1
      shorts level = lowest;
      unrolled<highest>([&](unsigned k) { level += (index > static_cast<std::int16_t>(k)) & steps[k]; });
      typename planes::integers halves[2];
      planes::widen((level ^ minus) - minus, halves);
      for (auto const& each : halves) {
        const auto decoded = planes::numbers_of(each) * by;
        std::memcpy(values + i, &decoded, sizeof decoded);
        i += planes::lanes;
      }
    });
  }
};

/// Of Gaussian numbers 0.0095 of the squares is lost, of a block with zeros in it 0.0107; 0.508 bytes a number.
struct block_gauss4 : block_gauss<4> {
  static constexpr char const* name = "block_gauss4";
  using says = block_gauss4;
};
/// 0.0345 and 0.0440; 0.383 bytes a number.
struct block_gauss3 : block_gauss<3> {
  static constexpr char const* name = "block_gauss3";
  using says = block_gauss3;
};
/// 0.1175 and 0.190; 0.258 bytes a number.
struct block_gauss2 : block_gauss<2> {
  static constexpr char const* name = "block_gauss2";
  using says = block_gauss2;
};
static_assert(encoding<block_gauss4> && encoding<block_gauss3> && encoding<block_gauss2>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
