// SPDX-License-Identifier: Apache-2.0
// The nearest matrix with orthonormal rows or columns, about, by products of matrices alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/number/convert.hpp"
#include "acco/number/matrix.hpp"
#include "acco/number/pack.hpp"
#include "acco/number/real.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::matrices {

// Matrices lie row by row.

/// Of a product: columns that are worked on together, and how far a sum goes before its numbers are put away. Room is
/// for the widest packs of all: how much is asked for must not depend on the flags of the file that asks.
inline constexpr std::size_t inner_block = 512, most_panel_columns = 32;
template <class Real>
inline constexpr std::size_t panel_columns = 2 * pack<Real>::lanes;

/// c = a b of rows x inner and inner x columns; `transposed`: b is given as columns x inner. `panel` has room for
/// `inner_block * panel_columns` numbers. c overlaps neither.
template <class Real>
inline void multiply(Real const* a, Real const* b, bool transposed, Real* c, std::size_t rows, std::size_t inner,
                     std::size_t columns, Real* panel) {
  using numbers = pack<Real>;
  constexpr std::size_t wide = panel_columns<Real>;
  static_assert(wide <= most_panel_columns);
  for (std::size_t k0 = 0; k0 < inner; k0 += inner_block) {
    const std::size_t depth = std::min(inner_block, inner - k0);
    for (std::size_t j = 0; j < columns; j += wide) {
      const std::size_t width = std::min(wide, columns - j);
      for (std::size_t k = 0; k < depth; ++k) {
        Real* const to = panel + k * wide;
        for (std::size_t l = 0; l < width; ++l) to[l] = transposed ? b[(j + l) * inner + k0 + k] : b[(k0 + k) * columns + j + l];
        std::fill(to + width, to + wide, Real(0));
      }
      // `count` rows at once, so that the panel is read once for them
      const auto rows_at = [&](std::size_t i, auto count) {
        constexpr std::size_t n = decltype(count)::value;
        numbers sums[n][2];
        for (auto& row : sums) row[0] = row[1] = numbers(0.0);
        for (std::size_t k = 0; k < depth; ++k) {
          const auto left = numbers::load(panel + k * wide), right = numbers::load(panel + k * wide + numbers::lanes);
          for (std::size_t r = 0; r < n; ++r) {
            const numbers factor(a[(i + r) * inner + k0 + k]);
            sums[r][0] += factor * left;
            sums[r][1] += factor * right;
          }
        }
        for (std::size_t r = 0; r < n; ++r) {
          Real found[wide];
          sums[r][0].store(found);
          sums[r][1].store(found + numbers::lanes);
          Real* const to = c + (i + r) * columns + j;
          for (std::size_t l = 0; l < width; ++l) to[l] = k0 == 0 ? found[l] : to[l] + found[l];
        }
      };
      std::size_t i = 0;
      for (; i + 4 <= rows; i += 4) rows_at(i, std::integral_constant<std::size_t, 4>());
      for (; i < rows; ++i) rows_at(i, std::integral_constant<std::size_t, 1>());
    }
  }
}

/// to = the transpose of rows x columns.
template <class Real>
inline void transpose(Real const* from, Real* to, std::size_t rows, std::size_t columns) {
  constexpr std::size_t tile = 16;
  for (std::size_t i = 0; i < rows; i += tile) {
    for (std::size_t j = 0; j < columns; j += tile) {
      for (std::size_t r = i; r < std::min(i + tile, rows); ++r) {
        for (std::size_t c = j; c < std::min(j + tile, columns); ++c) to[c * rows + r] = from[r * columns + c];
      }
    }
  }
}

/// to = a * x + b * to, of `count` numbers.
template <class Real>
inline void combine(double a, Real const* x, double b, Real* to, std::size_t count) {
  using numbers = pack<Real>;
  const numbers of_x(a), of_to(b);
  elementwise::for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) {
    elementwise::store(of_x * elementwise::load<numbers>(x + i, n) + of_to * elementwise::load<numbers>(to + i, n), to + i, n);
  });
}

/// X <- a X + b (X X') X + c (X X')^2 X, again and again: every singular value s becomes a s + b s^3 + c s^5. These
/// coefficients (K. Jordan, Muon, 2024) raise small ones as fast as they can: after five iterations those above 1.4e-3
/// of the Frobenius norm lie between about 0.7 and 1.2; smaller ones stay smaller.
struct newton_schulz {
  double a = 3.4445, b = -4.7750, c = 2.0315;
  unsigned iterations = 5;
  double epsilon = 1e-7;  ///< beside the norm: a matrix that gets no gradients any more comes to rest
};

/// How many numbers `orthogonalize` needs room for.
[[nodiscard]] constexpr std::size_t scratch_of_orthogonalize(std::size_t rows, std::size_t columns) noexcept {
  const std::size_t less = rows < columns ? rows : columns;
  return rows * columns + 2 * less * less + inner_block * most_panel_columns;
}

/// X is divided by its Frobenius norm and epsilon, iterated upon, and multiplied by `scale`. All zero stays zero. Sums
/// are
/// in the order of the elements: the same on every rank.
template <class Real>
inline void orthogonalize(matrix_view<Real> const& matrix, newton_schulz const& by, double scale) {
  Real* const x = matrix.values;
  const std::size_t rows = matrix.rows, columns = matrix.columns, count = matrix.size();
  const std::size_t less = std::min(rows, columns), more = std::max(rows, columns);
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  if (!(squares > 0)) return;
  Real* const other = matrix.scratch;
  Real* const gram = other + count;
  Real* const polynomial = gram + less * less;
  Real* const panel = polynomial + less * less;
  const bool stands = rows > columns;
  if (stands) {
    transpose(x, other, rows, columns);
  } else {
    std::copy_n(x, count, other);
  }
  combine(0, other, 1 / (square_root(squares) + by.epsilon), other, count);
  Real *now = other, *next = x;
  for (unsigned k = 0; k < by.iterations; ++k) {
    multiply(now, now, true, gram, less, more, less, panel);
    multiply(gram, gram, false, polynomial, less, less, less, panel);
    combine(by.b, gram, by.c, polynomial, less * less);
    multiply(polynomial, now, false, next, less, less, more, panel);
    combine(by.a, now, 1, next, count);
    std::swap(now, next);
  }
  combine(0, now, scale, now, count);
  if (stands) {
    if (now == x) {
      std::copy_n(x, count, other);
      now = other;
    }
    transpose(now, x, columns, rows);
  } else if (now != x) {
    std::copy_n(now, count, x);
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::matrices

#include "acco/restore_macros.hpp"
