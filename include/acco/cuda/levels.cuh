// SPDX-License-Identifier: Apache-2.0
// The codes of levels on a device, block_gauss, block_stat2, block_ternary and block_sign: 256 numbers a warp, eight a
// lane. Sums go through the lanes in the order of the host's (code/block_scale.hpp), so both give the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "acco/code/block_gauss.hpp"
#include "acco/code/block_sign.hpp"
#include "acco/code/block_stat2.hpp"
#include "acco/code/block_ternary.hpp"
#include "acco/cuda/access.cuh"
#include "acco/cuda/coding.cuh"
#include "acco/cuda/launch.cuh"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// What such codes have in common: a lane's eight numbers, of which four lie in each half of the block.
struct device_levels {
  static constexpr std::size_t block_size = 256;
  static_assert(block_gauss4::block_size == block_size && block_stat2::block_size == block_size &&
                block_ternary::block_size == block_size && block_sign::block_size == block_size);
  using values = values_of_block<block_size>;
  static constexpr unsigned per_stretch = 4;

  /// The sum of term(x) over the block, in the order of `sums_of_block`.
  template <class Term>
  static __device__ double sum(values const& x, Term term) {
    double part[per_stretch];
#pragma unroll
    for (unsigned k = 0; k < per_stretch; ++k)
      part[k] = warp_sum(term(static_cast<double>(x.value[k])) + term(static_cast<double>(x.value[per_stretch + k])));
    return (part[0] + part[2]) + (part[1] + part[3]);
  }
  /// How many magnitudes are above the one with these bits.
  static __device__ unsigned count_above(values const& x, std::uint32_t limit) {
    unsigned mine = 0;
#pragma unroll
    for (float const each : x.value) mine += (std::bit_cast<std::uint32_t>(each) & 0x7fffffffU) > limit ? 1U : 0U;
    return warp_sum(mine);
  }
  /// The bits of the largest magnitude.
  static __device__ std::uint32_t largest_magnitude(values const& x) {
    std::int32_t most = 0;
#pragma unroll
    for (float const each : x.value) {
      const auto bits = std::bit_cast<std::int32_t>(each) & 0x7fffffff;
      most = most < bits ? bits : most;
    }
    return static_cast<std::uint32_t>(warp_maximum(most));
  }
  static __device__ void put_scale(std::byte* to, unsigned lane, std::uint16_t scale) {
    if (lane == 0) store<1>(reinterpret_cast<std::uint16_t*>(to), {scale});
  }
  static __device__ std::uint16_t take_scale(std::byte const* from) {
    return load<1>(reinterpret_cast<std::uint16_t const*>(from)).value[0];
  }
  /// Four bytes of the codes behind the scale: blocks begin at even bytes.
  static __device__ void put(std::byte* to, unsigned at, std::uint32_t word) {
    auto* const halves = reinterpret_cast<std::uint16_t*>(to + block_scale::bytes) + 2 * static_cast<std::size_t>(at);
    store<1>(halves, {static_cast<std::uint16_t>(word)});
    store<1>(halves + 1, {static_cast<std::uint16_t>(word >> 16U)});
  }
  static __device__ std::uint32_t take(std::byte const* from, unsigned at) {
    auto const* const halves =
        reinterpret_cast<std::uint16_t const*>(from + block_scale::bytes) + 2 * static_cast<std::size_t>(at);
    return load<1>(halves).value[0] | static_cast<std::uint32_t>(load<1>(halves + 1).value[0]) << 16U;
  }
  static __device__ void fill(float with, values& x) {
#pragma unroll
    for (float& each : x.value) each = with;
  }
  /// A lane has four codes of `width` bits, a byte each, of either half of the block. `first`: the plane's first word.
  template <unsigned width>
  static __device__ void put_plane(std::byte* to, unsigned first, unsigned lane, std::uint32_t low, std::uint32_t high) {
    constexpr unsigned words = 8 * width;
    std::uint32_t word = 0;
#pragma unroll
    for (unsigned m = 0; m < warp_lanes / words; ++m) {
      const int source = static_cast<int>((lane + words * m) % warp_lanes);
      word |= __shfl_sync(whole_warp, low, source) << (width * m) | __shfl_sync(whole_warp, high, source) << (width * m + 4);
    }
    if (lane < words) put(to, first + lane, word);
  }
  template <unsigned width>
  static __device__ std::uint32_t take_plane(std::byte const* from, unsigned first, unsigned lane, unsigned half) {
    constexpr unsigned words = 8 * width;
    return take(from, first + lane % words) >> (4 * half + width * (lane / words)) & 0x01010101U * ((1U << width) - 1);
  }
};

template <int Bits>
struct device_block_gauss : device_levels {
  using arithmetic = gaussian_code<Bits>;

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    const unsigned some = count_above(x, 0);
    const std::uint32_t largest = largest_magnitude(x);
    std::uint16_t scale = block_scale::of_root_mean_square(sum(x, [](double each) { return each * each; }), some);
    bool zero = some < block_size;
    const bool any = block_scale::has_codes(scale);
    if (any && largest > arithmetic::outlier(scale)) {  // alike in all lanes
      const std::uint16_t wide = arithmetic::scale_of_largest(largest);
      if (lost(x, true, wide) < lost(x, zero, scale)) {
        zero = true;
        scale = wide;
      }
    }
    put_scale(to, lane, any && zero ? static_cast<std::uint16_t>(scale | block_scale::sign) : scale);
    std::uint32_t codes[2] = {};
    if (any) {
#pragma unroll
      for (unsigned k = 0; k < 8; ++k)
        codes[k / 4] |= arithmetic::code(x.value[k], arithmetic::levels_of(zero), block_scale::value(scale)) << (8 * (k % 4));
    }
    if constexpr (Bits == 3) {
      put_plane<2>(to, 0, lane, codes[0] & 0x03030303U, codes[1] & 0x03030303U);
      put_plane<1>(to, 16, lane, codes[0] >> 2U & 0x01010101U, codes[1] >> 2U & 0x01010101U);
    } else {
      put_plane<Bits>(to, 0, lane, codes[0], codes[1]);
    }
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    const std::uint16_t scale = take_scale(from);
    if (!block_scale::has_codes(scale)) return fill(block_scale::value(scale), x);
    const bool zeros = (scale & block_scale::sign) != 0;
    const auto levels = arithmetic::levels_of(zeros);
#pragma unroll
    for (unsigned s = 0; s < 2; ++s) {
      std::uint32_t codes = 0;
      if constexpr (Bits == 3) {
        codes = take_plane<2>(from, 0, lane, s) | take_plane<1>(from, 16, lane, s) << 2U;
      } else {
        codes = take_plane<Bits>(from, 0, lane, s);
      }
#pragma unroll
      for (unsigned k = 0; k < 4; ++k)
        x.value[4 * s + k] = arithmetic::value(codes >> (8 * k) & 255U, levels, block_scale::value(scale));
    }
  }

 private:
  /// The sum of squares of what codes of this scale lack.
  static __device__ double lost(values const& x, bool zero, std::uint16_t scale) {
    values lacks;
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      const std::uint32_t code = arithmetic::code(x.value[k], arithmetic::levels_of(zero), block_scale::value(scale));
      lacks.value[k] = x.value[k] - arithmetic::value(code, arithmetic::levels_of(zero), block_scale::value(scale));
    }
    return sum(lacks, [](double each) { return each * each; });
  }
};
template <>
struct device_encoding<block_gauss4> : device_block_gauss<4> {};
template <>
struct device_encoding<block_gauss3> : device_block_gauss<3> {};
template <>
struct device_encoding<block_gauss2> : device_block_gauss<2> {};

template <>
struct device_encoding<block_ternary> : device_levels {
  using arithmetic = ternary_code;
  static constexpr unsigned words = block_ternary::digit_bytes / 4;  // 13, of 64 groups of four numbers

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    const double magnitudes = sum(x, [](double each) { return each < 0 ? -each : each; });
    std::uint16_t scale = block_scale::of_mean(magnitudes, 256);
    const float threshold = arithmetic::threshold(magnitudes);
    if (block_scale::has_codes(scale)) {  // alike in all lanes
      const double kept = sum(x, [limit = static_cast<double>(threshold)](double each) {
        const double magnitude = each < 0 ? -each : each;
        return magnitude > limit ? magnitude : 0;
      });
      scale = block_scale::of_mean(kept, count_above(x, std::bit_cast<std::uint32_t>(threshold)));
    }
    put_scale(to, lane, scale);
    std::uint32_t digits[2] = {};
    if (block_scale::has_codes(scale)) {
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) digits[k / 4] |= arithmetic::digit(x.value[k], threshold) << (8 * (k % 4));
    }
    std::uint32_t word = 0, power = 1;
#pragma unroll
    for (unsigned m = 0; m < 5; ++m, power *= 3) {
      const unsigned group = words * m + lane;
      const int source = static_cast<int>(group % warp_lanes);
      const std::uint32_t low = __shfl_sync(whole_warp, digits[0], source), high = __shfl_sync(whole_warp, digits[1], source);
      word += (group < 32 ? low : group < 64 ? high : 0U) * power;
    }
    if (lane < words) put(to, lane, word);
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    const std::uint16_t scale = take_scale(from);
    if (!block_scale::has_codes(scale)) return fill(block_scale::value(scale), x);
#pragma unroll
    for (unsigned s = 0; s < 2; ++s) {
      const unsigned group = warp_lanes * s + lane;
      const std::uint32_t word = take(from, group % words);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        std::uint32_t left = word >> (8 * k) & 255U;
#pragma unroll
        for (unsigned m = 0; m < 4; ++m) left = m < group / words ? arithmetic::third(left) : left;
        x.value[4 * s + k] = arithmetic::value(left - 3 * arithmetic::third(left), block_scale::value(scale));
      }
    }
  }
};

template <>
struct device_encoding<block_sign> : device_levels {
  using arithmetic = sign_code;

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    const std::uint16_t scale =
        block_scale::of_mean(sum(x, [](double each) { return each < 0 ? -each : each; }), filled(x, lane));
    put_scale(to, lane, scale);
    std::uint32_t codes[2] = {};
    if (block_scale::has_codes(scale)) {  // alike in all lanes
#pragma unroll
      for (unsigned k = 0; k < 8; ++k)
        codes[k / 4] |= arithmetic::code(std::bit_cast<std::uint32_t>(x.value[k])) << (8 * (k % 4));
    }
    put_plane<1>(to, 0, lane, codes[0], codes[1]);
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    const std::uint16_t scale = take_scale(from);
    if (!block_scale::has_codes(scale)) return fill(block_scale::value(scale), x);
#pragma unroll
    for (unsigned s = 0; s < 2; ++s) {
      const std::uint32_t codes = take_plane<1>(from, 0, lane, s);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k)
        x.value[4 * s + k] = std::bit_cast<float>(arithmetic::value_bits(codes >> (8 * k) & 1U, scale));
    }
  }

 private:
  /// How many numbers come before the zeros at the block's end.
  static __device__ std::size_t filled(values const& x, unsigned lane) {
    std::uint32_t mine = 0;
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {  // in their order
      if (std::bit_cast<std::uint32_t>(x.value[k]) << 1U != 0) mine = static_cast<std::uint32_t>(values::index(k, lane)) + 1;
    }
    return warp_maximum(mine);
  }
};

template <>
struct device_encoding<block_stat2> : device_levels {
  using arithmetic = statistical_code;

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    const double magnitudes = sum(x, [](double each) { return each < 0 ? -each : each; });
    arithmetic levels{block_scale::of_mean(magnitudes, block_size), 0};
    if (block_scale::has_codes(levels.upper)) levels = levels_of(x, magnitudes);  // alike in all lanes
    put_scale(to, lane, levels.upper);
    put_scale(to + block_scale::bytes, lane, levels.lower);
    std::uint32_t codes[2] = {};
    if (block_scale::has_codes(levels.upper)) {
      const std::uint32_t between = levels.between();
#pragma unroll
      for (unsigned k = 0; k < 8; ++k)
        codes[k / 4] |= arithmetic::code(std::bit_cast<std::uint32_t>(x.value[k]), between) << (8 * (k % 4));
    }
    put_plane<2>(to + block_scale::bytes, 0, lane, codes[0], codes[1]);
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    const arithmetic levels{take_scale(from), take_scale(from + block_scale::bytes)};
    if (!block_scale::has_codes(levels.upper)) return fill(block_scale::value(levels.upper), x);
#pragma unroll
    for (unsigned s = 0; s < 2; ++s) {
      const std::uint32_t codes = take_plane<2>(from + block_scale::bytes, 0, lane, s);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) x.value[4 * s + k] = std::bit_cast<float>(levels.value_bits(codes >> (8 * k) & 3U));
    }
  }

 private:
  static __device__ arithmetic levels_of(values const& x, double magnitudes) {
    const bool zeros = count_above(x, 0) < block_size;
    const std::uint32_t cut = arithmetic::cut(sum(x, [](double each) { return each * each; }), magnitudes, zeros);
    const auto limit = static_cast<double>(std::bit_cast<float>(cut));
    const double above = sum(x, [limit](double each) {
      const double magnitude = each < 0 ? -each : each;
      return magnitude > limit ? magnitude : 0;
    });
    const double below = sum(x, [limit](double each) {
      const double magnitude = each < 0 ? -each : each;
      return magnitude > limit ? 0 : magnitude;
    });
    const unsigned over = count_above(x, cut);
    return {block_scale::of_mean(above, over), zeros ? std::uint16_t{0} : block_scale::of_mean(below, block_size - over)};
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
