// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <span>
#include <vector>

#include <acco/code/block_sign.hpp>
#include <acco/code/block_stat2.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

TEST_CASE("two bits that fit the block conform") { conformance::encoding_suite(acco::block_stat2{}, 1.0, 0.25); }

namespace {

/// The definition, in double: the block's statistic cuts, and the means of both sides are the magnitudes. Of a block
/// without zeros it returns what is lost at most, of the squares; else what is lost.
struct textbook {
  double upper = 0, lower = 0, squares = 0, bound = 0;
  explicit textbook(float const* values) {
    double all = 0, above = 0, below = 0, over = 0;
    bool zeros = false;
    for (std::size_t i = 0; i < 256; ++i) {
      const double x = static_cast<double>(values[i]);
      squares += x * x;
      all += std::abs(x);
      zeros = zeros || x == 0;
    }
    const auto typical = acco::block_scale::of_number(static_cast<float>(squares / all));
    const double cut = (zeros ? 0.5 : 0.8125) * static_cast<double>(acco::block_scale::value(typical));
    for (std::size_t i = 0; i < 256; ++i) {
      const double x = std::abs(static_cast<double>(values[i]));
      over += x > cut ? 1 : 0;
      (x > cut ? above : below) += x;
    }
    lower = zeros || over == 256 ? 0 : below / (256 - over);
    upper = above / over;
    bound = squares - upper * upper * over - lower * lower * (256 - over);
  }
};

}  // namespace

TEST_CASE("magnitudes, codes and bytes are those that the documentation says; none nearer would do") {
  static_assert(acco::encoded_size<acco::block_stat2>(2560) == 680);
  std::vector<float> all = gaussian_numbers(256 * 1000);
  std::size_t wrong = 0;
  for (std::size_t block = 0; block < 1000; ++block) {
    float* const values = all.data() + block * 256;
    const float by = block % 7 == 0 ? 1e-12F : 1.0F;
    for (std::size_t i = 0; i < 256; ++i) values[i] *= by * (block % 5 == 0 ? values[i] * values[i] : 1);
    if (block % 3 == 0) values[block % 256] = 0;
    std::byte bytes[acco::block_stat2::block_bytes];
    float decoded[256];
    acco::block_stat2::encode(values, bytes);
    acco::block_stat2::decode(bytes, decoded);
    const textbook right(values);
    auto const* const codes = reinterpret_cast<unsigned char const*>(bytes) + 4;
    double lost = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      const double x = static_cast<double>(values[i]), back = static_cast<double>(decoded[i]);
      const unsigned code = codes[i % 64] >> (i / 64 * 2) & 3U;
      const double level = (code & 1U) != 0 ? right.upper : right.lower;
      wrong += std::abs(std::abs(back) - level) <= level / 256 ? 0U : 1U;  // magnitudes have eight significant bits
      wrong += (code >= 2) == (x < 0) && (back == 0 || std::signbit(back) == (x < 0)) ? 0U : 1U;
      const double between = (right.upper + right.lower) / 2;
      wrong += (code & 1U) != 0                        ? (std::abs(x) > between * (1 - 0x1p-8) ? 0U : 1U)
               : std::abs(x) <= between * (1 + 0x1p-8) ? 0U
                                                       : 1U;
      wrong += x != 0 || back == 0 ? 0U : 1U;
      lost += (x - back) * (x - back);
    }
    wrong += lost <= right.bound + 0x1p-15 * right.squares ? 0U : 1U;
    wrong += block % 3 == 0 || lost <= (lost_of(acco::block_sign{}, {values, 256}) + 0x1p-15) * right.squares ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

TEST_CASE("what it loses of Gaussian and of Laplacian numbers, and of such with zeros among them") {
  std::vector<float> values = gaussian_numbers(256 * 2000);
  const std::span<float const> all(values);
  CHECK(lost_of(acco::block_stat2{}, all) == doctest::Approx(0.1175).epsilon(0.02));
  for (std::size_t i = 0; i < values.size(); i += 256) values[i + i / 256 % 256] = 0;
  CHECK(lost_of(acco::block_stat2{}, all) == doctest::Approx(0.1902).epsilon(0.02));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::log(1 - problem::unit(i)) * (problem::unit(i + 77) < 0.5 ? 1 : -1));
  CHECK(lost_of(acco::block_stat2{}, all) == doctest::Approx(0.175).epsilon(0.03));
  values = gaussian_numbers(values.size());
  for (std::size_t i = 0; i < values.size(); i += 256) values[i + i / 256 % 256] = 30;
  CHECK(lost_of(acco::block_stat2{}, values) < 0.1);  // of 4.5 times as many squares: it is not cut off
}

TEST_CASE("one magnitude, or two, arrive as they are; what is small is nothing") {
  float values[256] = {}, decoded[256];
  std::byte bytes[acco::block_stat2::block_bytes];
  const auto there_and_back = [&] {
    acco::block_stat2::encode(values, bytes);
    acco::block_stat2::decode(bytes, decoded);
    return std::equal(values, values + 256, decoded);
  };
  values[255] = -3;
  CHECK(there_and_back());
  for (std::size_t i = 0; i < 256; ++i) values[i] = i % 3 == 0 ? 0.25F : -0.25F;
  CHECK(there_and_back());
  for (std::size_t i = 0; i < 256; i += 9) values[i] = -7;
  CHECK(there_and_back());
  for (float& each : values) each = 3e38F;
  there_and_back();
  CHECK(decoded[77] == 0x1p125F);
  for (float& each : values) each = 1e-31F;
  there_and_back();
  CHECK(decoded[77] == 0);
}
