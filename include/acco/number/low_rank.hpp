// SPDX-License-Identifier: Apache-2.0
// Products of a matrix and thin ones: what power iteration is made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "acco/number/convert.hpp"
#include "acco/number/pack.hpp"
#include "acco/number/real.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::matrices {

// A matrix lies row by row, and its functions take a stretch of it, neighbours that begin with element `first`. A thin
// matrix lies vector by vector: `left` has vectors of as many numbers as there are rows, `right` of as many as there
// are columns. Sums are in the order of the elements: the same wherever the same program runs.

/// What a thin matrix stands for: `rank` vectors of `rows`, and as many of `columns` numbers.
struct thin_shape {
  std::size_t rows, columns, rank;
};

/// body(rows, offset, row, column, length) for rows, or parts of one, of a stretch; `rows` is an integral constant:
/// `Tall` whole rows at once, or 1.
template <std::size_t Tall, class Body>
inline void for_rows(std::size_t columns, std::size_t first, std::size_t count, Body&& body) {
  for (std::size_t done = 0; done < count;) {
    const std::size_t row = (first + done) / columns, column = (first + done) % columns, left = count - done;
    if (column == 0 && left >= Tall * columns) {
      body(std::integral_constant<std::size_t, Tall>(), done, row, column, columns);
      done += Tall * columns;
    } else {
      const std::size_t length = std::min(columns - column, left);
      body(std::integral_constant<std::size_t, 1>(), done, row, column, length);
      done += length;
    }
  }
}

/// left[v][i] += the sum over k of a[i][k] right[v][k], of a stretch: read(offset, n) is a pack of its numbers.
template <class Real, class Read>
inline void project(thin_shape const& of, std::size_t first, std::size_t count, Read&& read, Real const* right, Real* left) {
  using numbers = pack<Real>;
  for_rows<2>(of.columns, first, count, [&](auto rows, std::size_t at, std::size_t row, std::size_t column, std::size_t length) {
    const auto tile = [&](std::size_t v, auto vectors) {  // rows are read once for all of these
      constexpr std::size_t tall = decltype(rows)::value, wide = decltype(vectors)::value;
      numbers sums[tall][wide];
      for (auto& each : sums) std::fill_n(each, wide, numbers(0.0));
      elementwise::for_packs<numbers::lanes>(length, [&](std::size_t k, auto n) {
        numbers along[wide];
        for (std::size_t w = 0; w < wide; ++w)
          along[w] = elementwise::load<numbers>(right + (v + w) * of.columns + column + k, n);
        for (std::size_t r = 0; r < tall; ++r) {
          const numbers x = read(at + r * of.columns + k, n);
          for (std::size_t w = 0; w < wide; ++w) sums[r][w] += x * along[w];
        }
      });
      for (std::size_t r = 0; r < tall; ++r) {
        for (std::size_t w = 0; w < wide; ++w) {
          Real lanes[numbers::lanes], total = 0;
          sums[r][w].store(lanes);
          for (const Real lane : lanes) total += lane;
          left[(v + w) * of.rows + row + r] += total;
        }
      }
    };
    std::size_t v = 0;
    for (; v + 4 <= of.rank; v += 4) tile(v, std::integral_constant<std::size_t, 4>());
    for (; v < of.rank; ++v) tile(v, std::integral_constant<std::size_t, 1>());
  });
}

/// right[v][k] += the sum over i of left[v][i] a[i][k], of a stretch.
template <class Real, class Read>
inline void project_back(thin_shape const& of, std::size_t first, std::size_t count, Read&& read, Real const* left, Real* right) {
  using numbers = pack<Real>;
  for_rows<4>(of.columns, first, count, [&](auto rows, std::size_t at, std::size_t row, std::size_t column, std::size_t length) {
    constexpr std::size_t tall = decltype(rows)::value;
    elementwise::for_packs<numbers::lanes>(length, [&](std::size_t k, auto n) {
      numbers x[tall];
      for (std::size_t r = 0; r < tall; ++r) x[r] = read(at + r * of.columns + k, n);
      for (std::size_t v = 0; v < of.rank; ++v) {
        Real* const to = right + v * of.columns + column + k;
        auto sum = elementwise::load<numbers>(to, n);
        for (std::size_t r = 0; r < tall; ++r) sum += numbers(left[v * of.rows + row + r]) * x[r];
        elementwise::store(sum, to, n);
      }
    });
  });
}

/// take(offset, n, a pack of the product left right') for a stretch.
template <class Real, class Take>
inline void for_product(thin_shape const& of, std::size_t first, std::size_t count, Real const* left, Real const* right,
                        Take&& take) {
  using numbers = pack<Real>;
  for_rows<1>(of.columns, first, count, [&](auto, std::size_t at, std::size_t row, std::size_t column, std::size_t length) {
    elementwise::for_packs<numbers::lanes>(length, [&](std::size_t k, auto n) {
      numbers sum(0.0);
      for (std::size_t v = 0; v < of.rank; ++v)
        sum += numbers(left[v * of.rows + row]) * elementwise::load<numbers>(right + v * of.columns + column + k, n);
      take(at + k, n, sum);
    });
  });
}

/// The sum of x[i] y[i], in double.
template <class Real>
[[nodiscard]] inline double inner_product(Real const* x, Real const* y, std::size_t count) {
  using numbers = pack<double>;
  numbers sum(0.0);
  elementwise::for_packs<numbers::lanes>(
      count, [&](std::size_t i, auto n) { sum += elementwise::load<numbers>(x + i, n) * elementwise::load<numbers>(y + i, n); });
  double lanes[numbers::lanes], total = 0;
  sum.store(lanes);
  for (const double lane : lanes) total += lane;
  return total;
}

/// The vector gets the length 1; one of 1e-30 or less becomes zero. What is not finite makes it not finite.
template <class Real>
inline void normalize(Real* x, std::size_t count) {
  using numbers = pack<Real>;
  const double squares = inner_product(x, x, count);
  if (squares <= 1e-60) {
    std::fill_n(x, count, Real(0));
    return;
  }
  const numbers factor(1 / square_root(squares));
  elementwise::for_packs<numbers::lanes>(
      count, [&](std::size_t i, auto n) { elementwise::store(elementwise::load<numbers>(x + i, n) * factor, x + i, n); });
}

/// The vectors become orthonormal, by Gram and Schmidt, each made orthogonal to those before it twice: of one that lies
/// in their span rounding is left, and becomes a direction of its own, or zero. What is not finite makes all after it
/// so.
template <class Real>
inline void orthonormalize(Real* vectors, std::size_t count, std::size_t rank) {
  using numbers = pack<Real>;
  for (std::size_t v = 0; v < rank; ++v) {
    Real* const x = vectors + v * count;
    for (int time = 0; time < 2; ++time) {
      normalize(x, count);  // so that rounding is that of numbers near 1, however small they were
      for (std::size_t w = 0; w < v; ++w) {
        Real const* const y = vectors + w * count;
        const numbers share(inner_product(x, y, count));
        elementwise::for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) {
          elementwise::store(elementwise::load<numbers>(x + i, n) - share * elementwise::load<numbers>(y + i, n), x + i, n);
        });
      }
    }
    normalize(x, count);
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::matrices

#include "acco/restore_macros.hpp"
