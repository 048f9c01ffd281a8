// SPDX-License-Identifier: Apache-2.0
#include <numbers>

#include <acco/encoding/block_sign.hpp>

#include "conformance/encoding.hpp"
#include "encoding/gaussian.hpp"

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

namespace {
void votes(float const* values, float* counted) {
  std::byte bytes[acco::sign_vote::block_bytes];
  acco::sign_vote::encode(values, bytes);
  acco::sign_vote::decode(bytes, counted);
}
}  // namespace

TEST_CASE("a vote is 1 or -1, of the smallest number too; a block of zeros abstains; what is not finite is refused") {
  static_assert(acco::unscaled<acco::sign_vote> && !acco::unscaled<acco::block_sign>);
  std::vector<float> values = gaussian_numbers(256), counted(256);
  values[3] = -1e-44F;
  values[4] = -0.0F;
  values[5] = 0;
  values[6] = -3e38F;
  votes(values.data(), counted.data());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 256; ++i) wrong += counted[i] == (values[i] < 0 || i == 3 ? -1.0F : 1.0F) ? 0U : 1U;
  CHECK(wrong == 0);
  for (const float zero : {0.0F, -0.0F}) {
    values.assign(256, zero);
    votes(values.data(), counted.data());
    CHECK(counted == std::vector<float>(256, 0.0F));
  }
  values[255] = 1e-44F;
  votes(values.data(), counted.data());
  CHECK(counted[0] == 1);
  conformance::refusal(acco::sign_vote{});
}

TEST_CASE("the sum of votes is the majority's; an even split is 0") {
  constexpr std::size_t ranks = 4, count = 700;  // no multiple of a block
  constexpr std::size_t bytes = acco::encoded_size<acco::sign_vote>(count);
  std::vector<float> all = gaussian_numbers(ranks * count), sum(count);
  std::vector<std::byte> encoded(ranks * bytes);
  unsigned long long found = 0, first = ~0ULL;
  for (std::size_t r = 0; r < ranks; ++r)
    acco::coding::encode_values(acco::sign_vote{}, all.data() + r * count, 0, count, encoded.data() + r * bytes,
                                {&found, &first});
  acco::coding::decode_sum(
      acco::sign_vote{}, ranks,
      [&](int r) { return static_cast<std::byte const*>(encoded.data()) + static_cast<std::size_t>(r) * bytes; }, sum.data(),
      count, false);
  std::size_t wrong = 0, even = 0;
  for (std::size_t i = 0; i < count; ++i) {
    int majority = 0;
    for (std::size_t r = 0; r < ranks; ++r) majority += all[r * count + i] < 0 ? -1 : 1;
    wrong += sum[i] == static_cast<float>(majority) ? 0U : 1U;
    even += majority == 0 ? 1U : 0U;
  }
  CHECK(wrong == 0);
  CHECK(even > 200);
}
