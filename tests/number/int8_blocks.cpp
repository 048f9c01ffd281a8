// SPDX-License-Identifier: Apache-2.0
// Against the sentences of the header, in doubles.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <acco/bfloat16.hpp>
#include <acco/number/digest.hpp>
#include <acco/number/int8_place.hpp>

namespace {
constexpr std::size_t size = acco::int8_blocks::block_size;

struct packed {
  explicit packed(std::size_t count) : bytes(acco::int8_blocks::bytes_of(count)) {
    place = {reinterpret_cast<std::int8_t*>(bytes.data()), bytes.data() + acco::int8_blocks::count_of(bytes.size()), 0};
  }
  std::vector<std::uint8_t> bytes;
  acco::int8_place place;
};
double largest_of(float const* block) {
  double most = 0;
  for (std::size_t k = 0; k < size; ++k) most = std::max(most, std::abs(static_cast<double>(block[k])));
  return most;
}
/// The smallest power of two by which no code exceeds 127.
double scale_of(float const* block) {
  const double most = largest_of(block);
  if (most < 0x1p-100) return 0;
  double scale = 0x1p-120;
  while (std::nearbyint(most / scale) > 127 && scale < 0x1p121) scale *= 2;
  return scale;
}
/// Blocks of numbers around 2^exponent, of which some are far smaller; ties, and the borders of scales.
std::vector<float> numbers(std::size_t blocks, int exponent) {
  std::mt19937 random(static_cast<unsigned>(exponent + 1000));
  std::vector<float> made(blocks * size);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto bits = static_cast<float>(static_cast<std::int32_t>(random() % 2001) - 1000) / 1000.0F;
    made[i] = std::ldexp(random() % 4 == 0 ? bits / 300 : bits, exponent);
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    float* const block = &made[b * size];
    const float first[] = {127, 127.49F, 127.5F, 127.51F, 64, 63.5F, -127.5F, 100};
    block[b % size] = std::ldexp(first[b % 8], exponent - 6);
    block[(b + 1) % size] = std::ldexp(2.5F, exponent - 6);
    block[(b + 2) % size] = std::ldexp(-3.5F, exponent - 6);
    block[(b + 3) % size] = -0.0F;
  }
  return made;
}
}  // namespace

TEST_CASE(
    "numbers in int8_blocks are the nearest multiples of the block's scale, and bfloat16s, which are packed to the same bytes") {
  constexpr std::size_t blocks = 32;
  std::size_t wrong = 0, otherwise = 0;
  for (const int exponent : {-130, -101, -100, -99, -60, -3, 0, 9, 100, 120, 125, 126}) {
    const std::vector<float> from = numbers(blocks, exponent);
    packed there(from.size());
    there.place.pack(from.data(), from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      float const* const block = &from[i / size * size];
      const double scale = scale_of(block), x = static_cast<double>(from[i]);
      const double nearest = scale == 0 ? 0 : std::nearbyint(x / scale) * scale;  // ties to even
      wrong += static_cast<double>(there.place[i]) != nearest ||
                       std::abs(nearest - x) > std::max(largest_of(block) / 127, scale == 0 ? 0x1p-100 : 0)
                   ? 1
                   : 0;
    }
    std::vector<acco::bfloat16> narrow(from.size());
    there.place.unpack(narrow.data(), narrow.size());
    std::vector<float> wide(narrow.begin(), narrow.end());
    for (std::size_t i = 0; i < from.size(); ++i) otherwise += wide[i] != there.place[i] ? 1 : 0;
    packed again(from.size());
    again.place.pack(wide.data(), wide.size());
    CHECK((again.bytes == there.bytes));
  }
  CHECK(wrong == 0);
  CHECK(otherwise == 0);
}

TEST_CASE("the largest finite numbers, zeros, a block that ends early, and numbers from the middle of a block on") {
  std::vector<float> from(2 * size + 5, std::numeric_limits<float>::max());
  std::fill_n(from.begin() + size, size, 0.0F);
  std::fill_n(from.begin() + 2 * size, 5, -0x1.fp-90F);
  packed there(3 * size);
  std::fill(there.bytes.begin(), there.bytes.end(), std::uint8_t{77});
  there.place.pack(from.data(), from.size());
  CHECK(there.place[0] == 127 * 0x1p121F);
  for (std::size_t k = 0; k < size; ++k) CHECK(there.place[size + k] == 0);
  CHECK(there.place[2 * size + 4] == -0x1.fp-90F);
  CHECK(there.place[2 * size + 5] == 0);
  std::vector<acco::bfloat16> part(size);
  (there.place + (size + 40)).unpack(part.data(), size);
  CHECK(static_cast<float>(part[23]) == 0);
  CHECK(static_cast<float>(part[28]) == -0x1.fp-90F);
  const acco::digest_key key{7, 3};
  CHECK(acco::digest_of(there.place + (size + 40), size, key) ==
        acco::digest_of(static_cast<acco::bfloat16 const*>(part.data()), size, key));
}

TEST_CASE("what is not finite becomes a number") {
  std::vector<float> from(size, 1.0F);
  from[3] = std::numeric_limits<float>::infinity();
  from[4] = std::numeric_limits<float>::quiet_NaN();
  packed there(size);
  there.place.pack(from.data(), size);
  for (std::size_t k = 0; k < size; ++k) CHECK(std::isfinite(there.place[k]));
}
