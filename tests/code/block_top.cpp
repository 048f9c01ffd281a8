// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <acco/code/block_top.hpp>

#include "code/gaussian.hpp"
#include "conformance/encoding.hpp"

namespace {

template <class Encoding>
std::vector<float> there_and_back(std::vector<float> const& values) {
  std::vector<float> decoded(values.size());
  std::byte bytes[Encoding::block_bytes];
  Encoding::encode(values.data(), bytes);
  Encoding::decode(bytes, decoded.data());
  return decoded;
}
/// Of the largest, those that are not 0, of equal ones the first.
std::vector<std::size_t> largest_of(std::vector<float> const& values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const float x = std::abs(values[a]), y = std::abs(values[b]);
    return x > y || (x == y && a < b);
  });
  order.resize(count);
  std::erase_if(order, [&](std::size_t each) { return values[each] == 0; });
  std::sort(order.begin(), order.end());
  return order;
}
/// What two magnitudes must lose of the squares of these.
double lost_by_best_levels(std::vector<double> magnitudes) {
  std::sort(magnitudes.begin(), magnitudes.end());
  const auto lost = [&](std::size_t begin, std::size_t end) {
    double sum = 0, squares = 0;
    for (std::size_t i = begin; i < end; ++i) sum += magnitudes[i], squares += magnitudes[i] * magnitudes[i];
    return end == begin ? 0 : squares - sum * sum / static_cast<double>(end - begin);
  };
  double best = lost(0, magnitudes.size());
  for (std::size_t cut = 1; cut < magnitudes.size(); ++cut) best = std::min(best, lost(0, cut) + lost(cut, magnitudes.size()));
  return best;
}

}  // namespace

TEST_CASE_TEMPLATE("the largest conform", Encoding, acco::block_top<1>, acco::block_top<16>, acco::block_top<16, 256, 2>,
                   acco::block_top<256>, acco::block_top<64, 4096, 2>, acco::block_top<63, 4096, 4>) {
  constexpr double share = static_cast<double>(Encoding::kept) / static_cast<double>(Encoding::block_size);
  conformance::encoding_suite(Encoding{}, 1.0, share == 1 ? 0.01 : 1 - share);
}

TEST_CASE("bytes are those of the issue: 12 bits a place, and what is kept in 2 bits or more") {
  static_assert(acco::encoded_size<acco::block_top<16>>(512) == 2 * 34);
  static_assert(acco::encoded_size<acco::block_top<16, 256, 2>>(512) == 2 * 22);
  static_assert(acco::encoded_size<acco::block_top<64, 4096, 2>>(4097) == 2 * (64 * (12 + 2) / 8 + 2));
  static_assert(acco::encoded_size<acco::block_top<64, 4096, 8>>(4096) == 64 * (12 + 8) / 8 + 2);
  static_assert(acco::encoded_size<acco::block_top<63, 4096, 4>>(4096) == 95 + 32 + 2 + 1);  // rounded up to an even number
}

TEST_CASE_TEMPLATE("the largest arrive, in so many bits, of equal ones the first; all others are 0", Encoding, acco::block_top<1>,
                   acco::block_top<100>, acco::block_top<16, 256, 4>, acco::block_top<16, 256, 2>, acco::block_top<255, 256, 2>,
                   acco::block_top<64, 4096, 8>, acco::block_top<63, 4096, 4>, acco::block_top<64, 4096, 2>) {
  constexpr std::size_t n = Encoding::block_size;
  constexpr int bits = Encoding::layout::bits;
  const std::vector<float> drawn = gaussian_numbers(n * 12);
  for (std::size_t block = 0; block < 12; ++block) {
    CAPTURE(block);
    std::vector<float> values(drawn.begin() + static_cast<std::ptrdiff_t>(n * block),
                              drawn.begin() + static_cast<std::ptrdiff_t>(n * (block + 1)));
    if (block % 6 == 1) {
      for (float& each : values) each = std::round(each);  // many equal magnitudes
    }
    if (block % 6 == 2) std::fill(values.begin() + 8, values.end(), 0.0F);  // fewer than are kept
    if (block % 6 == 3) std::fill(values.begin(), values.end(), -0.5F);     // all equal
    if (block % 6 == 4) {
      for (float& each : values) each = each * each * each * each * each;  // few are far out
    }
    if (block % 6 == 5) {  // alike in the upper half of a magnitude
      for (float& each : values) each = 1 + std::abs(each) * 0x1p-12F;
    }
    const std::vector<float> decoded = there_and_back<Encoding>(values);
    const std::vector<std::size_t> where = largest_of(values, Encoding::kept);
    std::vector<float> magnitudes;
    std::vector<double> exact;
    double largest = 0, lost = 0;
    std::vector<float> rest = decoded;
    for (std::size_t const each : where) {
      largest = std::max(largest, std::abs(static_cast<double>(values[each])));
      const double off = static_cast<double>(decoded[each]) - static_cast<double>(values[each]);
      lost += off * off;
      exact.push_back(std::abs(static_cast<double>(values[each])));
      magnitudes.push_back(std::abs(decoded[each]));
      rest[each] = 0;
    }
    CHECK(std::all_of(rest.begin(), rest.end(), [](float each) { return each == 0; }));
    if constexpr (bits == 2) {
      std::sort(magnitudes.begin(), magnitudes.end());
      magnitudes.erase(std::unique(magnitudes.begin(), magnitudes.end()), magnitudes.end());
      CHECK(magnitudes.size() <= 2);
      // the larger level is rounded to a 32nd of it, the smaller one likewise
      CHECK(lost <= 1.5 * lost_by_best_levels(exact) + static_cast<double>(exact.size()) * std::pow(largest / 24, 2));
    } else {
      std::size_t wrong = 0;
      for (std::size_t const each : where) {
        const double off = std::abs(static_cast<double>(decoded[each]) - static_cast<double>(values[each]));
        wrong += off <= largest / (bits == 8 ? 252 : 13.89) ? 0U : 1U;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE_TEMPLATE("very small and very large numbers", Encoding, acco::block_top<2>, acco::block_top<2, 256, 2>,
                   acco::block_top<64, 4096, 2>) {
  for (const float magnitude : {1e-31F, 1e-29F, 1e-20F, 3e38F, std::numeric_limits<float>::max()}) {
    CAPTURE(magnitude);
    std::vector<float> values(Encoding::block_size);
    values[200] = -magnitude;
    values[7] = magnitude / 2;
    const std::vector<float> decoded = there_and_back<Encoding>(values);
    const bool too_small = magnitude < 0x1p-100F;
    const auto arrived = [&](std::size_t i) { return static_cast<double>(decoded[i]) / static_cast<double>(magnitude); };
    CHECK(arrived(200) == doctest::Approx(too_small ? 0 : -1).epsilon(0.04));
    CHECK(arrived(7) == doctest::Approx(too_small ? 0 : 0.5).epsilon(0.06));
    CHECK(decoded[8] == 0);
  }
}
