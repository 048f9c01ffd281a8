// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <acco/code/block_integer.hpp>

#include "conformance/encoding.hpp"

TEST_CASE_TEMPLATE("block_int8 conforms", Encoding, acco::block_int8<>, acco::block_int8<128>, acco::block_int8<1024>) {
  conformance::encoding_suite(Encoding{}, 1.0 / 252, 3.0 / 252 / 252);
}
TEST_CASE_TEMPLATE("block_int4 conforms", Encoding, acco::block_int4<>, acco::block_int4<128>, acco::block_int4<1024>) {
  conformance::encoding_suite(Encoding{}, 1.0 / 13.89, 3.0 / 13.89 / 13.89);
}

TEST_CASE("bytes are those of the issue: one scale for 256 numbers") {
  static_assert(acco::encoded_size<acco::block_int4<>>(2560) == 10 * 132);
  static_assert(acco::encoded_size<acco::block_int8<>>(2561) == 11 * 260);
}

TEST_CASE_TEMPLATE("the packed loops do what the arithmetic of one number says, bit by bit", Encoding, acco::block_int8<>,
                   acco::block_int4<>) {
  constexpr std::size_t n = Encoding::block_size;
  using arithmetic = typename Encoding::arithmetic;
  for (const float magnitude : {1e-35F, 1e-28F, 3e-7F, 1.0F, 12345.0F, 3.4e38F}) {
    float values[n], decoded[n];
    float largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = static_cast<float>(2 * problem::unit(i) - 1) * magnitude;
      largest = std::max(largest, std::abs(values[i]));
    }
    std::byte bytes[Encoding::block_bytes];
    Encoding().encode(values, bytes);
    Encoding().decode(bytes, decoded);
    const float scale = std::bit_cast<float>(arithmetic::scale_bits(std::bit_cast<std::int32_t>(largest)));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t code = scale > 0 ? arithmetic::code(values[i], scale) : 0;
      wrong += std::abs(code) <= arithmetic::largest && decoded[i] == arithmetic::value(code, scale) ? 0U : 1U;
      // the product is exact, so a fused multiply-add behind it rounds as an addition does
      wrong += static_cast<double>(decoded[i]) == static_cast<double>(code) * static_cast<double>(scale) ? 0U : 1U;
      wrong += scale == 0 || code == static_cast<std::int32_t>(std::nearbyint(values[i] / scale)) ? 0U : 1U;
    }
    CHECK(wrong == 0);
    CHECK((scale == 0) == (magnitude < 1e-30F));
  }
}

TEST_CASE_TEMPLATE("at random a number is rounded to a neighbour, and in the mean of a few steps to itself", Encoding,
                   acco::block_int8<>, acco::block_int4<>, acco::block_int4<128>) {
  constexpr std::size_t n = Encoding::block_size;
  using arithmetic = typename Encoding::arithmetic;
  constexpr int steps = 400;
  float values[n], decoded[n];
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>((2 * problem::unit(i) - 1) * (i % 3 == 0 ? 0.002 : 0.7));
  values[5] = -1;  // the loud one
  const float scale = std::bit_cast<float>(arithmetic::scale_bits(std::bit_cast<std::int32_t>(1.0F)));
  std::vector<double> sums(n, 0.0);
  std::size_t far = 0, other = 0;
  for (int step = 1; step <= steps; ++step) {
    const std::uint32_t bits = acco::random_bits(acco::rounding_seed(static_cast<std::uint64_t>(step), 0, 1), 4096);
    std::byte bytes[Encoding::block_bytes];
    Encoding::encode(values, bytes, bits);
    Encoding::decode(bytes, decoded);
    for (std::size_t i = 0; i < n; ++i) {
      sums[i] += static_cast<double>(decoded[i]);
      far += std::abs(decoded[i] - values[i]) < scale ? 0U : 1U;
      const auto share = arithmetic::bits_of_number(bits, static_cast<std::uint32_t>(i)) >> 12U;
      const std::int32_t code = arithmetic::code_at_random(values[i] / scale, static_cast<std::int32_t>(share));
      other += decoded[i] == arithmetic::value(code, scale) ? 0U : 1U;  // packed and single
    }
  }
  CHECK(far == 0);
  CHECK(other == 0);
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i)
    worst = std::max(worst, std::abs(sums[i] / steps - static_cast<double>(values[i])) / static_cast<double>(scale));
  CHECK(worst < 0.05);  // independent bits would leave 0.025 at one number, and 0.08 at the worst
}

TEST_CASE("no period of the data locks with the phases of rounding") {
  for (const std::uint64_t period : {2U, 3U, 5U, 6U, 7U, 8U, 16U, 49U, 79U, 93U}) {
    double worst = 0;
    for (std::uint64_t block = 0; block < 64; ++block) {  // the period's first step, 400 times
      int up = 0;
      for (std::uint64_t k = 0; k < 400; ++k)
        up += acco::random_bits(acco::rounding_seed(1 + k * period, 0, 1), 256 * block) >= 0xb3333333U ? 1 : 0;
      worst = std::max(worst, std::abs(up / 400.0 - 0.3));
    }
    CAPTURE(period);
    CHECK(worst < 0.12);  // five standard deviations of independent bits; a phase that locks is 0.3 or 0.7 off
  }
  CHECK(acco::rounding_seed(0x100000000ULL, 0, 1) != 0);
}

TEST_CASE("what one of two ranks rounds up the other rounds down") {
  std::size_t alike = 0;
  for (std::uint64_t step = 1; step <= 1000; ++step) {
    const auto up = [&](int rank) { return acco::random_bits(acco::rounding_seed(step, rank, 2), 256) >= 0x80000000U; };
    alike += up(0) == up(1) ? 1U : 0U;
  }
  CHECK(alike == 0);
}

TEST_CASE("the quotient without a division is the quotient, for every scale: its eight bits, and every 509th number") {
  std::size_t wrong = 0;
  for (int bits = 128; bits < 256; ++bits) {
    const auto scale = static_cast<float>(bits), inverse = 1.0F / scale;
    for (std::uint32_t fraction = static_cast<std::uint32_t>(bits) % 509; fraction < 1U << 23U; fraction += 509) {
      const auto value = std::bit_cast<float>(0x3f800000U | fraction);
      wrong += acco::integer_code<8>::quotient(value, scale, inverse) == value / scale ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
  for (const float scale :
       {0x1.02p-105F, 0x1.fep-50F, 1.9921875F, 0x1.fep120F}) {  // and its 2^-20ths, as codes at random take it
    for (int k = 1; k <= 127 << 4; ++k) {
      for (const float part : {0x1p-20F, 0x1p-16F, 0x1p-9F, 0x1p-4F}) {
        const float value = static_cast<float>(k) * part * scale;
        wrong += acco::integer_code<8>::quotient(value, scale, 1.0F / scale) == value / scale ? 0U : 1U;
      }
    }
  }
  CHECK(wrong == 0);
  // and where codes are: from a quarter of the scale on
  for (const float scale : {0x1p-107F, 1.9921875F, 0x1.fep120F}) {
    const float inverse = 1.0F / scale;
    for (int k = 0; k <= 127 * 64; ++k) {
      const float value = static_cast<float>(k) / 64 * scale;
      wrong += acco::integer_code<8>::code_of_quotient(acco::integer_code<8>::quotient(value, scale, inverse)) ==
                       acco::integer_code<8>::code(value, scale)
                   ? 0U
                   : 1U;
    }
  }
  CHECK(wrong == 0);
}
