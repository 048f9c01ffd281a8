// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <acco/encoding/block_random.hpp>

#include "conformance/encoding.hpp"
#include "encoding/gaussian.hpp"

namespace {

constexpr std::size_t n = 256;

template <class Encoding>
std::uint16_t there_and_back(float const* values, float* decoded) {
  std::byte bytes[Encoding::block_bytes];
  Encoding::encode(values, bytes);
  Encoding::decode(bytes, decoded);
  return acco::block_scale::take(bytes + 2);
}
/// What a seed chooses, by what a receiver makes of ones.
template <std::size_t Count>
std::vector<std::size_t> places_of(std::uint16_t seed) {
  using code = acco::block_random<Count>;
  std::byte bytes[code::block_bytes];
  acco::block_scale::put(0x3f80, bytes);
  acco::block_scale::put(seed, bytes + 2);
  std::fill(bytes + 4, bytes + code::block_bytes, std::byte{1});
  float decoded[n];
  code::decode(bytes, decoded);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < n; ++i) {
    if (decoded[i] == 1) places.push_back(i);
  }
  return places;
}

}  // namespace

TEST_CASE_TEMPLATE("random numbers of a block conform", Encoding, acco::block_random<1>, acco::block_random<32>,
                   acco::block_random<255>) {
  static_assert(acco::encoded_size<Encoding>(512) == 2 * (4 + (Encoding::kept + 1) / 2 * 2));
  conformance::encoding_suite(Encoding{}, 1.0, Encoding::kept == 255 ? 0.1 : 0.9999999);
}

TEST_CASE("over all seeds every number is chosen equally often, and every pair as often as another to 5 sigma") {
  constexpr std::size_t count = 32;
  std::size_t wrong = 0, together[n / 2 + 1] = {};
  for (unsigned pattern = 0; pattern < 256; ++pattern) {
    const auto of = places_of<count>(static_cast<std::uint16_t>(pattern));
    wrong += of.size() == count ? 0U : 1U;
    for (std::size_t const a : of) {
      for (std::size_t const b : of) {
        if (a < b) ++together[std::min(b - a, n - (b - a))];
      }
    }
    for (const unsigned rotation : {1U, 77U, 255U}) {  // the same places, turned: so each number is chosen by `count` of 256
      std::vector<std::size_t> turned;
      for (std::size_t const each : of) turned.push_back((each + n - rotation) % n);
      std::sort(turned.begin(), turned.end());
      wrong += places_of<count>(static_cast<std::uint16_t>(pattern | rotation << 8U)) == turned ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
  for (std::size_t apart = 1; apart <= n / 2; ++apart) {
    const double pairs = apart == n / 2 ? 128 : 256;  // of 256 numbers, so far apart on the circle
    const double expected = 256 * pairs * count * (count - 1) / (256.0 * 255);
    CHECK(std::abs(static_cast<double>(together[apart]) - expected) < 5 * std::sqrt(expected));
  }
}

TEST_CASE_TEMPLATE("the chosen arrive as 8 bits have them; as many as said, anywhere, with Count / 256 of the energy to 5 sigma",
                   Encoding, acco::block_random<8>, acco::block_random<32>, acco::block_random<101>) {
  constexpr std::size_t blocks = 1500;
  constexpr double part = static_cast<double>(Encoding::kept) / n;
  const std::vector<float> drawn = gaussian_numbers(n * blocks);
  // Gaussian numbers; some much larger than others; magnitudes that are all equal; magnitudes that grow with the place
  for (const int kind : {0, 1, 2, 3}) {
    CAPTURE(kind);
    std::size_t wrong = 0, chosen[n] = {};
    std::set<std::uint16_t> seeds;
    double sum = 0, squares = 0;
    for (std::size_t block = 0; block < blocks; ++block) {
      float values[n], decoded[n];
      for (std::size_t i = 0; i < n; ++i) {
        const float x = drawn[n * block + i];
        values[i] = kind == 0 ? x : kind == 1 ? x * x * x : kind == 2 ? std::copysign(1.0F, x) : x * static_cast<float>(i + 1);
      }
      seeds.insert(there_and_back<Encoding>(values, decoded));
      double all = 0, arrived = 0, largest = 0;
      std::size_t some = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (decoded[i] != 0) largest = std::max(largest, std::abs(static_cast<double>(values[i])));
      }
      for (std::size_t i = 0; i < n; ++i) {
        const double x = static_cast<double>(values[i]);
        all += x * x;
        if (decoded[i] == 0) continue;
        ++some, ++chosen[i];
        arrived += x * x;
        wrong += std::abs(static_cast<double>(decoded[i]) - x) <= largest / 252 ? 0U : 1U;
      }
      wrong += some <= Encoding::kept ? 0U : 1U;  // some may be so small that they arrive as 0
      if (kind == 2) wrong += some == Encoding::kept ? 0U : 1U;
      sum += arrived / all;
      squares += arrived / all * arrived / all;
    }
    CHECK(wrong == 0);
    CHECK(seeds.size() > blocks * 95 / 100);
    const double mean = sum / blocks, deviation = std::sqrt(std::max(0.0, squares / blocks - mean * mean) / blocks);
    CHECK(std::abs(mean - part) < 5 * deviation + 1e-3 * part);  // what arrives as 0 was small
    if (kind != 2) continue;
    for (std::size_t i = 0; i < n; ++i)
      CHECK(std::abs(static_cast<double>(chosen[i]) - part * blocks) < 5 * std::sqrt(part * (1 - part) * blocks));
  }
}

TEST_CASE_TEMPLATE("with feedback everything arrives, of blocks with few numbers too", Encoding, acco::block_random<1>,
                   acco::block_random<32>) {
  for (const std::size_t some : {1U, 3U, 40U}) {
    float left[n] = {}, decoded[n];
    for (std::size_t i = 0; i < some; ++i) left[(i * 37 + 11) % n] = static_cast<float>(i + 1);
    double all = 0, now = 0;
    for (float const each : left) all += std::abs(static_cast<double>(each));
    int steps = 0;
    do {
      there_and_back<Encoding>(left, decoded);
      now = 0;
      for (std::size_t i = 0; i < n; ++i) {
        left[i] -= decoded[i];
        now += std::abs(static_cast<double>(left[i]));
      }
    } while (now > 1e-6 * all && ++steps < 20000);
    CAPTURE(some);
    CHECK(now <= 1e-6 * all);
    if (some == 1) CHECK(steps <= 3);
  }
}

TEST_CASE("another number, another seed; very small and very large numbers") {
  using code = acco::block_random<64>;
  std::vector<float> values = gaussian_numbers(n);
  float decoded[n];
  std::set<std::uint16_t> seeds;
  for (std::size_t i = 0; i < n; ++i) {
    float const before = values[i];
    values[i] = -values[i];
    seeds.insert(there_and_back<code>(values.data(), decoded));
    values[i] = before;
  }
  std::swap(values[3], values[200]);
  seeds.insert(there_and_back<code>(values.data(), decoded));
  CHECK(seeds.size() > 250);
  for (const float magnitude : {1e-31F, 1e-29F, 3e38F}) {
    values.assign(n, -magnitude);
    there_and_back<code>(values.data(), decoded);
    const float largest = *std::max_element(decoded, decoded + n), least = *std::min_element(decoded, decoded + n);
    CHECK(largest == 0);
    const double arrived = static_cast<double>(least) / static_cast<double>(-magnitude);
    CHECK(std::abs(arrived - (magnitude < 0x1p-100F ? 0 : 1)) <= 0.01);
  }
  std::size_t arrived = 0;
  for (std::size_t where = 0; where < n; ++where) {  // among those that are too small for codes
    values.assign(n, 1e-31F);
    values[where] = 1;
    there_and_back<code>(values.data(), decoded);
    arrived += decoded[where] > 0.99F ? 1U : 0U;
  }
  CHECK(arrived == n);
}
