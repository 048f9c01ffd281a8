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
#include "acco/opaque.hpp"

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
  /// to = H S from / 16. Returns whether the numbers may be turned; else `to` is of no use.
  [[nodiscard]] static bool turn(float const* from, float* to) noexcept {
    words refused = {};
    transform(
        [from, &refused](std::size_t i) {
          words bits;
          std::memcpy(&bits, from + i, sizeof bits);
          refused |= reinterpret_cast<words>((bits & 0x7fffffffU) - 1 >= too_large - 1);  // a 0 has become the largest
          return numbers::load(from + i) * numbers::load(signs().scaled + i);
        },
        to);
    std::uint32_t any = 0;
    for (std::size_t k = 0; k < lanes; ++k) any |= refused[k];
    return any == 0;
  }
  /// Back, in place: S H values / 16.
  static void turn_back(float* values) noexcept {
    transform([values](std::size_t i) { return numbers::load(values + i) * numbers(scale); }, values);
    for (std::size_t i = 0; i < size; i += lanes)
      (numbers::load(values + i) * numbers::load(signs().alone + i)).store(values + i);
  }

 private:
  using numbers = pack<float>;
  using words = numbers::vector_of<std::uint32_t>::type;
  static constexpr std::size_t lanes = numbers::lanes;

  struct random_signs {
    alignas(64) float alone[size] = {};
    alignas(64) float scaled[size] = {};
    constexpr random_signs() {
      for (std::uint32_t i = 0; i < size; ++i) {
        alone[i] = flips(i) ? -1.0F : 1.0F;
        scaled[i] = alone[i] * scale;
      }
    }
  };
  static random_signs const& signs() noexcept {
    static constexpr random_signs made;
    return made;
  }
  /// Pairs of numbers that are 1, 2, 4 ... 128 apart become their sum and their difference; from(i) gives those from the
  /// i-th on. What is in registers goes on to the next distance, too.
  template <class From>
  [[gnu::always_inline]] static void transform(From&& from, float* to) noexcept {
    for (std::size_t begin = 0; begin < size; begin += 4 * lanes) {
      numbers four[4];
      for (std::size_t k = 0; k < 4; ++k) {
        four[k] = from(begin + k * lanes);
        within<1>(four[k].value);
      }
      put_four(four, to + begin, lanes);
    }
    pass<4 * lanes>(to);
  }
  template <std::size_t Apart>
  static void pass(float* values) noexcept {
    if constexpr (4 * Apart <= size) {
      for (std::size_t begin = 0; begin < size; begin += 4 * Apart) {
        for (std::size_t i = begin; i < begin + Apart; i += lanes) {
          numbers four[4];
          for (std::size_t k = 0; k < 4; ++k) four[k] = numbers::load(values + i + k * Apart);
          put_four(four, values + i, Apart);
        }
      }
      pass<4 * Apart>(values);
    } else if constexpr (2 * Apart == size) {
      for (std::size_t i = 0; i < Apart; i += lanes) {
        const auto a = numbers::load(values + i), b = numbers::load(values + i + Apart);
        (a + b).store(values + i);
        (a - b).store(values + i + Apart);
      }
    }
  }
  /// Those that are `apart`, then those that are twice as far.
  static void put_four(numbers const (&x)[4], float* to, std::size_t apart) noexcept {
    const auto kept = [](numbers const& one) { return numbers(opaque(one.value)); };  // -ffast-math would change the order
    const numbers a = kept(x[0] + x[1]), b = kept(x[0] - x[1]), c = kept(x[2] + x[3]), d = kept(x[2] - x[3]);
    (a + c).store(to);
    (b + d).store(to + apart);
    (a - c).store(to + 2 * apart);
    (b - d).store(to + 3 * apart);
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
    const numbers::vector sign = {((Lane & Apart) != 0 ? -1.0F : 1.0F)...};
    const numbers::vector other = __builtin_shufflevector(x, x, (Lane ^ Apart)...);
    x = other + x * sign;  // the product is exact, fused or not
#endif
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
