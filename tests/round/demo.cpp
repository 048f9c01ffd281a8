// SPDX-License-Identifier: Apache-2.0
// DeMo (Peng et al., arXiv 2411.19870, Algorithm 1) in the sharded form: decoupled momentum, the largest coefficients of a cosine
// transform, the sign of what arrives; the owner of a slice applies the sign, and its differences travel back.
#include "round/demo.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

using namespace demo;

/// What the algorithm says, every rank's momentum whole: delta <- keep delta + g, q = C(delta), delta <- delta - q, and the sign
/// of the sum of all q, which is that of their mean over whoever sends.
template <class Encoding>
std::vector<float> expected(double keep, std::size_t steps) {
  const acco::partition shares(count, ranks);
  const std::size_t padded = shares.padded_size(), share = shares[0].share;
  std::vector<std::vector<double>> delta(ranks, std::vector<double>(padded, 0.0));
  std::vector<float> theta(count, 1.0F);
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<double> sum(padded, 0.0);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<float> g = gradient(rank, step);
      auto& mine = delta[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < padded; ++i) mine[i] = keep * mine[i] + (i < count ? static_cast<double>(g[i]) : 0.0);
      for (std::size_t slice = 0; slice < padded; slice += share) {
        for (std::size_t at = 0; at < share; at += Encoding::block_size) {
          const std::size_t n = std::min<std::size_t>(Encoding::block_size, share - at);
          float values[Encoding::block_size] = {}, decoded[Encoding::block_size];
          std::byte bytes[Encoding::block_bytes];
          for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(mine[slice + at + i]);
          Encoding::encode(values, bytes);
          Encoding::decode(bytes, decoded);
          for (std::size_t i = 0; i < n; ++i) {
            mine[slice + at + i] -= static_cast<double>(decoded[i]);
            sum[slice + at + i] += static_cast<double>(decoded[i]);
          }
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i) theta[i] -= static_cast<float>(rate * (sum[i] > 0 ? 1 : sum[i] < 0 ? -1 : 0));
  }
  return theta;
}

/// The inverse of the orthonormal DCT-II of 256 numbers, as it is defined.
std::vector<double> back(std::vector<double> const& z) {
  constexpr std::size_t n = 256;
  std::vector<double> x(n, 0.0);
  for (std::size_t k = 0; k < n; ++k) {
    const double size = std::sqrt((k == 0 ? 1.0 : 2.0) / n) * z[k];
    for (std::size_t i = 0; i < n && size != 0; ++i)
      x[i] += size * std::cos(static_cast<double>((2 * i + 1) * k) * std::numbers::pi / (2 * n));
  }
  return x;
}

/// The same as `expected`, with the mean over the senders of a coefficient in place of the sum: rank r brings r + 1 samples.
std::vector<float> expected_of_senders(double keep, std::size_t steps) {
  using code = acco::block_dct_top<16>;
  const acco::partition shares(count, ranks);
  const std::size_t padded = shares.padded_size(), share = shares[0].share;
  std::vector<std::vector<double>> delta(ranks, std::vector<double>(padded, 0.0));
  std::vector<float> theta(count, 1.0F);
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<double> mean(padded, 0.0);
    for (std::size_t slice = 0; slice < padded; slice += share) {
      for (std::size_t at = 0; at < share; at += code::block_size) {
        const std::size_t n = std::min<std::size_t>(code::block_size, share - at);
        std::vector<double> sum(code::block_size, 0.0), weight(code::block_size, 0.0);
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<float> g = gradient(rank, step);
          auto& mine = delta[static_cast<std::size_t>(rank)];
          float values[code::block_size] = {}, decoded[code::block_size], coefficients[code::block_size];
          std::byte bytes[code::block_bytes];
          for (std::size_t i = 0; i < n; ++i) {
            const std::size_t k = slice + at + i;
            mine[k] = keep * mine[k] + (k < count ? static_cast<double>(g[k]) : 0.0);
            values[i] = static_cast<float>(mine[k]);
          }
          code::encode(values, bytes);
          code::decode(bytes, decoded);
          for (std::size_t i = 0; i < n; ++i) mine[slice + at + i] -= static_cast<double>(decoded[i]);
          acco::block_top<16>::decode(bytes, coefficients);
          for (std::size_t k = 0; k < code::block_size; ++k) {
            sum[k] += static_cast<double>(coefficients[k]);
            weight[k] += coefficients[k] != 0 ? rank + 1 : 0;
          }
        }
        for (std::size_t k = 0; k < code::block_size; ++k) sum[k] /= std::max(weight[k], 1.0);
        const std::vector<double> of_block = back(sum);
        for (std::size_t i = 0; i < n; ++i) mean[slice + at + i] = of_block[i];
      }
    }
    for (std::size_t i = 0; i < count; ++i) theta[i] -= static_cast<float>(rate * (mean[i] > 0 ? 1 : mean[i] < 0 ? -1 : 0));
  }
  return theta;
}

/// k = all: nothing is lost.
struct everything {
  static constexpr char const* name = "everything";
  static constexpr std::size_t block_size = 256, block_bytes = block_size * sizeof(float);
  static void encode(float const* values, std::byte* bytes) { std::memcpy(bytes, values, block_bytes); }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
};

}  // namespace

TEST_CASE("DeMo is local momentum, the largest coefficients of a cosine transform, and the sign of what arrives") {
  const std::vector<float> found = trained<acco::block_dct_top<16>>(0.999F, acco::full{}, 12);
  const std::vector<float> right = expected<acco::block_dct_top<16>>(0.999, 12);
  CHECK(near(found, right, 1e-5) > count - 15);  // where two coefficients are nearly equal, rounding chooses
  CHECK(near(found, expected<acco::block_dct_top<16>>(0.0, 12), 1e-5) < count / 2);  // the momentum does count
}

TEST_CASE("with all coefficients DeMo has no momentum: it is signSGD of the mean gradient") {
  const std::vector<float> found = trained<everything>(0.999F, acco::full{}, 6);
  CHECK(found == trained<everything>(0.0F, acco::full{}, 6));
  CHECK(near(found, expected<everything>(0.0, 6), 1e-5) == count);
}

TEST_CASE("DeMo's differences are signs: in one bit each they arrive nearly whole") {
  const std::vector<float> whole = trained<acco::block_dct_top<16>>(0.999F, acco::full{}, 12);
  const std::vector<float> signs = trained<acco::block_dct_top<16>>(0.999F, acco::block_sign{}, 12);
  CHECK(near(signs, whole, 1e-4) == count);
}

TEST_CASE("so do those of short shares while the training goes on: the next gradients are of where they have arrived") {
  for (const std::size_t size : {std::size_t{4}, std::size_t{260}}) {  // of the last owner's block 4 numbers, or fewer
    CAPTURE(size);
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      using wire = acco::coded<acco::with_error_feedback<acco::block_dct_top<16>>, acco::block_sign>;
      acco::optimizer training{acco::synchronous{.commit = wire{{{}, 0.999F}, {}}},
                               acco::signum{.learning_rate = rate, .momentum = 0}, acco::host_storage<float>{}, world, size};
      training.initialize(std::vector<float>(size, 1.0F));
      std::vector<float> masters(size);
      for (std::size_t step = 0; step < 20; ++step) {
        for (std::size_t i = 0; i < size; ++i) training.gradients()[i] += training.parameters()[i] - (i % 3 == 0 ? 2.0F : -1.0F);
        training.accumulated(1);
      }
      training.gather_committed(masters);
      double behind = 0;
      for (std::size_t i = 0; i < size; ++i)
        behind = std::max(behind, std::abs(static_cast<double>(training.parameters()[i]) - static_cast<double>(masters[i])));
      CHECK(behind < rate / 20);
      CHECK(std::abs(static_cast<double>(masters[size - 1]) - 1) > 5 * rate);
      training.finish();
    });
  }
}

TEST_CASE("DeMo as published takes the mean over the senders of a coefficient, by their samples") {
  using code = acco::block_dct_top<16, acco::mean_over::senders>;
  const acco::coded<acco::with_error_feedback<code>, acco::full> wire{{{}, 0.999F}, {}};
  const std::vector<float> found = trained_by(acco::synchronous{.commit = wire}, 6, 1, true);
  CHECK(near(found, expected_of_senders(0.999, 6), 1e-5) > count - 15);
  CHECK(near(found, trained<acco::block_dct_top<16>>(0.999F, acco::full{}, 6), 1e-5) <
        count - 100);  // another mean than over all
}
