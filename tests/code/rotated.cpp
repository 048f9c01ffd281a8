// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <acco/code/block_gauss.hpp>
#include <acco/code/block_integer.hpp>
#include <acco/code/block_ternary.hpp>
#include <acco/code/feedback.hpp>
#include <acco/code/rotated.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

TEST_CASE("turned blocks conform") {
  conformance::encoding_suite(acco::rotated{acco::block_gauss3{}}, 1.0, 0.08);
  conformance::encoding_suite(acco::rotated{acco::block_ternary{}}, 1.0, 0.3);
}

TEST_CASE("the rotation keeps lengths, and turns back") {
  const std::vector<float> values = gaussian_numbers(256);
  float turned[256];
  CHECK(acco::hadamard::turn(values.data(), turned));
  double before = 0, after = 0, wrong = 0, beside = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    before += std::pow(static_cast<double>(values[i]), 2);
    after += std::pow(static_cast<double>(turned[i]), 2);
    double sum = 0;  // the transform's definition
    for (std::size_t k = 0; k < 256; ++k) {
      const bool minus = (std::popcount(i & k) % 2 != 0) != acco::hadamard::flips(static_cast<std::uint32_t>(k));
      sum += static_cast<double>(minus ? -values[k] : values[k]) / 16;
    }
    beside = std::max(beside, std::abs(sum - static_cast<double>(turned[i])));
  }
  CHECK(after == doctest::Approx(before).epsilon(1e-6));
  CHECK(beside < 1e-5);
  acco::hadamard::turn_back(turned);
  for (std::size_t i = 0; i < 256; ++i) wrong = std::max(wrong, std::abs(static_cast<double>(turned[i] - values[i])));
  CHECK(wrong < 2e-6);
  std::size_t flipped = 0;
  for (std::uint32_t i = 0; i < 256; ++i) flipped += acco::hadamard::flips(i) ? 1U : 0U;
  CHECK(flipped > 100);
  CHECK(flipped < 156);
}

TEST_CASE("numbers with long tails are Gaussian once they are turned") {
  std::vector<float> values = gaussian_numbers(256 * 2000);
  for (float& each : values) each = each * each * each;  // kurtosis 46
  const std::span<float const> all(values);
  CHECK(lost_of(acco::block_gauss3{}, all) > 0.1);
  CHECK(lost_of(acco::rotated<acco::block_gauss3>{}, all) == doctest::Approx(0.0345).epsilon(0.08));
  CHECK(lost_of(acco::block_ternary{}, all) > 0.4);
  CHECK(lost_of(acco::rotated<acco::block_ternary>{}, all) == doctest::Approx(0.19).epsilon(0.08));
}

TEST_CASE("a block with a 0 in it, or with numbers too large to be added, travels as it does without a rotation") {
  using code = acco::block_gauss3;
  using turned = acco::rotated<code>;
  static_assert(turned::block_bytes == code::block_bytes + 2 && acco::rotated<acco::block_int4<>>::block_bytes == 132 + 4);
  CHECK(std::string(turned::name) == "rotated_block_gauss3");
  std::vector<float> values = gaussian_numbers(256);
  std::byte plain[code::block_bytes], bytes[turned::block_bytes];
  float decoded[256];
  const auto same = [&] {
    code::encode(values.data(), plain);
    turned().encode(values.data(), bytes);
    turned().decode(bytes, decoded);
    return std::memcmp(plain, bytes, sizeof plain) == 0;
  };
  CHECK_FALSE(same());
  values[77] = -0.0F;
  CHECK(same());
  CHECK(decoded[77] == 0);
  for (float& each : values) each = 1e38F;
  CHECK(same());
  CHECK(std::abs(decoded[5] / 1e38F - 1) < 0.5F);
}

namespace {

struct clipped : acco::block_gauss4 {
  static void encode(float const* values, std::byte* bytes) noexcept {
    float near[block_size];
    for (std::size_t i = 0; i < block_size; ++i) near[i] = std::clamp(values[i], -1.0F, 1.0F);
    acco::block_gauss4::encode(near, bytes);
  }
};

}  // namespace

TEST_CASE("only a code's own word that nothing was infinite is taken, not that of what it derives from") {
  static_assert(acco::says_non_finite<acco::block_gauss4> && acco::says_non_finite<acco::rotated<acco::block_int4<>>>);
  static_assert(acco::says_non_finite<acco::without_feedback<acco::block_ternary>>);
  static_assert(acco::says_non_finite<acco::with_error_feedback<acco::nearest<acco::block_int8<>>>>);
  static_assert(!acco::says_non_finite<clipped> && !acco::says_non_finite<acco::rotated<clipped>>);
  std::vector<float> values(512, 0.5F);
  values[300] = std::numeric_limits<float>::infinity();
  std::byte bytes[2 * clipped::block_bytes];
  unsigned long long found = 0, first = ~0ULL;
  acco::coding::encode_values(clipped{}, values.data(), 0, values.size(), bytes, {&found, &first});
  CHECK(found == 1);
  CHECK(first == 300);
}

TEST_CASE("what its code rounds at random is right in the mean of steps") {
  using code = acco::rotated<acco::block_int4<>>;
  static_assert(acco::rounds_at_random<code> && !acco::biased<code> && acco::biased<acco::rotated<acco::block_gauss3>>);
  static_assert(!acco::rounds_at_random<acco::nearest<code>> && !acco::rounds_at_random<acco::rotated<acco::block_gauss3>>);
  constexpr int steps = 400;
  std::vector<float> values = gaussian_numbers(256);
  values[9] = 40;  // beside which the others are rounded to 0 without a rotation
  std::vector<double> sums(256, 0.0), squares(256, 0.0);
  std::byte bytes[code::block_bytes];
  float decoded[256];
  for (std::uint64_t step = 1; step <= steps; ++step) {
    code().encode(values.data(), bytes, acco::random_bits(acco::rounding_seed(step, 0, 1), 512));
    code().decode(bytes, decoded);
    for (std::size_t i = 0; i < 256; ++i) {
      const double off = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
      sums[i] += off;
      squares[i] += off * off;
    }
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < 256; ++i) wrong += std::abs(sums[i]) <= 5 * std::sqrt(squares[i]) ? 0U : 1U;
  CHECK(wrong == 0);
  code().encode(values.data(), bytes);  // to nearest each time would be another matter
  code().decode(bytes, decoded);
  for (std::size_t i = 0; i < 256; ++i) wrong += steps * std::abs(decoded[i] - values[i]) > 5 * std::sqrt(squares[i]) ? 1U : 0U;
  CHECK(wrong > 150);
}
