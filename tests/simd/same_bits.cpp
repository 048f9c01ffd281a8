// SPDX-License-Identifier: Apache-2.0
// Ranks on other processors, with registers of other widths, send the same bytes and decode the same numbers.
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "code/gaussian.hpp"
#include "simd/digests.hpp"

namespace {

void compare(std::vector<float> const& values) {
  const std::vector<digest> expected = digests_of_baseline(values);
  REQUIRE(expected.size() > 20);
  const auto same = [&](std::vector<digest> const& found) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t k = 0; k < found.size(); ++k) {
      CAPTURE(found[k].code);
      CHECK(found[k].of_bytes == expected[k].of_bytes);
      CHECK(found[k].of_numbers == expected[k].of_numbers);
    }
  };
  same(digests_of_native(values));
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    same(digests_of_haswell(values));
}

constexpr std::size_t size = 6 * 4096 + 77;

}  // namespace

TEST_CASE("Gaussian numbers, with long tails, with zeros among them") {
  std::vector<float> values = gaussian_numbers(size);
  compare(values);
  for (float& each : values) each = each * each * each * each * each;
  compare(values);
  for (std::size_t i = 0; i < size; i += 7) values[i] = i % 2 == 0 ? 0.0F : -0.0F;
  compare(values);
}

TEST_CASE("many of one magnitude, and many that are alike in the upper half of their bits") {
  std::vector<float> values = gaussian_numbers(size);
  for (float& each : values) each = std::round(each * 4);
  compare(values);
  for (float& each : values) each = 1 + std::abs(each) * 0x1p-12F;
  compare(values);
}

TEST_CASE("numbers of all sizes, from subnormal ones to the largest; and such that are not finite") {
  std::vector<float> values(size);
  std::uint32_t state = 1;
  for (float& each : values) {
    state = state * 1664525U + 1013904223U;
    each = std::bit_cast<float>(state & 0xbfffffffU);  // up to 2
  }
  compare(values);
  for (std::size_t i = 0; i < size; i += 3) values[i] *= 0x1.fp126F;
  compare(values);
  for (float& each : values) each *= 0x1p-126F;
  compare(values);
  for (std::size_t i = 100; i < size; i += 3000)
    values[i] = i % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  compare(values);
}
