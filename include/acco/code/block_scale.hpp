// SPDX-License-Identifier: Apache-2.0
// What codes of levels share: sums over a block in one order on every processor, and scales of two bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/number/pack.hpp"
#include "acco/number/real.hpp"
#include "acco/opaque.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A block's scale: the upper half of a float, eight significant bits, so that its product with a level of sixteen bits
/// is exact. It is positive; its sign says something else of the block.
struct block_scale {
  static constexpr std::size_t bytes = sizeof(std::uint16_t);
  static constexpr std::uint16_t sign = 0x8000, not_a_number = 0x7fc0;
  static constexpr std::uint16_t least = 0x0d80, most = 0x7e00;  ///< 2^-100: what is smaller travels as zeros; 2^125

  /// Of sum / count, or of its root; `sum` is 0 or more. Not a number, if the block holds what is not finite.
  [[nodiscard]] static constexpr std::uint16_t of_mean(double sum, std::size_t count) noexcept { return of(sum, count, false); }
  [[nodiscard]] static constexpr std::uint16_t of_root_mean_square(double squares, std::size_t count) noexcept {
    return of(squares, count, true);
  }
  /// The nearest to a finite number, 0 or more.
  [[nodiscard]] static constexpr std::uint16_t of_number(float number) noexcept {
    const auto exact = opaque(std::bit_cast<std::uint32_t>(number));
    const std::uint32_t nearest = (exact + 0x7fffU + ((exact >> 16U) & 1U)) >> 16U;
    return nearest < least ? std::uint16_t{0} : nearest > most ? most : static_cast<std::uint16_t>(nearest);
  }
  /// Whether a block with this scale has codes: it holds something, and nothing that is not finite.
  [[nodiscard]] static constexpr bool has_codes(std::uint16_t scale) noexcept {
    const auto magnitude = static_cast<std::uint16_t>(scale & ~sign);
    return magnitude >= least && magnitude <= most;
  }
  /// As a number, without the sign.
  [[nodiscard]] static constexpr float value(std::uint16_t scale) noexcept {
    return std::bit_cast<float>(opaque(static_cast<std::uint32_t>(scale & ~sign) << 16U));
  }
  static void put(std::uint16_t scale, std::byte* to) noexcept { std::memcpy(to, &scale, sizeof scale); }
  [[nodiscard]] static std::uint16_t take(std::byte const* from) noexcept {
    std::uint16_t scale = 0;
    std::memcpy(&scale, from, sizeof scale);
    return scale;
  }

 private:
  [[nodiscard]] static constexpr std::uint16_t of(double sum, std::size_t count, bool root) noexcept {
    constexpr std::uint64_t infinite = 0x7ff0000000000000ULL;
    const std::uint64_t bits = opaque(std::bit_cast<std::uint64_t>(sum));
    if ((bits & infinite) == infinite) return not_a_number;
    if (count == 0) return 0;
    const double mean = sum / static_cast<double>(count);
    return of_number(static_cast<float>(root ? square_root(mean) : mean));
  }
};

/// The bits of the largest magnitude of a block: 0x7f800000 or more, if it holds what is not finite.
template <std::size_t Block>
[[nodiscard]] std::uint32_t largest_magnitude(float const* values) noexcept {
  using numbers = pack<float>;
  using integers = numbers::vector_of<std::int32_t>::type;
  integers most = {};
  for (std::size_t i = 0; i < Block; i += numbers::lanes) {
    integers bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bits &= 0x7fffffff;
    most = most < bits ? bits : most;
  }
  std::int32_t largest = 0;
  for (std::size_t k = 0; k < numbers::lanes; ++k) largest = largest < most[k] ? most[k] : largest;
  return static_cast<std::uint32_t>(largest);
}

/// How many numbers of a block have magnitudes above the one with these bits.
template <std::size_t Block>
[[nodiscard]] std::size_t count_above(float const* values, std::uint32_t limit) noexcept {
  using numbers = pack<float>;
  using integers = numbers::vector_of<std::int32_t>::type;
  integers count = {};
  for (std::size_t i = 0; i < Block; i += numbers::lanes) {
    integers bits;
    std::memcpy(&bits, values + i, sizeof bits);
    count -= (bits & 0x7fffffff) > static_cast<std::int32_t>(limit);
  }
  std::int32_t total = 0;
  for (std::size_t k = 0; k < numbers::lanes; ++k) total += count[k];
  return static_cast<std::size_t>(total);
}

/// The sum of term(x) over a block of 128 numbers or a multiple, in double: first those that are 128 apart, then half
/// upon half, as the lanes of a GPU's warp do. term(pack of numbers) gives a pack; nothing in it is rounded.
template <std::size_t Block, class Term>
[[nodiscard]] double sum_of_block(float const* values, Term&& term) noexcept {
  static_assert(Block % 128 == 0);
  using numbers = pack<double>;
  alignas(64) double sums[128];
  for (std::size_t i = 0; i < 128; i += numbers::lanes) {
    numbers sum = term(numbers::load(values + i));
    for (std::size_t k = 128; k < Block; k += 128) sum += term(numbers::load(values + i + k));
    sum.store(sums + i);
  }
  std::size_t width = 64;
  for (; width >= numbers::lanes; width /= 2) {
    for (std::size_t i = 0; i < width; i += numbers::lanes)
      (numbers::load(sums + i) + numbers::load(sums + i + width)).store(sums + i);
  }
  for (; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
