// SPDX-License-Identifier: Apache-2.0
// bfloat16: the upper half of an IEEE binary32, as a 2-byte storage type. Arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>

#include "acco/opaque.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Two bytes: sign, 8 exponent bits, 7 fraction bits. Conversion from float rounds to nearest even; a NaN stays a NaN.
/// Bit-compatible with every other bfloat16; trivially copyable, so it may be sent as bytes.
class bfloat16 {
 public:
  bfloat16() = default;
  constexpr explicit bfloat16(float value) noexcept : bits_(round_to_nearest_even(value)) {}
  constexpr explicit bfloat16(double value) noexcept : bfloat16(static_cast<float>(value)) {}

  [[nodiscard]] static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 result{};
    result.bits_ = bits;
    return result;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const noexcept { return bits_; }

  constexpr operator float() const noexcept {  // NOLINT(google-explicit-constructor): widening loses nothing
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16U);
  }
  constexpr bfloat16& operator+=(float value) noexcept { return *this = bfloat16(static_cast<float>(*this) + value); }

 private:
  [[nodiscard]] static constexpr std::uint16_t round_to_nearest_even(float value) noexcept {
    const auto bits = opaque(std::bit_cast<std::uint32_t>(value));
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // quiet the NaN
    return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
  }

  std::uint16_t bits_;
};

}  // namespace ACCO_NAMESPACE
