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

constexpr std::size_t chunk = 64, nothing = ~std::size_t{0};
using numbers = std::vector<double>;

/// The orthonormal DCT-II, [frequency][place].
struct cosines {
  double of[chunk][chunk];
  cosines() {
    for (std::size_t k = 0; k < chunk; ++k) {
      for (std::size_t i = 0; i < chunk; ++i)
        of[k][i] = std::sqrt((k == 0 ? 1.0 : 2.0) / chunk) *
                   std::cos(static_cast<double>((2 * i + 1) * k) * std::numbers::pi / (2 * chunk));
    }
  }
};

/// z = F x, or x = B z, of 64 numbers that lie `apart`, to such that lie `there` apart.
inline void transform(double const* from, std::size_t apart, double* to, std::size_t there, bool back) {
  static const cosines made;
  auto const& of = made.of;
  for (std::size_t a = 0; a < chunk; ++a) {
    double sum = 0;
    for (std::size_t b = 0; b < chunk; ++b) sum += (back ? of[b][a] : of[a][b]) * from[b * apart];
    to[a * there] = sum;
  }
}
/// Of every chunk of 64 numbers, coefficient k of chunk c being number (chunks k + c) of the block; `tile`: then of
/// every column of the chunks, too.
inline numbers transform(numbers x, bool tile, bool back) {
  const std::size_t chunks = x.size() / chunk;
  numbers z(x.size());
  const auto columns = [&] {
    for (std::size_t c = 0; c < chunk; ++c) transform(&x[c], chunk, &z[c], chunk, back);
    x = z;
  };
  if (tile && !back) columns();
  for (std::size_t c = 0; c < chunks; ++c) {
    back ? transform(&x[c], chunks, &z[c * chunk], 1, true) : transform(&x[c * chunk], 1, &z[c], chunks, false);
  }
  x = z;
  if (tile && back) columns();
  return x;
}

struct demo {
  std::size_t kept;
  double rate, decay;
  bool over_senders, by_sign, tiles;
  std::vector<std::vector<std::size_t>> blocks;  // the elements of each; nothing: padding
  std::vector<numbers> delta;                    // of each rank
  numbers theta;

  void step(std::vector<numbers> const& gradients) {
    for (std::vector<std::size_t> const& at : blocks) {
      numbers sum(at.size()), senders(at.size());
      for (std::size_t rank = 0; rank < delta.size(); ++rank) {
        numbers d(at.size()), mine(at.size());
        for (std::size_t i = 0; i < at.size(); ++i) {
          if (at[i] != nothing) d[i] = decay * delta[rank][at[i]] + gradients[rank][at[i]];
        }
        const numbers z = transform(d, tiles, false);
        std::vector<std::size_t> largest(at.size());
        std::iota(largest.begin(), largest.end(), 0U);
        std::partial_sort(largest.begin(), largest.begin() + static_cast<std::ptrdiff_t>(kept), largest.end(),
                          [&](std::size_t a, std::size_t b) { return std::abs(z[a]) > std::abs(z[b]); });
        const auto most = std::bit_cast<std::uint32_t>(static_cast<float>(std::abs(z[largest[0]])));
        const acco::kept_code<8> code(acco::kept_code<8>::word_of(most, nullptr));  // of one number: 8 bits, and a scale
        for (std::size_t n = 0; n < kept; ++n) {
          const std::size_t k = largest[n];
          sum[k] += mine[k] = static_cast<double>(code.value(code.code(static_cast<float>(z[k]))));
          ++senders[k];
        }
        const numbers q = transform(mine, tiles, true);
        for (std::size_t i = 0; i < at.size(); ++i) {
          if (at[i] != nothing) delta[rank][at[i]] = d[i] - q[i];
        }
      }
      for (std::size_t k = 0; k < at.size(); ++k)
        sum[k] /= over_senders ? std::max(senders[k], 1.0) : static_cast<double>(delta.size());
      const numbers update = transform(sum, tiles, true);
      for (std::size_t i = 0; i < at.size(); ++i) {
        if (at[i] != nothing)
          theta[at[i]] -= rate * (by_sign ? static_cast<double>((update[i] > 0) - (update[i] < 0)) : update[i]);
      }
    }
  }
};

/// Neighbours, `size` to a block.
inline std::vector<std::vector<std::size_t>> blocks_of(std::vector<std::size_t> const& elements, std::size_t size) {
  std::vector<std::vector<std::size_t>> made;
  for (std::size_t at = 0; at < elements.size(); at += size) {
    made.emplace_back(elements.begin() + static_cast<std::ptrdiff_t>(at),
                      elements.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, elements.size())));
    made.back().resize(size, nothing);
  }
  return made;
}

}  // namespace published
