// SPDX-License-Identifier: Apache-2.0
// Whether a number is finite, asked of its bits: right also where the compiler was told that no number ever is infinite
// or NaN (-Ofast, -ffast-math) and folds the comparisons that would find one. number/finite_arrays.hpp has the loops.
#pragma once

#include <bit>
#include <cstdint>

#include "acco/bfloat16.hpp"
#include "acco/half.hpp"
#include "acco/opaque.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// The bits of a number: an unsigned integer of its size, and the ones that are all set where it is infinite or NaN.
template <class Number>
struct number_bits;
template <>
struct number_bits<double> {
  using type = std::uint64_t;
  static constexpr type exponent = 0x7ff0'0000'0000'0000;
};
template <>
struct number_bits<float> {
  using type = std::uint32_t;
  static constexpr type exponent = 0x7f80'0000;
};
template <>
struct number_bits<bfloat16> {
  using type = std::uint16_t;
  static constexpr type exponent = 0x7f80;
};
template <>
struct number_bits<half> {
  using type = std::uint16_t;
  static constexpr type exponent = 0x7c00;
};

/// Whether a double, float, bfloat16 or half is neither infinite nor NaN. On host and device. Always inlined and by
/// reference: as an argument by value, clang would take it for finite.
template <class Number>
[[nodiscard, gnu::always_inline]] constexpr bool is_finite(Number const& value) noexcept {
  using bits = number_bits<Number>;
  return (opaque(std::bit_cast<typename bits::type>(value)) & bits::exponent) != bits::exponent;
}

}  // namespace ACCO_NAMESPACE
