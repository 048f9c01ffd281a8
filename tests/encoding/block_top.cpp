// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <acco/encoding/block_top.hpp>

#include "conformance/encoding.hpp"
#include "encoding/gaussian.hpp"

TEST_CASE_TEMPLATE("the largest conform", Encoding, acco::block_top<1>, acco::block_top<16>, acco::block_top<255>) {
  conformance::encoding_suite(Encoding{}, 1.0, Encoding::kept == 1 ? 0.995 : Encoding::kept == 16 ? 0.9 : 0.01);
}

TEST_CASE_TEMPLATE("the largest arrive, as 8 bits have them, of equal ones the first; all others are 0", Encoding,
                   acco::block_top<1>, acco::block_top<16>, acco::block_top<100>, acco::block_top<255>) {
  static_assert(acco::encoded_size<Encoding>(512) == 2 * (2 + 2 * Encoding::kept));
  const std::vector<float> drawn = gaussian_numbers(256 * 60);
  std::size_t wrong = 0;
  double arrived = 0, all = 0;
  for (std::size_t block = 0; block < 60; ++block) {
    float values[256], decoded[256];
    std::copy_n(drawn.data() + 256 * block, 256, values);
    if (block % 3 == 1) {
      for (float& each : values) each = std::round(each);  // many equal magnitudes
    }
    if (block % 3 == 2) std::fill(values + 8, values + 256, 0.0F);  // fewer than are kept
    std::byte bytes[Encoding::block_bytes];
    Encoding::encode(values, bytes);
    Encoding::decode(bytes, decoded);
    std::size_t order[256];
    std::iota(order, order + 256, std::size_t{0});
    std::sort(order, order + 256, [&](std::size_t a, std::size_t b) {
      const float x = std::abs(values[a]), y = std::abs(values[b]);
      return x > y || (x == y && a < b);
    });
    const float largest = std::abs(values[order[0]]);
    std::vector<std::size_t> where(order, order + Encoding::kept);
    std::sort(where.begin(), where.end());
    for (std::size_t n = 0; n < Encoding::kept; ++n) {
      wrong += static_cast<std::size_t>(bytes[2 + n]) == where[n] ? 0U : 1U;
      const std::size_t i = where[n];
      wrong += std::abs(decoded[i] - values[i]) <= largest / 252 ? 0U : 1U;
      decoded[i] = 0;
      if (block % 3 == 0) arrived += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    for (std::size_t i = 0; i < 256; ++i) {
      wrong += decoded[i] == 0 ? 0U : 1U;
      if (block % 3 == 0) all += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  CHECK(wrong == 0);
  CHECK(arrived / all > static_cast<double>(Encoding::kept) / 256);
}

TEST_CASE("very small and very large numbers") {
  for (const float magnitude : {1e-31F, 1e-29F, 1e-20F, 3e38F}) {
    float values[256] = {}, decoded[256];
    values[200] = -magnitude;
    values[7] = magnitude / 2;
    std::byte bytes[acco::block_top<2>::block_bytes];
    acco::block_top<2>::encode(values, bytes);
    acco::block_top<2>::decode(bytes, decoded);
    const bool too_small = magnitude < 0x1p-100F;
    CHECK(decoded[200] == (too_small ? 0.0F : doctest::Approx(-magnitude).epsilon(0.01)));
    CHECK(decoded[7] == (too_small ? 0.0F : doctest::Approx(magnitude / 2).epsilon(0.02)));
    CHECK(decoded[8] == 0);
  }
}
