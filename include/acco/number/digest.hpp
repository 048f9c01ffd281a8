// SPDX-License-Identifier: Apache-2.0
// Digests of arrays that do not depend on the order in which their elements are visited, nor on who has which of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The finalizer of splitmix64: every bit of the result depends on every bit of x.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}
inline constexpr std::uint64_t digest_step = 0x9e3779b97f4a7c15ULL;

/// The bits of a number of 2, 4 or 8 bytes, as an unsigned one.
template <class T>
[[nodiscard]] constexpr std::uint64_t bits_of(T const& value) noexcept {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<std::uint64_t>(value);
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<std::uint32_t>(value);
  } else {
    return std::bit_cast<std::uint16_t>(value);
  }
}

/// Which number an element has in a digest: i * stride + first.
struct digest_key {
  std::uint64_t first = 1, stride = 1;
  [[nodiscard]] constexpr std::uint64_t operator()(std::size_t i) const noexcept { return first + i * stride; }
};

/// The part of one element: the digest is the sum of all parts, modulo 2^64.
template <class T>
[[nodiscard]] constexpr std::uint64_t digest_part(T const& value, std::uint64_t number) noexcept {
  return mix(bits_of(value) + number * digest_step);
}
/// The part of `count` elements.
template <class T>
[[nodiscard]] constexpr std::uint64_t digest_of(T const* values, std::size_t count, digest_key key) noexcept {
  // The same numbers, modulo 2^64, without two multiplications an element.
  std::uint64_t sum = 0, number = key.first * digest_step;
  const std::uint64_t step = key.stride * digest_step;
  for (std::size_t i = 0; i < count; ++i, number += step) sum += mix(bits_of(values[i]) + number);
  return sum;
}

}  // namespace ACCO_SIMD_NAMESPACE
