// SPDX-License-Identifier: Apache-2.0
// In what is kept what codes have lost: numbers of a type, and blocks of 8-bit integers.
#include <cmath>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <acco/encoding/block_gauss.hpp>
#include <acco/encoding/block_integer.hpp>
#include <acco/storage/coding.hpp>
#include <acco/storage/residual.hpp>

namespace {

using code = acco::block_gauss2;
constexpr std::size_t count = 3 * 256 + 77;
float gradient(std::size_t step, std::size_t i) { return std::sin(static_cast<float>(i * 7 + step * 31)); }

/// What a store makes of numbers, block by block.
std::vector<float> kept(acco::full, std::vector<float> const& exact) { return exact; }
std::vector<float> kept(float, std::vector<float> const& exact) { return exact; }
std::vector<float> kept(acco::bfloat16, std::vector<float> exact) {
  for (float& each : exact) each = static_cast<float>(acco::bfloat16(each));
  return exact;
}
std::vector<float> kept(acco::int8_blocks, std::vector<float> exact) {
  exact.resize(4 * 256);
  for (std::size_t i = 0; i < exact.size(); i += 256) {
    std::byte bytes[acco::block_int8<256>::block_bytes];
    acco::block_int8<256>::encode(exact.data() + i, bytes);
    acco::block_int8<256>::decode(bytes, exact.data() + i);
  }
  exact.resize(count);
  return exact;
}

}  // namespace

TEST_CASE_TEMPLATE("what is lost of keep e + g is kept as the store keeps it, in units of the loss scale", Store, acco::full,
                   float, acco::bfloat16, acco::int8_blocks) {
  using residual = acco::coding::residual<Store, float, code::block_size>;
  constexpr bool wide = std::is_same_v<Store, acco::full> || std::is_same_v<Store, float>;
  CHECK(residual::bytes(count) == (wide ? 4 * count : std::is_same_v<Store, acco::bfloat16> ? 2 * count : 4 * (256 + 4)));
  for (const double unit : {1.0, 8.0}) {
    std::vector<std::byte> memory(residual::bytes(count)), bytes(acco::encoded_size<code>(count)), plain(bytes.size());
    std::vector<float> e(count, 0.0F), g(count), sum(count), decoded(count), lacks(count);
    unsigned long long found = 0, first = 0;
    const acco::coding::refused bad{&found, &first};
    for (std::size_t step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < count; ++i) {
        g[i] = gradient(step, i);
        sum[i] = g[i] + static_cast<float>(0.75 * unit) * e[i];
      }
      acco::coding::encode_with_lost(code(), static_cast<float const*>(g.data()), residual::at(memory.data()), 0.75 * unit, 0,
                                     count, bytes.data(), bad, unit);
      acco::coding::encode_values(code(), static_cast<float const*>(sum.data()), 0, count, plain.data(), bad);
      acco::coding::decode_sum(code(), 1, [&](int) { return bytes.data(); }, decoded.data(), count, false);
      for (std::size_t i = 0; i < count; ++i) lacks[i] = (sum[i] - decoded[i]) / static_cast<float>(unit);
      CHECK(bytes == plain);
      e = kept(Store(), lacks);
    }
    CHECK(found == 0);
  }
}

TEST_CASE("estimates are approached by what is decoded, and left alone where the numbers are the same") {
  std::vector<float> g(count), h(count, 0.0F), sum(count, 0.0F);
  std::vector<std::byte> bytes(2 * acco::encoded_size<code>(count));
  unsigned long long found = 0, first = 0;
  const acco::coding::refused bad{&found, &first};
  for (std::size_t i = 0; i < count; ++i) g[i] = 6 * gradient(0, i);
  double before = 1e9;
  for (int step = 0; step < 12; ++step) {  // g / 6 is what h approaches
    acco::coding::encode_towards(code(), static_cast<float const*>(g.data()), static_cast<float const*>(h.data()), 6, 0, count,
                                 bytes.data(), bad);
    std::copy_n(bytes.data(), bytes.size() / 2, bytes.data() + bytes.size() / 2);
    acco::coding::decode_towards(code(), static_cast<std::byte const*>(bytes.data()), 1, 0, 1.0 / 6, h.data(), count);
    acco::coding::decode_towards(code(), static_cast<std::byte const*>(bytes.data()), 2, bytes.size() / 2, 1.0 / 6, sum.data(),
                                 count);
    double lacks = 0;
    for (std::size_t i = 0; i < count; ++i) {
      lacks += std::pow(static_cast<double>(g[i] / 6 - h[i]), 2);
      CHECK(std::abs(sum[i] - 2 * h[i]) < 1e-5F);  // of two ranks with the same codes
    }
    CHECK(lacks < 0.6 * before + 1e-9);
    before = lacks;
  }
}
