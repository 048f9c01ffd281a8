// SPDX-License-Identifier: Apache-2.0
// A rotation of a block: what one number was is spread over all of them, so that they look like a Gaussian's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "acco/code/mix_bits.hpp"
#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Random signs, then the Hadamard transform of a block of 256 numbers, orthonormal. Sums and differences only, and a
/// power of two: the same bits on host and device.
struct hadamard {
  static constexpr std::size_t size = 256;
  static constexpr float scale = 1.0F / 16;
  static constexpr std::uint32_t too_large = 0x7b800000;  ///< bits of 2^120: sums of larger numbers would not be finite

  /// Whether the i-th number changes its sign: a bit of a hash of i, the same in every block.
  [[nodiscard]] static constexpr bool flips(std::uint32_t i) noexcept { return (mix_bits(i) & 1U) != 0; }
  /// Whether numbers may be turned: sums of them are finite, and none is 0, which would not stay so.
  [[nodiscard]] static constexpr bool turns(std::size_t zeros, std::uint32_t largest) noexcept {
    return zeros == 0 && largest < too_large;
  }
  /// to = H S from / 16
  static void turn(float const* from, float* to) noexcept {
    sign(from, to);
    transform(to);
  }
  /// Back, in place: S H values / 16.
  static void turn_back(float* values) noexcept {
    for (std::size_t i = 0; i < size; i += lanes) (numbers::load(values + i) * numbers(scale)).store(values + i);
    transform(values);
    for (std::size_t i = 0; i < size; i += lanes) flip(values + i, i, values + i);
  }

 private:
  using numbers = pack<float>;
  using integers = numbers::vector_of<std::int32_t>::type;
  static constexpr std::size_t lanes = numbers::lanes;

  struct sign_bits {
    alignas(64) std::int32_t bits[size] = {};
    constexpr sign_bits() {
      for (std::uint32_t i = 0; i < size; ++i) bits[i] = flips(i) ? static_cast<std::int32_t>(0x80000000U) : 0;
    }
  };

  /// `from` with the signs of numbers from the i-th on.
  static void flip(float const* from, std::size_t i, float* to) noexcept {
    static constexpr sign_bits signs;
    integers bits, flipped;
    std::memcpy(&bits, from, sizeof bits);
    std::memcpy(&flipped, signs.bits + i, sizeof flipped);
    bits ^= flipped;
    std::memcpy(to, &bits, sizeof bits);
  }
  static void sign(float const* from, float* to) noexcept {
    for (std::size_t i = 0; i < size; i += lanes) {
      (numbers::load(from + i) * numbers(scale)).store(to + i);
      flip(to + i, i, to + i);
    }
  }
  /// Pairs of numbers that are 1, 2, 4 ... 128 apart become their sum and their difference.
  static void transform(float* values) noexcept {
    for (std::size_t i = 0; i < size; i += lanes) {
      auto x = numbers::load(values + i).value;
      within<1>(x);
      numbers(x).store(values + i);
    }
    for (std::size_t apart = lanes; apart < size; apart *= 2) {
      for (std::size_t begin = 0; begin < size; begin += 2 * apart) {
        for (std::size_t i = begin; i < begin + apart; i += lanes) {
          const auto a = numbers::load(values + i), b = numbers::load(values + i + apart);
          (a + b).store(values + i);
          (a - b).store(values + i + apart);
        }
      }
    }
  }
  template <std::size_t Apart>
  static void within(numbers::vector& x) noexcept {
    if constexpr (Apart < lanes) {
      step<Apart>(x, std::make_index_sequence<lanes>());
      within<2 * Apart>(x);
    }
  }
  template <std::size_t Apart, std::size_t... Lane>
  static void step(numbers::vector& x, std::index_sequence<Lane...>) noexcept {
#if defined(__CUDACC__)  // nvcc takes the shuffle for one of another type
    const numbers::vector before = x;
    ((x[Lane] = (Lane & Apart) != 0 ? before[Lane ^ Apart] - before[Lane] : before[Lane ^ Apart] + before[Lane]), ...);
#else
    const integers minus = {((Lane & Apart) != 0 ? static_cast<std::int32_t>(0x80000000U) : 0)...};
    const numbers::vector other = __builtin_shufflevector(x, x, (Lane ^ Apart)...);
    integers bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits ^= minus;
    std::memcpy(&x, &bits, sizeof bits);
    x = other + x;
#endif
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
