// SPDX-License-Identifier: Apache-2.0
// tests/fast_math has the same where the compiler assumes that all numbers are finite.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/number/finite.hpp>
#include <acco/number/finite_arrays.hpp>

static_assert(acco::is_finite(1.0) && acco::is_finite(0.0F) && acco::is_finite(std::numeric_limits<double>::max()));
static_assert(!acco::is_finite(std::numeric_limits<double>::infinity()) &&
              !acco::is_finite(-std::numeric_limits<float>::infinity()));
static_assert(!acco::is_finite(std::numeric_limits<double>::quiet_NaN()));
static_assert(acco::is_finite(acco::bfloat16(3e38F)) && !acco::is_finite(acco::half(1e6F)));

TEST_CASE("every 16-bit number, and floats and doubles around every exponent, agree with the standard library") {
  std::size_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = acco::bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    const auto h = acco::half::from_bits(static_cast<std::uint16_t>(bits));
    wrong += acco::is_finite(b) != std::isfinite(static_cast<float>(b));
    wrong += acco::is_finite(h) != std::isfinite(static_cast<float>(h));
    for (const std::uint32_t low : {0U, 1U, 0xffffU}) {
      const auto f = std::bit_cast<float>(bits << 16U | low);
      const auto d = std::bit_cast<double>(static_cast<std::uint64_t>(bits) << 48U | low);
      wrong += acco::is_finite(f) != std::isfinite(f);
      wrong += acco::is_finite(d) != std::isfinite(d);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("arrays: what is not finite is counted, and the first found, wherever it lies", T, float, double,
                   acco::bfloat16, acco::half) {
  const T infinity(std::numeric_limits<float>::infinity()), nan(std::numeric_limits<float>::quiet_NaN());
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{1024}, std::size_t{2500}}) {
    std::vector<T> numbers(count, T(60000.0F));
    std::size_t first = 77;
    CHECK(acco::elementwise::all_finite(numbers.data(), count));
    CHECK(acco::elementwise::count_non_finite(numbers.data(), count, first) == 0);
    CHECK(first == 77);
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < count; at += 13) {
      numbers[at] = at % 2 == 0 ? nan : infinity;
      wrong += acco::elementwise::all_finite(numbers.data(), count);
      const std::size_t behind = at + 1100;
      if (behind < count) numbers[behind] = nan;
      wrong += acco::elementwise::count_non_finite(numbers.data(), count, first) != (behind < count ? 2U : 1U) || first != at;
      numbers[at] = T(1.0F);
      if (behind < count) numbers[behind] = T(1.0F);
    }
    CHECK(wrong == 0);
  }
}
