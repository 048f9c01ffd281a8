// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <acco/half.hpp>

using acco::half;

static_assert(sizeof(half) == 2);
static_assert(std::is_trivially_copyable_v<half> && std::is_trivially_default_constructible_v<half>);
static_assert(half(1.0F).bits() == 0x3c00 && half(-2.0F).bits() == 0xc000 && half(65504.0F).bits() == 0x7bff);

TEST_CASE("every half survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const half x = half::from_bits(static_cast<std::uint16_t>(bits));
    const auto back = half(static_cast<float>(x));
    if (std::isnan(static_cast<float>(x))) {
      CHECK(std::isnan(static_cast<float>(back)));
    } else {
      CHECK(back.bits() == x.bits());
    }
  }
}

TEST_CASE("conversion rounds to nearest, ties to even, subnormal numbers included") {
  for (std::uint32_t low = 0; low < 0x7bff; low += 3) {
    const float a = half::from_bits(static_cast<std::uint16_t>(low)), b = half::from_bits(static_cast<std::uint16_t>(low + 1));
    const float middle = (a + b) / 2;  // exact in float
    CHECK(half(std::nextafter(middle, a)).bits() == low);
    CHECK(half(std::nextafter(middle, b)).bits() == low + 1);
    CHECK(half(middle).bits() == (low % 2 == 0 ? low : low + 1));
    CHECK(half(-middle).bits() == ((low % 2 == 0 ? low : low + 1) | 0x8000U));
  }
}

TEST_CASE("infinities and overflow") {
  CHECK(half(std::numeric_limits<float>::infinity()).bits() == 0x7c00);
  CHECK(half(65519.0F).bits() == 0x7bff);
  CHECK(half(65520.0F).bits() == 0x7c00);
  CHECK(half(-1e30F).bits() == 0xfc00);
  CHECK(half(1e-10F).bits() == 0);
  CHECK(std::bit_cast<std::uint32_t>(static_cast<float>(half(-0.0F))) == 0x80000000U);
}
