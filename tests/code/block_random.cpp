// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include <acco/code/block_random.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

namespace {

template <class Encoding>
using seed_of = typename Encoding::seed_type;

template <class Encoding>
seed_of<Encoding> there_and_back(float const* values, float* decoded) {
  std::byte bytes[Encoding::block_bytes];
  Encoding::encode(values, bytes);
  Encoding::decode(bytes, decoded);
  seed_of<Encoding> seed = 0;
  std::memcpy(&seed, bytes + 2, sizeof seed);
  return seed;
}
/// What a seed chooses, by what a receiver makes of ones.
template <class Encoding>
std::vector<std::size_t> places_of(std::uint32_t of) {
  const auto seed = static_cast<seed_of<Encoding>>(of);
  std::byte bytes[Encoding::block_bytes];
  std::fill(bytes, bytes + Encoding::block_bytes, std::byte{1});
  acco::block_scale::put(0x3f80, bytes);
  std::memcpy(bytes + 2, &seed, sizeof seed);
  float decoded[Encoding::block_size];
  Encoding::decode(bytes, decoded);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < Encoding::block_size; ++i) {
    if (decoded[i] == 1) places.push_back(i);
  }
  return places;
}

}  // namespace

TEST_CASE_TEMPLATE("random numbers of a block conform", Encoding, acco::block_random<1>, acco::block_random<32>,
                   acco::block_random<256>, acco::block_random<64, 4096>) {
  constexpr std::size_t n = Encoding::block_size;
  static_assert(acco::encoded_size<Encoding>(n) == 2 + (n == 256 ? 2 : 4) + (Encoding::kept + 1) / 2 * 2);
  conformance::encoding_suite(Encoding{}, 1.0, Encoding::kept == n ? 0.01 : 0.9999999);
}

TEST_CASE_TEMPLATE("over all seeds every number is chosen equally often, and every pair as often as another to 5 sigma", Encoding,
                   acco::block_random<32>, acco::block_random<512, 4096>) {
  constexpr std::size_t n = Encoding::block_size, count = Encoding::kept;
  constexpr unsigned rotated_by = n == 256 ? 8 : 20;
  std::size_t wrong = 0;
  std::vector<std::size_t> together(n / 2 + 1);
  for (unsigned pattern = 0; pattern < 256; ++pattern) {
    const auto of = places_of<Encoding>(pattern);
    wrong += of.size() == count ? 0U : 1U;
    for (std::size_t const a : of) {
      for (std::size_t const b : of) {
        if (a < b) ++together[std::min(b - a, n - (b - a))];
      }
    }
    for (const unsigned rotation : {1U, 77U, 255U}) {  // the same places, turned: so each number is chosen by `count` of all
      std::vector<std::size_t> turned;
      for (std::size_t const each : of) turned.push_back((each + rotation) % n);
      std::sort(turned.begin(), turned.end());
      wrong += places_of<Encoding>(pattern | rotation << rotated_by) == turned ? 0U : 1U;
    }
  }
  CHECK(wrong == 0);
  for (std::size_t apart = 1; apart <= n / 2; ++apart) {
    const auto size = static_cast<double>(n);
    const double pairs = apart == n / 2 ? size / 2 : size;  // so far apart on the circle
    const double expected = 256 * pairs * static_cast<double>(count * (count - 1)) / (size * (size - 1));
    CHECK(std::abs(static_cast<double>(together[apart]) - expected) < 5 * std::sqrt(expected));
  }
}

TEST_CASE_TEMPLATE("the chosen arrive as 8 bits have them; as many as said, with Count / Block of the energy to 5 sigma",
                   Encoding, acco::block_random<8>, acco::block_random<32>, acco::block_random<101>) {
  constexpr std::size_t blocks = 1500, n = 256;
  constexpr double part = static_cast<double>(Encoding::kept) / n;
  const std::vector<float> drawn = gaussian_numbers(n * blocks);
  // Gaussian numbers; some much larger than others; magnitudes that are all equal; magnitudes that grow with the place
  for (const int kind : {0, 1, 2, 3}) {
    CAPTURE(kind);
    std::size_t wrong = 0, chosen[n] = {};
    std::set<std::uint32_t> seeds;
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
        const auto x = static_cast<double>(values[i]);
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
  constexpr std::size_t n = 256;
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
  constexpr std::size_t n = 256;
  std::vector<float> values = gaussian_numbers(n);
  float decoded[n];
  std::set<std::uint32_t> seeds;
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

TEST_CASE_TEMPLATE("scaled, what is committed is right in the mean to 5 sigma, of any rank; else nothing is scaled", Encoding,
                   acco::scaled_random<24>, acco::scaled_random<512, 4096>) {
  constexpr std::size_t n = Encoding::block_size;
  constexpr auto steps = static_cast<double>(2000 * 256 / n);
  constexpr double part = static_cast<double>(Encoding::kept) / n;
  static_assert(!acco::biased<Encoding> && acco::biased<acco::block_random<24>>);
  const std::vector<float> values = gaussian_numbers(n);
  std::vector<float> decoded(n);
  std::byte bytes[Encoding::block_bytes];
  for (const int rank : {0, 2}) {
    std::vector<double> sums(n);
    double energy = 0, all = 0;
    for (std::uint64_t step = 1; step <= static_cast<std::uint64_t>(steps); ++step) {
      Encoding::encode(values.data(), bytes, acco::random_bits(acco::rounding_seed(step, rank, 3), 8192));
      Encoding::decode(bytes, decoded.data());
      for (std::size_t i = 0; i < n; ++i) {
        sums[i] += static_cast<double>(decoded[i]);
        energy += std::pow(static_cast<double>(decoded[i]) - static_cast<double>(values[i]), 2) / steps;
      }
    }
    std::size_t wrong = 0;
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(values[i]);
      all += x * x;
      const double sigma = std::sqrt((x * x * (1 / part - 1) + 1e-3) / steps), off = (sums[i] / steps - x) / sigma;
      wrong += std::abs(off) < 5 ? 0U : 1U;
      squares += off * off / n;
    }
    CHECK(wrong == 0);
    CHECK(std::abs(squares - 1) < 5 * std::sqrt(2.0 / n));  // and no more than chance is in it
    CHECK(energy / all == doctest::Approx(1 / part - 1).epsilon(0.05));
  }
  Encoding::encode(values.data(), bytes);
  Encoding::decode(bytes, decoded.data());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i) wrong += std::abs(decoded[i]) <= std::abs(values[i]) * 1.001F + 0.02F ? 0U : 1U;
  CHECK(wrong == 0);
  const std::vector<float> large(n, std::numeric_limits<float>::max());
  Encoding::encode(large.data(), bytes, 12345);
  Encoding::decode(bytes, decoded.data());
  CHECK(std::all_of(decoded.begin(), decoded.end(), [](float each) { return std::isfinite(each); }));
}
