// SPDX-License-Identifier: Apache-2.0
// A number is -1, 0 or 1 times its block's scale: 1.7 bits.
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

/// The arithmetic of one number, the same on host and device.
struct ternary_code {
  /// What is not above this part of the mean magnitude becomes 0 (Li et al., Ternary Weight Networks, arXiv 1605.04711:
  /// 0.7 is near the best for Gaussian and for uniform numbers).
  static constexpr double share = 0.7;
  [[nodiscard]] static constexpr float threshold(double magnitudes_of_256) noexcept {
    return static_cast<float>(share * magnitudes_of_256 / 256);
  }
  /// 0, 1 or 2 for -1, 0 or 1.
  [[nodiscard]] static constexpr std::uint32_t digit(float value, float threshold) noexcept {
    return 1U + (value > threshold ? 1U : 0U) - (value < -threshold ? 1U : 0U);  // without a branch
  }
  [[nodiscard]] static constexpr float value(std::uint32_t digit, float scale) noexcept {
    return static_cast<float>(static_cast<int>(digit) - 1) * scale;
  }
  /// What is left of a byte of digits without the lowest: exact below 243.
  [[nodiscard]] static constexpr std::uint32_t third(std::uint32_t byte) noexcept { return byte * 171U >> 9U; }
};

/// A block of 256 numbers is a scale (2 bytes) and 52 bytes of digits, 0.211 bytes a number: byte k holds the digits of
/// the numbers k, k + 52, k + 104, k + 156, k + 208. The scale is the mean of the magnitudes that are above 0.7 of the
/// mean magnitude, which loses least once it is known what becomes 0. A 0 stays 0. Of Gaussian numbers 0.19 of the
/// squares is lost: for what meets its error again, as parameters do, which travel as differences, and gradients with
/// error feedback.
///
/// It does not round at random: that is right in the mean only with the block's largest magnitude as its scale
/// (TernGrad), which of Gaussian numbers loses 1.2 times their squares.
struct block_ternary {
  static constexpr char const* name = "block_ternary";
  using says = block_ternary;
  static constexpr bool loose = true;
  static constexpr bool biased = true;
  static constexpr std::size_t block_size = 256;
  static constexpr std::size_t digit_bytes = (block_size + 4) / 5;
  static constexpr std::size_t block_bytes = block_scale::bytes + digit_bytes;
  using arithmetic = ternary_code;

  static void encode(float const* values, std::byte* bytes) noexcept {
    const double magnitudes = sum_of_magnitudes<block_size>(values);
    std::uint16_t scale = block_scale::of_mean(magnitudes, block_size);
    const float threshold = arithmetic::threshold(magnitudes);
    if (block_scale::has_codes(scale)) {
      block_sums::bits count = {};
      const double kept = sums_of_block<block_size, 1>(
          values,
          [&, limit = std::bit_cast<std::int32_t>(threshold)](auto const& bits, auto const& put) {
            const auto magnitude = bits & 0x7fffffff;
            const auto is_above = magnitude > limit;  // of another type: block_stat2.hpp
            count -= is_above;
            put(0, magnitude & is_above);
          },
          [](auto&) {})[0];
      scale = block_scale::of_mean(kept, block_sums::total(count));
    }
    block_scale::put(scale, bytes);
    bytes += block_scale::bytes;
    if (!block_scale::has_codes(scale)) {
      std::memset(bytes, 0, digit_bytes);
      return;
    }
    const auto digits_from = [values, threshold](std::size_t k) {
      planes::integers all = digits(values + k + (in_a_byte - 1) * digit_bytes, threshold);
      for_indices<in_a_byte - 1>(
          [&](auto m) { all = all + all + all + digits(values + k + (in_a_byte - 2 - m) * digit_bytes, threshold); });
      return all;
    };
    auto* const to = reinterpret_cast<std::uint8_t*>(bytes);
    constexpr std::size_t at_once = planes::packed_at_once;
    for (std::size_t k = 0; k + at_once <= full_bytes; k += at_once) planes::pack_from(k, digits_from, to);
    if constexpr (full_bytes % at_once != 0) planes::pack_from(full_bytes - at_once, digits_from, to);  // some once more
    for (std::size_t k = full_bytes; k < digit_bytes; ++k) {
      std::uint32_t all = 0;
      for (std::size_t m = in_a_byte - 1; m-- > 0;) all = all * 3 + arithmetic::digit(values[k + m * digit_bytes], threshold);
      bytes[k] = static_cast<std::byte>(all);
    }
  }

  static bool says_non_finite(std::byte const* bytes) noexcept { return block_scale::says_non_finite(bytes); }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const std::uint16_t bits = block_scale::take(bytes);
    const float scale = block_scale::value(bits);
    if (!block_scale::has_codes(bits)) {
      std::fill_n(values, block_size, scale);
      return;
    }
    bytes += block_scale::bytes;
    for (std::size_t k = 0; k < full_bytes; k += lanes) {
      small narrow;
      std::memcpy(&narrow, bytes + k, sizeof narrow);
      integers left = __builtin_convertvector(narrow, integers);
      for (std::size_t m = 0; m < in_a_byte; ++m) {
        const integers rest = (left * 171) >> 9;
        const auto number = __builtin_convertvector(left - rest * 3 - 1, numbers::vector);
        (numbers(number) * numbers(scale)).store(values + k + m * digit_bytes);
        left = rest;
      }
    }
    for (std::size_t k = full_bytes; k < digit_bytes; ++k) {
      auto left = static_cast<std::uint32_t>(bytes[k]);
      for (std::size_t m = 0; m < in_a_byte - 1; ++m) {
        const std::uint32_t rest = arithmetic::third(left);
        values[k + m * digit_bytes] = arithmetic::value(left - 3 * rest, scale);
        left = rest;
      }
    }
  }

 private:
  using numbers = pack<float>;
  using integers = numbers::vector_of<std::int32_t>::type;
  using small = numbers::vector_of<std::uint8_t>::type;
  static constexpr std::size_t lanes = numbers::lanes, in_a_byte = 5;
  static constexpr std::size_t full_bytes = block_size - (in_a_byte - 1) * digit_bytes;  // those behind hold a number less
  static_assert(full_bytes % lanes == 0);

  using planes = bit_planes<block_size>;
  static planes::integers digits(float const* values, float threshold) noexcept {
    planes::floats x;
    std::memcpy(&x, values, sizeof x);
    return 1 + (x < -threshold) - (x > threshold);
  }
};
static_assert(encoding<block_ternary>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
