// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <acco/code/block_ternary.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

TEST_CASE("three levels conform") { conformance::encoding_suite(acco::block_ternary{}, 1.0, 0.3); }

TEST_CASE("digits, scale and bytes are those that the documentation says; Gaussian numbers lose 0.19") {
  static_assert(acco::encoded_size<acco::block_ternary>(2560) == 540);
  constexpr std::size_t n = acco::block_ternary::block_size;
  std::vector<float> all = gaussian_numbers(n * 1000);
  double lost = 0, squares = 0;
  std::size_t wrong = 0;
  for (std::size_t block = 0; block < 1000; ++block) {
    float* const values = all.data() + block * n;
    if (block % 3 == 0) values[block % n] = 0;
    const float by = block % 7 == 0 ? 1e-12F : 1.0F;
    for (std::size_t i = 0; i < n; ++i) values[i] *= by;
    std::byte bytes[acco::block_ternary::block_bytes];
    float decoded[n];
    acco::block_ternary::encode(values, bytes);
    acco::block_ternary::decode(bytes, decoded);
    double mean = 0, kept = 0;
    for (std::size_t i = 0; i < n; ++i) mean += std::abs(static_cast<double>(values[i])) / n;
    std::size_t above = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double magnitude = std::abs(static_cast<double>(values[i]));
      if (magnitude > 0.7 * mean) kept += magnitude, ++above;
    }
    const double scale = kept / static_cast<double>(above);
    auto const* const digits = reinterpret_cast<unsigned char const*>(bytes) + 2;
    constexpr unsigned powers[] = {1, 3, 9, 27, 81};
    for (std::size_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(values[i]), back = static_cast<double>(decoded[i]);
      const int sign = std::abs(x) > 0.7 * mean ? (x > 0 ? 1 : -1) : 0;
      wrong += std::abs(back - sign * scale) <= scale / 256 ? 0U : 1U;  // a scale has eight significant bits
      wrong += static_cast<int>(digits[i % 52] / powers[i / 52] % 3) == sign + 1 ? 0U : 1U;
      lost += (x - back) * (x - back) / static_cast<double>(by * by);
      squares += x * x / static_cast<double>(by * by);
    }
  }
  CHECK(wrong == 0);
  CHECK(lost / squares == doctest::Approx(0.1907).epsilon(0.02));
}

TEST_CASE("a block of one number, of equal numbers, and one that is too small") {
  float values[256] = {}, decoded[256];
  std::byte bytes[acco::block_ternary::block_bytes];
  const auto there_and_back = [&] {
    acco::block_ternary::encode(values, bytes);
    acco::block_ternary::decode(bytes, decoded);
  };
  values[255] = -3;
  there_and_back();
  CHECK(decoded[255] == -3);
  CHECK(decoded[254] == 0);
  for (float& each : values) each = 0.25F;
  there_and_back();
  CHECK(decoded[0] == 0.25F);
  CHECK(decoded[255] == 0.25F);
  for (float& each : values) each = 1e-31F;
  there_and_back();
  CHECK(decoded[77] == 0);
}
