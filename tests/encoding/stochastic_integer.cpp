// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <acco/encoding/stochastic_integer.hpp>
#include <acco/game/keyed_blocks.hpp>

#include "conformance/encoding.hpp"

TEST_CASE("with any key stochastic codes conform") {
  for (const std::uint64_t key : {0ULL, 7ULL, ~0ULL}) {
    conformance::encoding_suite(acco::stochastic_int8<>::at(key), 1.0 / 126, 1.0 / 126 / 126);
    conformance::encoding_suite(acco::stochastic_int4<128>::at(key), 1.0 / 6.9, 1.0 / 6.9 / 6.9);
  }
}

TEST_CASE_TEMPLATE("the mean over many keys is the number, its variance that of the equation", Code, acco::stochastic_int8<>,
                   acco::stochastic_int4<128>, acco::stochastic_ternary<>) {
  constexpr std::size_t n = Code::block_size;
  constexpr int keys = 4000;
  float values[n], decoded[n];
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(2 * problem::unit(i * 3 + 1) - 1) * 0.37F;
  values[3] = 0;
  values[5] = 0.37F;
  std::byte bytes[Code::block_bytes];
  std::vector<double> sum(n, 0.0), squares(n, 0.0);
  double neighbours = 0;
  float scale = 0;
  for (int k = 0; k < keys; ++k) {
    const auto encoding = Code::at(acco::mix(static_cast<std::uint64_t>(k)));
    encoding.encode(values, bytes);
    encoding.decode(bytes, decoded);
    std::memcpy(&scale, bytes, sizeof scale);
    for (std::size_t i = 0; i < n; ++i) {
      const double off = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
      sum[i] += off;
      squares[i] += off * off;
      if (i + 1 < n) neighbours += off * (static_cast<double>(decoded[i + 1]) - static_cast<double>(values[i + 1]));
    }
  }
  const auto s = static_cast<double>(scale);
  std::size_t wrong = 0;
  double pairs = 0, before = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(values[i]) / s, f = x - std::floor(x);
    const double variance = s * s * f * (1 - f);
    const double sigma = std::sqrt(variance * keys);
    wrong += std::abs(sum[i]) <= 5 * sigma + keys * s * 0x1p-22 ? 0U : 1U;  // the sum's sigma; the bias that is allowed
    // the square has two values: its variance is that of a coin, times ((1 - f)^2 - f^2)^2 s^4
    const double of_square = std::sqrt(keys * f * (1 - f)) * std::abs(1 - 2 * f) * s * s;
    wrong += std::abs(squares[i] - variance * keys) <= 5 * of_square + 0.02 * variance * keys + keys * s * s * 0x1p-22 ? 0U : 1U;
    pairs += before * variance * keys;
    before = variance;
  }
  CHECK(wrong == 0);
  CHECK(std::abs(neighbours) <= 5 * std::sqrt(pairs));  // the noise of two numbers is not one
  CHECK(sum[3] == 0);
  constexpr int largest = (1 << ((Code::block_bytes - sizeof(float)) * 8 / n - 1)) - 1;
  CHECK(s * largest >= static_cast<double>(values[5]));  // which is the largest: it has a code
}

TEST_CASE("keys: another one for each block, rank, direction and evaluation; the message is that of its blocks") {
  std::vector<std::uint64_t> keys;
  for (const bool down : {false, true}) {
    for (const int rank : {0, 1, 2}) {
      for (const std::uint64_t evaluation : {0U, 1U, 2U}) {
        for (const std::size_t element : {0U, 256U, 512U}) {
          keys.push_back(acco::message_key{9, evaluation, rank, down}.of_block(element));
        }
      }
    }
  }
  std::sort(keys.begin(), keys.end());
  CHECK(std::adjacent_find(keys.begin(), keys.end()) == keys.end());

  const acco::stochastic_int4<> code;
  const acco::message_key key{3, 8, 1, false};
  float values[512];
  for (std::size_t i = 0; i < 512; ++i) values[i] = static_cast<float>(problem::unit(i % 256));  // two blocks alike
  std::byte message[2 * 132], block[132];
  std::size_t calls = 0;
  acco::encode_keyed(code, key, 1024, 512, message, [&](auto const& e, std::size_t i, std::size_t count, std::byte* to) {
    CHECK(count == 256);
    e.encode(values + i, to);
    ++calls;
  });
  CHECK(calls == 2);
  code.at(key.of_block(1280)).encode(values + 256, block);
  CHECK(std::equal(block, block + 132, message + 132));
  CHECK_FALSE(std::equal(block, block + 132, message));
}
