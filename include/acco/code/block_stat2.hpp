// SPDX-License-Identifier: Apache-2.0
// Two bits a number: its sign, and one of two magnitudes, which are fitted to the block.
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

/// The arithmetic of one number, the same on host and device; it compares bits. A code is 1 for the upper magnitude,
/// and 2 for what is below 0.
struct statistical_code {
  std::uint16_t upper = 0, lower = 0;  ///< magnitudes, as block_scale has them

  /// The bits of what the magnitudes are means above and below of. Products of so few bits are exact.
  [[nodiscard]] static constexpr std::uint32_t cut(double squares, double magnitudes, bool zeros) noexcept {
    const std::uint16_t typical = block_scale::of_number(static_cast<float>(squares / magnitudes));
    return std::bit_cast<std::uint32_t>(block_scale::value(typical) * (zeros ? 0.5F : 0.8125F));
  }
  /// The bits of what lies between them: a number takes the nearer one.
  [[nodiscard]] constexpr std::uint32_t between() const noexcept {
    return std::bit_cast<std::uint32_t>((block_scale::value(upper) + block_scale::value(lower)) * 0.5F);
  }
  [[nodiscard]] static constexpr std::uint32_t code(std::uint32_t bits, std::uint32_t between) noexcept {
    return ((bits & 0x7fffffffU) > between ? 1U : 0U) | (bits > 0x80000000U ? 2U : 0U);
  }
  [[nodiscard]] constexpr std::uint32_t value_bits(std::uint32_t code) const noexcept {
    return static_cast<std::uint32_t>((code & 1U) != 0 ? upper : lower) << 16U | code >> 1U << 31U;
  }
};

/// Statistical quantisation, as MuLoCo (arXiv 2505.23725) and SparseLoCo (arXiv 2508.15706) send changes of parameters:
/// bins that a statistic of the numbers cuts, each of which decodes to the mean of what fell into it. There the bins
/// are of equal width, so many standard deviations around the mean of a tensor. Here they are of a block of 256
/// numbers, and lie alike on both sides of 0: the cut between the lower and the upper magnitude is 13/16 of sum
/// x^2 / sum |x|, the mean of magnitudes that are weighed by themselves. Of Gaussian numbers that is the 0.69-quantile
/// of magnitudes, of Laplacian ones the 0.80-quantile, within a hundredth of the best for both; and a number that is
/// far out has the upper magnitude for itself. The magnitudes are the means of the block's magnitudes below and above
/// the cut, and a number then takes the nearer of them.
///
/// Of Gaussian numbers 0.1175 of the squares is lost, as by block_gauss2; of Laplacian ones 0.18, of numbers of one
/// magnitude, or two, nothing; of none more than by block_sign. The bound of a block, but for the magnitudes' rounding
/// to eight bits: 1 - (n_below m_below^2 + n_above m_above^2) / sum of squares.
///
/// A number that is exactly 0 stays 0: where a block holds one, the lower magnitude is 0, and the cut is a half in
/// place of 13/16; of Gaussian numbers 0.19 is lost then. Two scales, the upper one first, and 64 bytes of codes, byte
/// k those of the numbers k, k + 64, k + 128, k + 192: 0.266 bytes a number.
struct block_stat2 {
  static constexpr char const* name = "block_stat2";
  using says = block_stat2;
  static constexpr bool biased = true;
  static constexpr std::size_t block_size = 256;
  static constexpr std::size_t block_bytes = 2 * block_scale::bytes + block_size / 4;
  using arithmetic = statistical_code;

  static void encode(float const* values, std::byte* bytes) noexcept {
    block_sums::bits least = block_sums::no_magnitude();
    const auto [magnitudes, squares] = sums_of_block<block_size, 2>(
        values,
        [&](auto const& bits, auto const& put) {
          const auto magnitude = bits & 0x7fffffff;
          least = magnitude < least ? magnitude : least;
          put(0, magnitude);
        },
        [](auto& of) {
          for (std::size_t half = 0; half < 2; ++half) of[1][half] = of[0][half] * of[0][half];
        });
    arithmetic levels{block_scale::of_mean(magnitudes, block_size), 0};
    if (block_scale::has_codes(levels.upper)) levels = levels_of(values, magnitudes, squares, block_sums::any_zero(least));
    block_scale::put(levels.upper, bytes);
    block_scale::put(levels.lower, bytes + block_scale::bytes);
    bytes += 2 * block_scale::bytes;
    if (!block_scale::has_codes(levels.upper)) {
      std::memset(bytes, 0, block_size / 4);
      return;
    }
    const auto between = static_cast<std::int32_t>(levels.between());
    planes::put<2>(
        [&](std::size_t i) {
          const auto bits = planes::bits(values + i), magnitude = bits & 0x7fffffff;
          return (planes::below_zero(bits, magnitude) << 1) - (magnitude > between);
        },
        reinterpret_cast<std::uint8_t*>(bytes));
  }

  static bool says_non_finite(std::byte const* bytes) noexcept { return block_scale::says_non_finite(bytes); }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const arithmetic levels{block_scale::take(bytes), block_scale::take(bytes + block_scale::bytes)};
    if (!block_scale::has_codes(levels.upper)) {
      std::fill_n(values, block_size, block_scale::value(levels.upper));
      return;
    }
    alignas(64) std::uint8_t codes[block_size];
    planes::take<2, 0>(reinterpret_cast<std::uint8_t const*>(bytes + 2 * block_scale::bytes), codes);
    const auto lower = static_cast<std::int32_t>(levels.value_bits(0)), upper = static_cast<std::int32_t>(levels.value_bits(1));
    planes::for_integers(codes, [=](std::size_t i, auto const& code) {
      const auto bits = (-(code & 1) & (upper ^ lower)) ^ lower ^ (code >> 1 << 31);
      std::memcpy(values + i, &bits, sizeof bits);
    });
  }

 private:
  using planes = bit_planes<block_size>;

  static arithmetic levels_of(float const* values, double magnitudes, double squares, bool zeros) noexcept {
    const auto cut = static_cast<std::int32_t>(arithmetic::cut(squares, magnitudes, zeros));
    block_sums::bits count = {};
    const auto [above, below] = sums_of_block<block_size, 2>(
        values,
        [&](auto const& bits, auto const& put) {
          const auto magnitude = bits & 0x7fffffff;
          const auto is_above = magnitude > cut;  // of another type: where long has 32 bits, clang's comparisons are long
          count -= is_above;
          put(0, magnitude & is_above);
          put(1, magnitude & ~is_above);
        },
        [](auto&) {});
    const std::size_t over = block_sums::total(count);
    return {block_scale::of_mean(above, over), zeros ? std::uint16_t{0} : block_scale::of_mean(below, block_size - over)};
  }
};
static_assert(encoding<block_stat2>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
