// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include <acco/bfloat16.hpp>

using acco::bfloat16;

static_assert(sizeof(bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<bfloat16> && std::is_trivially_default_constructible_v<bfloat16>);
static_assert(bfloat16(1.0F).bits() == 0x3f80);

TEST_CASE("every bfloat16 survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bfloat16 x = bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    const auto back = bfloat16(static_cast<float>(x));
    if (std::isnan(static_cast<float>(x))) {
      CHECK(std::isnan(static_cast<float>(back)));
    } else {
      CHECK(back.bits() == x.bits());
    }
  }
}

TEST_CASE("conversion rounds to nearest, ties to even") {
  for (std::uint32_t high = 0; high < 0x7f80; high += 7) {
    const float low = std::bit_cast<float>(high << 16U), up = std::bit_cast<float>((high + 1) << 16U);
    const float middle = std::bit_cast<float>((high << 16U) | 0x8000U);
    CHECK(bfloat16(std::nextafter(middle, low)).bits() == high);
    CHECK(bfloat16(std::nextafter(middle, up)).bits() == high + 1);
    CHECK(bfloat16(middle).bits() == (high % 2 == 0 ? high : high + 1));
    CHECK(bfloat16(-middle).bits() == ((high % 2 == 0 ? high : high + 1) | 0x8000U));
  }
}

TEST_CASE("infinities, NaN with a payload in the lower half, and overflow") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(static_cast<float>(bfloat16(infinity)) == infinity);
  CHECK(static_cast<float>(bfloat16(-infinity)) == -infinity);
  CHECK(static_cast<float>(bfloat16(std::numeric_limits<float>::max())) == infinity);
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001U)))));  // the payload would vanish
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0xffffffffU)))));
}
