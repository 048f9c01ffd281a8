// SPDX-License-Identifier: Apache-2.0
// A SIMD pack on the vector types that g++ and clang share: as wide as the compiler's flags allow, with the functions of
// rule/real.hpp. (Our own, because <experimental/simd> costs more compile time than all of acco and does not compile under nvcc.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "acco/bfloat16.hpp"
#include "acco/half.hpp"
#include "acco/rule/real.hpp"

namespace ACCO_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr std::size_t simd_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t simd_bytes = 32;
#else
inline constexpr std::size_t simd_bytes = 16;
#endif

/// `Lanes` numbers of type T that are computed with at once. A drop-in for T inside `Rule::apply`.
template <scalar_real T, std::size_t Lanes = simd_bytes / sizeof(T)>
struct pack {
  template <class U>
  struct vector_of {
    typedef U type __attribute__((vector_size(Lanes * sizeof(U))));  // NOLINT(modernize-use-using): the attribute needs a typedef
  };
  using vector = typename vector_of<T>::type;
  using integer = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  using mask = typename vector_of<integer>::type;
  static constexpr std::size_t lanes = Lanes;

  vector value;

  pack() = default;
  explicit pack(vector v) noexcept : value(v) {}
  explicit pack(double x) noexcept : value(vector{} + static_cast<T>(x)) {}

  friend pack operator+(pack a, pack b) noexcept { return pack(a.value + b.value); }
  friend pack operator-(pack a, pack b) noexcept { return pack(a.value - b.value); }
  friend pack operator*(pack a, pack b) noexcept { return pack(a.value * b.value); }
  friend pack operator/(pack a, pack b) noexcept { return pack(a.value / b.value); }
  friend pack operator-(pack a) noexcept { return pack(-a.value); }
  pack& operator+=(pack b) noexcept { return *this = *this + b; }
  pack& operator-=(pack b) noexcept { return *this = *this - b; }
  pack& operator*=(pack b) noexcept { return *this = *this * b; }
  pack& operator/=(pack b) noexcept { return *this = *this / b; }

  friend pack maximum(pack a, pack b) noexcept { return pack(a.value < b.value ? b.value : a.value); }
  friend pack absolute(pack a) noexcept { return pack(a.value < vector{} ? -a.value : a.value); }
  friend pack sign(pack a) noexcept {
    const vector one = vector{} + T(1);
    return pack(a.value > vector{} ? one : (a.value < vector{} ? -one : vector{}));
  }
  friend pack square_root(pack a) noexcept {
#if defined(__clang__)
    return pack(__builtin_elementwise_sqrt(a.value));
#else
    // g++ does not vectorise a loop of sqrt because it may set errno, and has no generic vector square root.
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, float> && Lanes == 16) return pack(__builtin_ia32_sqrtps512_mask(a.value, a.value, -1, 4));
    if constexpr (std::is_same_v<T, double> && Lanes == 8) return pack(__builtin_ia32_sqrtpd512_mask(a.value, a.value, -1, 4));
#elif defined(__AVX__)
    if constexpr (std::is_same_v<T, float> && Lanes == 8) return pack(__builtin_ia32_sqrtps256(a.value));
    if constexpr (std::is_same_v<T, double> && Lanes == 4) return pack(__builtin_ia32_sqrtpd256(a.value));
#elif defined(__SSE2__)
    if constexpr (std::is_same_v<T, float> && Lanes == 4) return pack(__builtin_ia32_sqrtps(a.value));
    if constexpr (std::is_same_v<T, double> && Lanes == 2) return pack(__builtin_ia32_sqrtpd(a.value));
#endif
    for (std::size_t i = 0; i < Lanes; ++i) a.value[i] = acco::square_root(static_cast<T>(a.value[i]));
    return a;
#endif
  }

  /// Reads `Lanes` numbers of another element type (float, double, bfloat16, half) and converts them.
  template <class U>
  [[nodiscard]] static pack load(U const* from) noexcept {
    if constexpr (std::is_same_v<U, bfloat16>) {
      typename vector_of<std::uint16_t>::type narrow;
      std::memcpy(&narrow, from, sizeof narrow);
      const auto bits = __builtin_convertvector(narrow, typename vector_of<std::uint32_t>::type) << 16;
      typename vector_of<float>::type wide;
      std::memcpy(&wide, &bits, sizeof wide);
      return pack(__builtin_convertvector(wide, vector));
    } else if constexpr (std::is_same_v<U, half>) {
      vector values{};
      for (std::size_t i = 0; i < Lanes; ++i) values[i] = static_cast<T>(static_cast<float>(from[i]));
      return pack(values);
    } else {
      typename vector_of<U>::type raw;
      std::memcpy(&raw, from, sizeof raw);
      return pack(__builtin_convertvector(raw, vector));
    }
  }

  /// Converts to the other element type (bfloat16 and half: nearest even, NaN preserved) and writes `Lanes` numbers.
  template <class U>
  void store(U* to) const noexcept {
    if constexpr (std::is_same_v<U, bfloat16>) {
      using bits_vector = typename vector_of<std::uint32_t>::type;
      const auto narrow = __builtin_convertvector(value, typename vector_of<float>::type);
      bits_vector bits;
      std::memcpy(&bits, &narrow, sizeof bits);
      const bits_vector rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
      const bits_vector not_a_number = (bits >> 16) | 0x40U;
      const auto upper = __builtin_convertvector((bits & 0x7fffffffU) > 0x7f800000U ? not_a_number : rounded,
                                                 typename vector_of<std::uint16_t>::type);
      std::memcpy(static_cast<void*>(to), &upper, sizeof upper);
    } else if constexpr (std::is_same_v<U, half>) {
      for (std::size_t i = 0; i < Lanes; ++i) to[i] = U(static_cast<float>(value[i]));
    } else {
      const auto raw = __builtin_convertvector(value, typename vector_of<U>::type);
      std::memcpy(to, &raw, sizeof raw);
    }
  }
};

}  // namespace ACCO_NAMESPACE
