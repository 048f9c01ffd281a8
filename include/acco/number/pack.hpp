// SPDX-License-Identifier: Apache-2.0
// A SIMD pack on the vector types that g++ and clang share: as wide as the compiler's flags allow, with the functions
// of number/real.hpp. (Our own, because <experimental/simd> costs more compile time than all of acco and does not
// compile under nvcc.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "acco/bfloat16.hpp"
#include "acco/half.hpp"
#include "acco/number/real.hpp"
#include "acco/opaque.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr std::size_t simd_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t simd_bytes = 32;
#else
inline constexpr std::size_t simd_bytes = 16;
#endif

template <class Number>
concept plain_number = std::is_arithmetic_v<Number>;
template <class Number>
concept plain_number_in_brackets = plain_number<Number> && sizeof(Number) != 0;  // preferred where both would do

/// What a pack cannot do, in one sentence each: a rule that works with float would otherwise fail in pages of the
/// compiler's own.
template <class Pack>
struct refusals {  // NOLINT(bugprone-crtp-constructor-accessibility): an aggregate base of a trivial type
  /// Calls of std::sqrt and its like, casts, and conditions.
  template <plain_number Number>
  explicit(!__is_same(Number, double)) operator Number() const {
    static_assert(!plain_number<Number>,
                  "acco: the update rule's `apply` makes a plain number of a Real, which is many numbers at once: use "
                  "acco::square_root, maximum, absolute and sign, or declare `static constexpr bool scalar_only = true`");
    return {};
  }
  template <plain_number Number>
  static void refuse_plain() {
    static_assert(!plain_number<Number>, "acco: the update rule's `apply` combines a Real with a plain number x: write Real(x)");
  }
  template <plain_number Number>
  friend Pack operator+(Pack const& a, Number) {
    return refuse_plain<Number>(), a;
  }
  template <plain_number Number>
  friend Pack operator+(Number, Pack const& a) {
    return refuse_plain<Number>(), a;
  }
  template <plain_number Number>
  friend Pack operator-(Pack const& a, Number) {
    return refuse_plain<Number>(), a;
  }
  template <plain_number Number>
  friend Pack operator-(Number, Pack const& a) {
    return refuse_plain<Number>(), a;
  }
  template <plain_number Number>
  friend Pack operator*(Pack const& a, Number) {
    return refuse_plain<Number>(), a;
  }
  template <plain_number Number>
  friend Pack operator*(Number, Pack const& a) {
    return refuse_plain<Number>(), a;
  }
  template <plain_number Number>
  friend Pack operator/(Pack const& a, Number) {
    return refuse_plain<Number>(), a;
  }
  template <plain_number Number>
  friend Pack operator/(Number, Pack const& a) {
    return refuse_plain<Number>(), a;
  }
  template <class Other>
  static void refuse_comparison() {
    static_assert(!__is_same(Other, Other),
                  "acco: the update rule's `apply` compares Reals, each of which is many numbers at once: use acco::maximum, "
                  "absolute and sign, or declare `static constexpr bool scalar_only = true`");
  }
  template <class Other>
  friend bool operator==(Pack const&, Other const&) {
    return refuse_comparison<Other>(), false;
  }
  template <class Other>
  friend int operator<=>(Pack const&, Other const&) {
    return refuse_comparison<Other>(), 0;
  }
};

/// `Lanes` numbers of type T that are computed with at once. A drop-in for T inside `Rule::apply`.
template <scalar_real T, std::size_t Lanes = simd_bytes / sizeof(T)>
struct pack : refusals<pack<T, Lanes>> {
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
  template <plain_number_in_brackets Number>
  explicit pack(Number x) noexcept : value(vector{} + static_cast<T>(x)) {}
  template <plain_number Number>
  pack(Number) {  // NOLINT(google-explicit-constructor): it refuses
    pack::template refuse_plain<Number>();
  }

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
    if constexpr (std::is_same_v<T, float> && Lanes == 16) {
      return pack(__builtin_ia32_sqrtps512_mask(a.value, a.value, -1, 4));
    } else if constexpr (std::is_same_v<T, double> && Lanes == 8) {
      return pack(__builtin_ia32_sqrtpd512_mask(a.value, a.value, -1, 4));
    } else
#elif defined(__AVX__)
    if constexpr (std::is_same_v<T, float> && Lanes == 8) {
      return pack(__builtin_ia32_sqrtps256(a.value));
    } else if constexpr (std::is_same_v<T, double> && Lanes == 4) {
      return pack(__builtin_ia32_sqrtpd256(a.value));
    } else
#elif defined(__SSE2__)
    if constexpr (std::is_same_v<T, float> && Lanes == 4) {
      return pack(__builtin_ia32_sqrtps(a.value));
    } else if constexpr (std::is_same_v<T, double> && Lanes == 2) {
      return pack(__builtin_ia32_sqrtpd(a.value));
    } else
#endif
    {
      for (std::size_t i = 0; i < Lanes; ++i) a.value[i] = acco::square_root(static_cast<T>(a.value[i]));
      return a;
    }
#endif
  }

  /// Of a vector of other numbers.
  template <class Raw>
  [[nodiscard]] static vector converted(Raw const& raw) noexcept {
#if !defined(__clang__) && defined(__AVX__)  // g++ takes a register apart, and converts its halves
    if constexpr (std::is_same_v<T, double> && std::is_same_v<Raw, typename vector_of<float>::type>) {
#if defined(__AVX512F__)
      if constexpr (Lanes == 8) return __builtin_ia32_cvtps2pd512_mask(raw, vector{}, -1, 4);
#endif
      if constexpr (Lanes == 4) return __builtin_ia32_cvtps2pd256(raw);
    }
#endif
    return __builtin_convertvector(raw, vector);
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
      return pack(converted(raw));
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
      bits = opaque(bits);
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

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
