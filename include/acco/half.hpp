// SPDX-License-Identifier: Apache-2.0
// half: IEEE 754 binary16 as a 2-byte storage type. Arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "acco/opaque.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Two bytes: sign, 5 exponent bits, 10 fraction bits. Conversion from float rounds to nearest even, overflows to
/// infinity beyond 65519, and keeps a NaN a NaN. Bit-compatible with CUDA's __half and with _Float16; trivially
/// copyable.
class half {
 public:
  half() = default;
  constexpr explicit half(float value) noexcept : bits_(round_to_nearest_even(value)) {}
  constexpr explicit half(double value) noexcept : half(static_cast<float>(value)) {}

  [[nodiscard]] static constexpr half from_bits(std::uint16_t bits) noexcept {
    half result{};
    result.bits_ = bits;
    return result;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

  constexpr operator float() const noexcept {  // NOLINT(google-explicit-constructor): widening loses nothing
#if defined(__CUDA_ARCH__)                     // the same numbers, in one instruction
    float wide = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits_));
    return wide;
#endif
    const std::uint32_t sign = (bits_ & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits_ & 0x7fffU;
    if (magnitude >= 0x7c00U) return std::bit_cast<float>(opaque(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U)));
    if (magnitude >= 0x400U) return std::bit_cast<float>(sign | ((magnitude << 13U) + 0x38000000U));
    const float small = static_cast<float>(magnitude) * 0x1p-24F;  // zero and subnormals, exactly
    return sign != 0 ? -small : small;
  }
  constexpr half& operator+=(float value) noexcept { return *this = half(static_cast<float>(*this) + value); }

 private:
  [[nodiscard]] static constexpr std::uint16_t round_to_nearest_even(float value) noexcept {
#if defined(__CUDA_ARCH__)
    if (!std::is_constant_evaluated()) {
      std::uint16_t narrow = 0;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
      return narrow;
    }
#endif
    const auto bits = opaque(std::bit_cast<std::uint32_t>(value));
    const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    std::uint32_t result = 0;
    if (magnitude > 0x7f800000U) {
      result = 0x7e00U | ((magnitude >> 13U) & 0x3ffU);  // a quiet NaN
    } else if (magnitude >= 0x477ff000U) {
      result = 0x7c00U;
    } else if (magnitude >= 0x38800000U) {
      result = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
    } else {  // adding 0.5 leaves the subnormal's bits, rounded, at the end of the fraction
      result = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    }
    return static_cast<std::uint16_t>(sign | result);
  }

  std::uint16_t bits_;
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
