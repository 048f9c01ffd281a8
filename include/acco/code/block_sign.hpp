// SPDX-License-Identifier: Apache-2.0
// One bit a number: its sign, times the block's mean magnitude.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/code/bit_planes.hpp"
#include "acco/code/block_scale.hpp"
#include "acco/code/encoding.hpp"
#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The arithmetic of one number, the same on host and device. It looks at bits: numbers that a processor takes for 0
/// where it flushes them have a sign here everywhere.
struct sign_code {
  /// 1 for what is below 0. A 0 counts as positive, whatever its own sign.
  [[nodiscard]] static constexpr std::uint32_t code(std::uint32_t bits) noexcept { return bits > 0x80000000U ? 1U : 0U; }
  /// The bits of the number with this sign; scale > 0.
  [[nodiscard]] static constexpr std::uint32_t value_bits(std::uint32_t code, std::uint16_t scale) noexcept {
    return static_cast<std::uint32_t>(scale) << 16U | code << 31U;
  }
};

/// The signs of a block of 256 numbers in 32 bytes: byte k has those of the numbers k, k + 32, ... k + 224, the first
/// lowest; set where a number is below 0.
struct block_signs {
  static constexpr std::size_t size = 256, bytes = size / 8;

  static void put(float const* values, std::byte* to) noexcept {
    planes::put<1>(
        [values](std::size_t i) {
          const auto bits = planes::bits(values + i);
          return planes::below_zero(bits, bits & 0x7fffffff);
        },
        reinterpret_cast<std::uint8_t*>(to));
  }
  /// `positive`: the bits of what is not below 0.
  static void take(std::byte const* from, std::uint32_t positive, float* values) noexcept {
    alignas(64) std::uint8_t codes[size];
    thin_planes<size>::take<1, 0>(reinterpret_cast<std::uint8_t const*>(from), codes);
    thin_planes<size>::for_integers(codes, [positive, values](std::size_t i, auto const& code) {
      const auto bits = code << 31 | static_cast<std::int32_t>(positive);
      std::memcpy(values + i, &bits, sizeof bits);
    });
  }

 private:
  using planes = bit_planes<size>;
};

/// A number is its sign times the mean magnitude of its block, which loses least once only signs are kept: 34 bytes a
/// block of 256, 0.133 bytes a number. The scaled sign of EF-signSGD (Karimireddy et al., arXiv 1901.09847, section 4).
/// Of a block 1 - mean|x|^2 / mean x^2 of the squares is lost, of Gaussian numbers 1 - 2/pi = 0.363: for gradients with
/// error feedback. The scale (2 bytes), then `block_signs`.
///
/// Zeros at the block's end do not count for the mean: they are what fills up a short block, and with them parameters
/// of a small layout, or of the last block of a share, would hardly move.
///
/// One bit cannot say 0: in a block that holds something a 0, +0 or -0, arrives as the positive scale, and feedback
/// takes it back later. A block of zeros arrives as zeros.
struct block_sign {
  static constexpr char const* name = "block_sign";
  using says = block_sign;
  static constexpr bool biased = true, loose = true, no_zero = true;
  static constexpr std::size_t block_size = block_signs::size;
  static constexpr std::size_t block_bytes = block_scale::bytes + block_signs::bytes;
  using arithmetic = sign_code;

  static void encode(float const* values, std::byte* bytes) noexcept {
    const double magnitudes = sum_of_magnitudes<block_size>(values);
    const std::uint16_t scale = block_scale::of_mean(magnitudes, filled(values));
    block_scale::put(scale, bytes);
    bytes += block_scale::bytes;
    if (!block_scale::has_codes(scale)) {
      std::memset(bytes, 0, block_signs::bytes);
      return;
    }
    block_signs::put(values, bytes);
  }

  static bool says_non_finite(std::byte const* bytes) noexcept { return block_scale::says_non_finite(bytes); }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const std::uint16_t scale = block_scale::take(bytes);
    if (!block_scale::has_codes(scale)) {
      std::fill_n(values, block_size, block_scale::value(scale));
      return;
    }
    block_signs::take(bytes + block_scale::bytes, arithmetic::value_bits(0, scale), values);
  }

 private:
  /// How many numbers come before the zeros at the block's end.
  static std::size_t filled(float const* values) noexcept {
    std::size_t n = block_size;
    while (n > 0 && std::bit_cast<std::uint32_t>(values[n - 1]) << 1U == 0) --n;
    return n;
  }
};
static_assert(encoding<block_sign>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
