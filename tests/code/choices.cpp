// SPDX-License-Identifier: Apache-2.0
// What holds for every code that chooses among a block's numbers.
#include <cmath>

#include <doctest/doctest.h>

#include <acco/code/block_dct_top.hpp>
#include <acco/code/block_random.hpp>
#include <acco/code/block_top.hpp>
#include <acco/code/feedback.hpp>
#include <acco/storage/coding.hpp>

#include "code/gaussian.hpp"

TEST_CASE_TEMPLATE("what the largest lose is at most all but Count / Block of the energy, in two bits too", Encoding,
                   acco::block_top<16>, acco::block_top<16, 256, 2>, acco::block_top<128, 256, 2>, acco::block_top<64, 4096, 2>,
                   acco::block_dct_top<16, 256, 2>, acco::block_dct2_top<64, 2>) {
  static_assert(acco::biased<Encoding> && acco::loose<Encoding>);
  constexpr std::size_t n = Encoding::block_size;
  constexpr double part = static_cast<double>(Encoding::kept) / static_cast<double>(n);
  const std::vector<float> drawn = gaussian_numbers(n);
  for (const int kind : {0, 1, 2, 3}) {  // Gaussian; far out; one large among small ones; of one size
    CAPTURE(kind);
    std::vector<float> values = drawn, decoded(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float x = drawn[i];
      values[i] = kind == 0   ? x
                  : kind == 1 ? x * x * x * x * x
                  : kind == 2 ? (i == 99 ? 1.0F : x * 1e-3F)
                              : std::copysign(1.0F, x);
    }
    std::byte bytes[Encoding::block_bytes];
    Encoding::encode(values.data(), bytes);
    Encoding::decode(bytes, decoded.data());
    double lost = 0, all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      lost += std::pow(static_cast<double>(decoded[i]) - static_cast<double>(values[i]), 2);
      all += std::pow(static_cast<double>(values[i]), 2);
    }
    CHECK(lost <= (1 - part) * all * (1 + 1e-4));
  }
}

TEST_CASE_TEMPLATE("with error feedback all that arrived, and what is kept, is all that was sent", Encoding, acco::block_top<16>,
                   acco::block_top<64, 4096, 2>, acco::block_random<32>, acco::scaled_random<32>, acco::block_dct_top<16>,
                   acco::block_dct2_top<64, 2>) {
  using code = acco::with_error_feedback<Encoding>;
  constexpr std::size_t n = Encoding::block_size + 100;
  const code e;
  const std::vector<float> drawn = gaussian_numbers(4 * n);
  std::vector<double> gradients(n), state(n), all(n), arrived(n);
  std::vector<std::byte> bytes(acco::encoded_size<Encoding>(n));
  unsigned long long found = 0, first = ~0ULL;
  for (std::size_t step = 0; step < 20; ++step) {
    for (std::size_t i = 0; i < n; ++i) {
      gradients[i] = static_cast<double>(drawn[(i + 37 * step) % drawn.size()]);
      all[i] += gradients[i];
    }
    acco::coding::encode_with_feedback(e, static_cast<double const*>(gradients.data()), static_cast<double const*>(state.data()),
                                       1, 0, n, bytes.data(), {&found, &first});
    acco::coding::keep_feedback(e, static_cast<double const*>(gradients.data()), state.data(), 1, n, bytes.data());
    acco::coding::decode_sum(e, 1, [&](int) { return static_cast<std::byte const*>(bytes.data()); }, arrived.data(), n, true);
  }
  double off = 0, kept = 0;
  for (std::size_t i = 0; i < n; ++i) {
    off = std::max(off, std::abs(arrived[i] + state[i] - all[i]));
    kept += state[i] * state[i];
  }
  CHECK(found == 0);
  CHECK(off < 1e-12);
  CHECK(kept > 0);
}
