// SPDX-License-Identifier: Apache-2.0
// The arithmetic of DeMo's released code (bloc97/DeMo, demo.py), in double, with the transform by its definition: the
// oracle. What differs from it there is said in docs/demo.md.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <vector>

#include <acco/acco.hpp>

namespace published {

constexpr std::size_t block = 256, chunk = 64;

/// x = B z or z = F x of every chunk, the orthonormal DCT-II; coefficient k of chunk c is number 4 k + c of the block.
inline void transform(double const* from, double* to, bool back) {
  std::fill_n(to, block, 0.0);
  for (std::size_t c = 0; c < block / chunk; ++c) {
    for (std::size_t k = 0; k < chunk; ++k) {
      for (std::size_t i = 0; i < chunk; ++i) {
        const double basis = std::sqrt((k == 0 ? 1.0 : 2.0) / chunk) *
                             std::cos(static_cast<double>((2 * i + 1) * k) * std::numbers::pi / (2 * chunk));
        const std::size_t x = c * chunk + i, z = k * (block / chunk) + c;
        back ? to[x] += basis * from[z] : to[z] += basis * from[x];
      }
    }
  }
}

struct demo {
  std::size_t kept;
  double rate, decay;
  bool over_senders, by_sign;
  std::vector<std::vector<double>> delta;  // of each rank
  std::vector<double> theta;

  void step(std::vector<std::vector<double>> const& gradients) {
    for (std::size_t at = 0; at < theta.size(); at += block) {
      double sum[block] = {}, senders[block] = {}, update[block];
      for (std::size_t rank = 0; rank < delta.size(); ++rank) {
        double *const d = &delta[rank][at], z[block], mine[block] = {}, q[block];
        for (std::size_t i = 0; i < block; ++i) d[i] = decay * d[i] + gradients[rank][at + i];
        transform(d, z, false);
        std::vector<std::size_t> largest(block);
        std::iota(largest.begin(), largest.end(), 0U);
        std::sort(largest.begin(), largest.end(), [&](std::size_t a, std::size_t b) { return std::abs(z[a]) > std::abs(z[b]); });
        const auto most = std::bit_cast<std::uint32_t>(static_cast<float>(std::abs(z[largest[0]])));
        const acco::kept_code<8> code(acco::kept_code<8>::word_of(most, nullptr));  // of one number: 8 bits, and a scale
        for (std::size_t n = 0; n < kept; ++n) {
          const std::size_t k = largest[n];
          sum[k] += mine[k] = static_cast<double>(code.value(code.code(static_cast<float>(z[k]))));
          ++senders[k];
        }
        transform(mine, q, true);
        for (std::size_t i = 0; i < block; ++i) d[i] -= q[i];
      }
      for (std::size_t k = 0; k < block; ++k)
        sum[k] /= over_senders ? std::max(senders[k], 1.0) : static_cast<double>(delta.size());
      transform(sum, update, true);
      for (std::size_t i = 0; i < block; ++i)
        theta[at + i] -= rate * (by_sign ? static_cast<double>((update[i] > 0) - (update[i] < 0)) : update[i]);
    }
  }
};

}  // namespace published
