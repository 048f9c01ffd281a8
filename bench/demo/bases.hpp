// SPDX-License-Identifier: Apache-2.0
// Orthonormal bases of a chunk, and its largest coefficients: by their definitions, for any size.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <vector>

namespace asked {

enum class transform : std::uint8_t { cosine, as_it_is, hadamard, random };
/// Its rows are the vectors of the basis.
inline std::vector<float> matrix_of(transform of, std::size_t n) {
  std::vector<double> m(n * n, 0.0);
  const auto size = static_cast<double>(n);
  std::uint64_t state = 7;
  for (std::size_t k = 0; k < n; ++k) {
    double* const row = m.data() + k * n;
    for (std::size_t i = 0; i < n; ++i) {
      if (of == transform::cosine)
        row[i] =
            std::sqrt((k == 0 ? 1 : 2) / size) * std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * k) / (2 * size));
      if (of == transform::as_it_is) row[i] = i == k ? 1 : 0;
      if (of == transform::hadamard) row[i] = ((std::popcount(i & k) & 1) != 0 ? -1 : 1) / std::sqrt(size);
      for (int j = 0; j < 12 && of == transform::random; ++j) {  // nearly normal; made orthonormal below
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        row[i] += static_cast<double>(state >> 33U) * 0x1p-31 - 0.5;
      }
    }
    for (int twice = 0; twice < 2 && of == transform::random; ++twice) {
      for (std::size_t j = 0; j < k; ++j) {
        double const* const other = m.data() + j * n;
        const double along = std::inner_product(row, row + n, other, 0.0);
        for (std::size_t i = 0; i < n; ++i) row[i] -= along * other[i];
      }
      const double norm = std::sqrt(std::inner_product(row, row + n, row, 0.0));
      for (std::size_t i = 0; i < n; ++i) row[i] /= norm;
    }
  }
  return {m.begin(), m.end()};
}
/// y[k] = sum over i of m[k][i] x[i]; back, y[i] = sum over k of m[k][i] x[k].
inline void turn(std::vector<float> const& m, std::size_t n, float const* x, float* y) {
  for (std::size_t k = 0; k < n; ++k) y[k] = std::inner_product(x, x + n, m.data() + k * n, 0.0F);
}
inline void turn_back(std::vector<float> const& m, std::size_t n, float const* x, float* y) {
  std::fill_n(y, n, 0.0F);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n && x[k] != 0; ++i) y[i] += m[k * n + i] * x[k];
}
/// All but the `count` largest magnitudes become 0.
inline void keep_largest(float* x, std::size_t n, std::size_t count) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(count, n - 1)), order.end(),
                   [x](std::size_t p, std::size_t q) { return std::abs(x[p]) > std::abs(x[q]); });
  for (std::size_t k = count; k < n; ++k) x[order[k]] = 0;
}

}  // namespace asked
