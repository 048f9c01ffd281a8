// SPDX-License-Identifier: Apache-2.0
// Codes of one, two or four bits lie in planes: a byte holds those of numbers that are far apart, so that SIMD packs
// them. Three bits are two and one (block_gauss.hpp); five would be four and one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// f(k) for k from 0 to before `Count`, each a constant: g++ -O2 leaves loops as they are.
template <unsigned Count, class F>
[[gnu::always_inline]] inline void for_indices(F&& f) noexcept {
  [&]<unsigned... k>(std::integer_sequence<unsigned, k...>) {
    (f(std::integral_constant<unsigned, k>{}), ...);
  }(std::make_integer_sequence<unsigned, Count>{});
}

/// Planes of a block of `Block` codes. Of `width` bits a number, byte k holds those of the numbers k, k + Block
/// width / 8, ..., the first lowest. By registers of `Bytes`, which a plane must fill to be taken.
template <std::size_t Block, std::size_t Bytes = simd_bytes>
struct bit_planes {
  static_assert(Block % 256 == 0);
  static constexpr std::size_t at_once = Bytes;
  static constexpr std::size_t lanes = at_once / 4;
  static constexpr std::size_t packed_at_once = Bytes == 64 ? lanes : at_once;  ///< AVX-512 narrows a register alone
  using integers = pack<float, lanes>::template vector_of<std::int32_t>::type;
  using floats = pack<float, lanes>::vector;
  using shorts = pack<float, 2 * lanes>::template vector_of<std::int16_t>::type;

  /// Of every number `width` bits: code(k) gives those of the numbers from the k-th on, and nothing above them.
  template <int width, class Code>
  [[gnu::always_inline]] static void put(Code&& code, std::uint8_t* to) noexcept {
    constexpr std::size_t stride = Block * width / 8;
    const auto bytes_from = [&](std::size_t k) {
      integers all = code(k);
      for (int m = 1; m < 8 / width; ++m) all |= code(k + static_cast<std::size_t>(m) * stride) << (width * m);
      return all;
    };
    static_assert(stride % packed_at_once == 0);
    for (std::size_t k = 0; k < stride; k += packed_at_once) pack_from(k, bytes_from, to);
  }
  /// Bytes k to k + packed_at_once, of integers that bytes_from(k) gives of those from the k-th on; none is above 255.
  template <class BytesFrom>
  [[gnu::always_inline]] static void pack_from(std::size_t k, BytesFrom const& bytes_from, std::uint8_t* to) noexcept {
    if constexpr (packed_at_once == lanes) {
      integers all = bytes_from(k);
#if defined(__clang__)
      asm("" : "+v"(all));  // else it narrows every step that made them
#endif
      const auto lowest = __builtin_convertvector(all, few_bytes);
      std::memcpy(to + k, &lowest, sizeof lowest);
    } else {
      const shorts halves[2] = {narrow(bytes_from(k), bytes_from(k + lanes)),
                                narrow(bytes_from(k + 2 * lanes), bytes_from(k + 3 * lanes))};
      shorts_of_all all;
      std::memcpy(&all, halves, sizeof all);
      const auto lowest = __builtin_convertvector(all, bytes);
      std::memcpy(to + k, &lowest, sizeof lowest);
    }
  }
  /// Back: codes, a byte each. Where `to` is not 0, they are added to what the codes hold.
  template <int width, int to>
  static void take(std::uint8_t const* from, std::uint8_t* codes) noexcept {
    constexpr int in_a_byte = 8 / width;
    constexpr std::size_t stride = Block / in_a_byte;
    for (std::size_t k = 0; k < stride; k += at_once) {
      const bytes all = load(from + k);
      for (int m = 0; m < in_a_byte; ++m) {
        bytes some = (all >> static_cast<std::uint8_t>(width * m)) & static_cast<std::uint8_t>((1 << width) - 1);
        std::uint8_t* const at = codes + k + static_cast<std::size_t>(m) * stride;
        if constexpr (to > 0) some = load(at) | some << static_cast<std::uint8_t>(to);
        std::memcpy(at, &some, sizeof some);
      }
    }
  }
  /// f(i, codes) of the numbers from the i-th on, in 16 bits; or in 32.
  template <class F>
  [[gnu::always_inline]] static void for_shorts(std::uint8_t const* codes, F&& f) noexcept {
    for (std::size_t i = 0; i < Block; i += at_once) {
      const auto wide = __builtin_convertvector(load(codes + i), shorts_of_all);
      shorts halves[2];
      std::memcpy(halves, &wide, sizeof wide);
      f(i, halves[0]);
      f(i + 2 * lanes, halves[1]);
    }
  }
  template <class F>
  [[gnu::always_inline]] static void for_integers(std::uint8_t const* codes, F&& f) noexcept {
    for_shorts(codes, [&](std::size_t i, shorts const& some) {
      integers halves[2];
      widen(some, halves);
      f(i, halves[0]);
      f(i + lanes, halves[1]);
    });
  }
  static void widen(shorts const& from, integers (&to)[2]) noexcept {
    const auto wide = __builtin_convertvector(from, integers_of_shorts);
    std::memcpy(to, &wide, sizeof wide);
  }
  static floats numbers_of(integers const& from) noexcept { return __builtin_convertvector(from, floats); }
  /// The bits of the numbers from there on.
  static integers bits(float const* values) noexcept {
    integers x;
    std::memcpy(&x, values, sizeof x);
    return x;
  }
  /// 1 for what is below 0. A 0 counts as positive, whatever its own sign.
  static integers below_zero(integers const& bits, integers const& magnitude) noexcept {
    using words = pack<float, lanes>::template vector_of<std::uint32_t>::type;
    return reinterpret_cast<integers>(reinterpret_cast<words>(bits & (magnitude != 0)) >> 31U);
  }

 private:
  // g++ converts whole registers, two to one or one to two; of less it makes a number at a time
  using bytes = pack<float, 4 * lanes>::template vector_of<std::uint8_t>::type;
  using few_bytes = pack<float, lanes>::template vector_of<std::uint8_t>::type;
  using shorts_of_all = pack<float, 4 * lanes>::template vector_of<std::int16_t>::type;
  using integers_of_shorts = pack<float, 2 * lanes>::template vector_of<std::int32_t>::type;
  static shorts narrow(integers const& a, integers const& b) noexcept {
    integers both[2] = {a, b};
#if defined(__clang__)
    asm("" : "+m"(both));  // else it narrows every step that made them
#endif
    integers_of_shorts wide;
    std::memcpy(&wide, both, sizeof wide);
    return __builtin_convertvector(wide, shorts);
  }
  static bytes load(std::uint8_t const* from) noexcept {
    bytes x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
};
/// For planes of 32 bytes.
template <std::size_t Block>
using thin_planes = bit_planes<Block, (simd_bytes < 32 ? simd_bytes : 32)>;

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
