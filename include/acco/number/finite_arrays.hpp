// SPDX-License-Identifier: Apache-2.0
// Which numbers of an array are not finite, by their bits (number/finite.hpp).
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "acco/number/finite.hpp"
#include "acco/number/pack.hpp"

namespace ACCO_SIMD_NAMESPACE::elementwise {

/// Whether none of `count` numbers is infinite or NaN.
template <class Number>
[[nodiscard]] inline bool all_finite(Number const* from, std::size_t count) {
  using integer = std::make_signed_t<typename number_bits<Number>::type>;  // what comparing vectors gives
  typedef integer vector __attribute__((vector_size(simd_bytes)));         // NOLINT(modernize-use-using)
  constexpr std::size_t lanes = simd_bytes / sizeof(Number);
  constexpr integer exponent = number_bits<Number>::exponent;
  from = opaque(from);  // what was just written there by arithmetic is read again
  vector bad{};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    vector each;
    std::memcpy(&each, from + i, sizeof each);
    bad |= (each & exponent) == exponent;
  }
  bool finite = true;
  for (std::size_t k = 0; k < lanes; ++k) finite = finite && bad[k] == 0;
  for (; i < count; ++i) finite = finite && is_finite(from[i]);
  return finite;
}

/// How many of `count` numbers are infinite or NaN; `first` becomes the index of the first of them.
template <class Number>
[[nodiscard]] inline std::size_t count_non_finite(Number const* from, std::size_t count, std::size_t& first) {
  constexpr std::size_t block = 1024;
  std::size_t found = 0;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t end = count - begin < block ? count : begin + block;
    if (all_finite(from + begin, end - begin)) continue;  // nearly always: one pass at the speed of memory
    for (std::size_t i = begin; i < end; ++i) {
      if (!is_finite(from[i]) && found++ == 0) first = i;
    }
  }
  return found;
}

}  // namespace ACCO_SIMD_NAMESPACE::elementwise
