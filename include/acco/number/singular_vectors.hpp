// SPDX-License-Identifier: Apache-2.0
// Left singular vectors of a thin matrix, by rotations of its columns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "acco/number/convert.hpp"
#include "acco/number/low_rank.hpp"
#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::matrices {

/// `rank` vectors of `count` numbers, the columns of a thin matrix, become its left singular vectors, that of the
/// largest singular value first: orthonormal, in their signs as they come. `squares` has room for `rank` numbers, and
/// gets the squares of the singular values, over that of the largest number of all. One-sided Jacobi (Hestenes 1958):
/// sweeps of plane rotations make each pair orthogonal; 30 at most. Vectors of a span of fewer dimensions are what
/// rounding left, or zero. What is not finite stays so. The same wherever the same program runs.
template <class Real>
inline void singular_vectors(Real* vectors, std::size_t count, std::size_t rank, double* squares) {
  using numbers = pack<Real>;
  Real largest = 0;
  for (std::size_t i = 0; i < rank * count; ++i) largest = std::max(largest, std::abs(vectors[i]));
  if (!(largest > 0)) return;
  for (std::size_t i = 0; i < rank * count; ++i) vectors[i] /= largest;

  const double small = 4 * static_cast<double>(std::numeric_limits<Real>::epsilon());
  bool turned = true;
  for (int sweep = 0; turned && sweep < 30; ++sweep) {
    turned = false;
    for (std::size_t v = 0; v < rank; ++v) squares[v] = inner_product(vectors + v * count, vectors + v * count, count);
    for (std::size_t p = 0; p + 1 < rank; ++p) {
      for (std::size_t q = p + 1; q < rank; ++q) {
        Real *const x = vectors + p * count, *const y = vectors + q * count;
        const double product = inner_product(x, y, count);
        if (!(std::abs(product) > small * std::sqrt(squares[p] * squares[q]))) continue;
        turned = true;
        const double slope = (squares[q] - squares[p]) / (2 * product);
        const double tangent = (slope < 0 ? -1 : 1) / (std::abs(slope) + std::sqrt(1 + slope * slope));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent);
        const numbers c(cosine), s(cosine * tangent);
        elementwise::for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) {
          const auto a = elementwise::load<numbers>(x + i, n), b = elementwise::load<numbers>(y + i, n);
          elementwise::store(c * a - s * b, x + i, n);
          elementwise::store(s * a + c * b, y + i, n);
        });
        squares[p] = std::max(0.0, squares[p] - tangent * product);
        squares[q] += tangent * product;
      }
    }
  }

  for (std::size_t v = 0; v < rank; ++v) squares[v] = inner_product(vectors + v * count, vectors + v * count, count);
  for (std::size_t v = 0; v + 1 < rank; ++v) {
    const auto most = static_cast<std::size_t>(std::max_element(squares + v, squares + rank) - squares);
    if (most == v) continue;
    std::swap(squares[v], squares[most]);
    std::swap_ranges(vectors + v * count, vectors + (v + 1) * count, vectors + most * count);
  }
  orthonormalize(vectors, count, rank);  // of length 1; small ones, whose angles rounding has bent, at right angles again
}

}  // namespace ACCO_SIMD_NAMESPACE::matrices

#include "acco/restore_macros.hpp"
