// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include <acco/code/block_sign.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

TEST_CASE("signs conform") { conformance::encoding_suite(acco::block_sign{}, 1.0, 0.995); }

TEST_CASE("signs, scale and bytes are those that the documentation says; Gaussian numbers lose 1 - 2/pi") {
  static_assert(acco::encoded_size<acco::block_sign>(2560) == 340);
  constexpr std::size_t n = acco::block_sign::block_size;
  std::vector<float> all = gaussian_numbers(n * 1000);
  double lost = 0, squares = 0;
  std::size_t wrong = 0;
  for (std::size_t block = 0; block < 1000; ++block) {
    float* const values = all.data() + block * n;
    const float by = block % 7 == 0 ? 1e-12F : 1.0F;
    for (std::size_t i = 0; i < n; ++i) values[i] *= by;
    std::byte bytes[acco::block_sign::block_bytes];
    float decoded[n];
    acco::block_sign::encode(values, bytes);
    acco::block_sign::decode(bytes, decoded);
    double mean = 0;
    for (std::size_t i = 0; i < n; ++i) mean += std::abs(static_cast<double>(values[i])) / n;
    auto const* const signs = reinterpret_cast<unsigned char const*>(bytes) + 2;
    for (std::size_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(values[i]), back = static_cast<double>(decoded[i]);
      wrong += std::abs(back - (x < 0 ? -mean : mean)) <= mean / 256 ? 0U : 1U;  // a scale has eight significant bits
      wrong += (signs[i % 32] >> (i / 32) & 1) == (x < 0 ? 1 : 0) ? 0U : 1U;
      lost += (x - back) * (x - back) / static_cast<double>(by * by);
      squares += x * x / static_cast<double>(by * by);
    }
  }
  CHECK(wrong == 0);
  CHECK(lost / squares == doctest::Approx(1 - 2 / std::numbers::pi).epsilon(0.01));
}

TEST_CASE("both zeros are positive; what is small is nothing, what is large stays finite") {
  float values[256] = {}, decoded[256];
  std::byte bytes[acco::block_sign::block_bytes];
  const auto there_and_back = [&] {
    acco::block_sign::encode(values, bytes);
    acco::block_sign::decode(bytes, decoded);
  };
  values[17] = -256;
  values[18] = -0.0F;
  values[255] = 1e-40F;  // the block is full
  there_and_back();
  CHECK(decoded[17] == -1);
  CHECK(decoded[18] == 1);
  CHECK(decoded[19] == 1);
  for (float& each : values) each = -1e-31F;
  there_and_back();
  CHECK(decoded[77] == 0);
  for (float& each : values) each = -3e38F;
  there_and_back();
  CHECK(decoded[77] == -0x1p125F);
}

TEST_CASE("the mean of a short block is that of its own numbers: zeros behind them do not count, those between them do") {
  std::byte bytes[acco::block_sign::block_bytes];
  float decoded[256];
  for (const std::size_t n : {1U, 4U, 100U, 127U, 128U, 129U, 255U, 256U}) {
    CAPTURE(n);
    float values[256] = {};
    for (std::size_t i = 0; i < n; ++i) values[i] = i % 2 == 0 ? 0.75F : -0.75F;
    for (std::size_t i = n; i < 256; ++i) values[i] = i % 2 == 0 ? 0.0F : -0.0F;
    acco::block_sign::encode(values, bytes);
    acco::block_sign::decode(bytes, decoded);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += decoded[i] == values[i] ? 0U : 1U;
    CHECK(wrong == 0);
  }
  float values[256] = {};
  values[0] = 3;
  values[3] = -1;
  acco::block_sign::encode(values, bytes);
  acco::block_sign::decode(bytes, decoded);
  CHECK(decoded[0] == 1);
  CHECK(decoded[1] == 1);
  CHECK(decoded[3] == -1);
}
