// SPDX-License-Identifier: Apache-2.0
// Codes of one, two or four bits lie in planes: a byte holds those of numbers that are far apart, so that SIMD packs
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Planes of a block of `Block` codes, a byte each. Of `width` bits a number, byte k holds those of the numbers k,
/// k + Block width / 8, ..., the first lowest.
template <std::size_t Block>
struct bit_planes {
  static_assert(Block % 256 == 0);

  /// Of every code `width` bits, those from bit `from` on.
  template <int width, int from>
  static void put(std::uint8_t const* codes, std::uint8_t* to) noexcept {
    constexpr int in_a_byte = 8 / width;
    constexpr std::size_t stride = Block / in_a_byte;
    for (std::size_t k = 0; k < stride; k += at_once) {
      bytes all = {};
      for (int m = 0; m < in_a_byte; ++m) {
        const bytes some = (load(codes + k + static_cast<std::size_t>(m) * stride) >> static_cast<std::uint8_t>(from)) &
                           static_cast<std::uint8_t>((1 << width) - 1);
        all |= some << static_cast<std::uint8_t>(width * m);
      }
      std::memcpy(to + k, &all, sizeof all);
    }
  }
  /// Back. Where `to` is not 0, they are added to what the codes hold.
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

 private:
  static constexpr std::size_t at_once = simd_bytes < 32 ? simd_bytes : 32;  // the shortest plane has 32
  typedef std::uint8_t bytes __attribute__((vector_size(at_once)));          // NOLINT(modernize-use-using)
  static bytes load(std::uint8_t const* from) noexcept {
    bytes x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
