// SPDX-License-Identifier: Apache-2.0
// What codes of levels share: sums over a block in one order on every processor, and scales of two bytes.
#pragma once

#include <array>
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
  /// Of a code that begins with a scale.
  [[nodiscard]] static bool says_non_finite(std::byte const* block) noexcept { return take(block) == not_a_number; }
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

/// The bits of the largest of a register's magnitudes.
template <class Integers>
[[nodiscard]] std::uint32_t largest_of(Integers const& magnitudes) noexcept {
  std::int32_t largest = 0;
  for (std::size_t k = 0; k < sizeof magnitudes / sizeof largest; ++k)
    largest = largest < magnitudes[k] ? magnitudes[k] : largest;
  return static_cast<std::uint32_t>(largest);
}
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
  return largest_of(most);
}

/// The numbers of a block of which sums are made: registers of floats, taken as their bits, and of doubles.
struct block_sums {
  using floats = pack<float>;
  using bits = floats::vector_of<std::int32_t>::type;
  using numbers = pack<double>;

  [[nodiscard]] static std::size_t total(bits const& counts) noexcept {
    std::int32_t sum = 0;
    for (std::size_t k = 0; k < floats::lanes; ++k) sum += counts[k];
    return static_cast<std::size_t>(sum);
  }
  /// More than any magnitude's bits.
  static bits no_magnitude() noexcept {
    bits most{};
    most += 0x7fffffff;  // number/int8_blocks.hpp
    return most;
  }
  [[nodiscard]] static bool any_zero(bits const& least) noexcept {
    std::int32_t of_all = least[0];
    for (std::size_t k = 1; k < floats::lanes; ++k) of_all = of_all < least[k] ? of_all : least[k];
    return of_all == 0;
  }
  /// `Count` sums of two registers.
  template <std::size_t Count>
  struct partial {
    numbers of[Count][2];
    void add(partial const& more) noexcept {
      for (std::size_t n = 0; n < Count; ++n) {
        of[n][0] += more.of[n][0];
        of[n][1] += more.of[n][1];
      }
    }
  };
  /// Of the numbers from the i-th on, and all that are `Width` apart from them or a multiple.
  template <std::size_t Width, std::size_t Block, std::size_t Count, class Part, class Term>
  [[nodiscard, gnu::always_inline]] static partial<Count> from(float const* values, std::size_t i, Part const& part,
                                                               Term const& term) noexcept {
    if constexpr (Width < 128) {
      auto sum = from<2 * Width, Block, Count>(values, i, part, term);
      sum.add(from<2 * Width, Block, Count>(values, i + Width, part, term));
      return sum;
    } else {
      partial<Count> sum = read<Count>(values + i, part, term);
      for (std::size_t k = 128; k < Block; k += 128) sum.add(read<Count>(values + i + k, part, term));
      return sum;
    }
  }

  /// Of so many doubles what is left once those `Width` apart, and further, are summed.
  template <std::size_t Width, std::size_t Left>
  [[nodiscard, gnu::always_inline]] static numbers half_upon_half(double const* sums) noexcept {
    if constexpr (Width == Left) {
      return numbers::load(sums);
    } else {
      return half_upon_half<2 * Width, Left>(sums) + half_upon_half<2 * Width, Left>(sums + Width);
    }
  }

 private:
  using wide_register = pack<double, floats::lanes>::vector;
  /// A whole register becomes two: of less g++ makes a number at a time.
  [[gnu::always_inline]] static void widen(bits const& of, numbers* to) noexcept {
    floats::vector narrow;
    std::memcpy(&narrow, &of, sizeof narrow);
    const wide_register wide = __builtin_convertvector(narrow, wide_register);
    std::memcpy(to, &wide, sizeof wide);
  }
  template <std::size_t Count, class Part, class Term>
  [[nodiscard, gnu::always_inline]] static partial<Count> read(float const* values, Part const& part, Term const& term) noexcept {
    bits x;
    std::memcpy(&x, values, sizeof x);
    partial<Count> made;
    part(x, [&](std::size_t n, bits const& of) { widen(of, made.of[n]); });
    term(made.of);
    return made;
  }
};

/// `Count` sums over a block of 128 numbers or a multiple, in double: first those that are 128 apart, then half upon
/// half, as the lanes of a GPU's warp do. part(bits, put) calls put(n, bits) with the numbers, or some of them and
/// zeros, of which the n-th sum is made; term(of) makes the terms of those, of[n][0] and of[n][1], in place. Nothing in
/// it is rounded.
template <std::size_t Block, std::size_t Count, class Part, class Term>
[[nodiscard, gnu::always_inline]] inline std::array<double, Count> sums_of_block(float const* values, Part const& part,
                                                                                 Term const& term) noexcept {
  static_assert(Block % 128 == 0);
  using numbers = pack<double>;
  constexpr std::size_t left = 32;
  alignas(64) double sums[Count][left];
  for (std::size_t i = 0; i < left; i += pack<float>::lanes) {
    const auto some = block_sums::from<left, Block, Count>(values, i, part, term);
    for (std::size_t n = 0; n < Count; ++n) {
      some.of[n][0].store(sums[n] + i);
      some.of[n][1].store(sums[n] + i + numbers::lanes);
    }
  }
  std::array<double, Count> all;
  for (std::size_t n = 0; n < Count; ++n) {
    double of[numbers::lanes];
    block_sums::half_upon_half<numbers::lanes, left>(sums[n]).store(of);
    for (std::size_t width = numbers::lanes / 2; width > 0; width /= 2) {
      for (std::size_t i = 0; i < width; ++i) of[i] += of[i + width];
    }
    all[n] = of[0];
  }
  return all;
}
/// A sum of magnitudes, and of squares.
template <std::size_t Block>
[[nodiscard]] double sum_of_magnitudes(float const* values) noexcept {
  return sums_of_block<Block, 1>(values, [](auto const& bits, auto const& put) { put(0, bits & 0x7fffffff); }, [](auto&) {})[0];
}
template <std::size_t Block>
[[nodiscard]] double sum_of_squares(float const* values) noexcept {
  return sums_of_block<Block, 1>(
      values, [](auto const& bits, auto const& put) { put(0, bits); },
      [](auto& of) {
        for (auto& x : of[0]) x *= x;
      })[0];
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
