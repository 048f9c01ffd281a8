// SPDX-License-Identifier: Apache-2.0
// Products of a matrix and thin ones: what power iteration is made of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "acco/number/convert.hpp"
#include "acco/number/pack.hpp"

namespace ACCO_SIMD_NAMESPACE::matrices {

// A matrix lies row by row; a thin one vector by vector: `left` has `rank` vectors of as many numbers as there are rows, `right`
// as many as there are columns. Sums are in the order of the elements: the same wherever the same program runs.

/// left = a right': left[v][i] = sum over k of a[i][k] right[v][k].
template <class Real>
inline void project(Real const* a, std::size_t rows, std::size_t columns, Real const* right, std::size_t rank, Real* left) {
  using numbers = pack<Real>;
  const auto tile = [&](std::size_t i, auto of_rows, std::size_t v, auto of_vectors) {  // a row is read once for its vectors
    constexpr std::size_t tall = decltype(of_rows)::value, wide = decltype(of_vectors)::value;
    numbers sums[tall][wide];
    for (auto& row : sums) {
      for (auto& each : row) each = numbers(0.0);
    }
    elementwise::for_packs<numbers::lanes>(columns, [&](std::size_t k, auto n) {
      numbers along[wide];
      for (std::size_t w = 0; w < wide; ++w) along[w] = elementwise::load<numbers>(right + (v + w) * columns + k, n);
      for (std::size_t r = 0; r < tall; ++r) {
        const auto x = elementwise::load<numbers>(a + (i + r) * columns + k, n);
        for (std::size_t w = 0; w < wide; ++w) sums[r][w] += x * along[w];
      }
    });
    for (std::size_t r = 0; r < tall; ++r) {
      for (std::size_t w = 0; w < wide; ++w) {
        Real lanes[numbers::lanes];
        sums[r][w].store(lanes);
        Real total = 0;
        for (const Real lane : lanes) total += lane;
        left[(v + w) * rows + i + r] = total;
      }
    }
  };
  using one = std::integral_constant<std::size_t, 1>;
  using two = std::integral_constant<std::size_t, 2>;
  using four = std::integral_constant<std::size_t, 4>;
  const auto vectors = [&](std::size_t i, auto of_rows) {
    std::size_t v = 0;
    for (; v + 4 <= rank; v += 4) tile(i, of_rows, v, four());
    for (; v < rank; ++v) tile(i, of_rows, v, one());
  };
  std::size_t i = 0;
  for (; i + 2 <= rows; i += 2) vectors(i, two());
  for (; i < rows; ++i) vectors(i, one());
}

/// right = left' a: right[v][k] = sum over i of left[v][i] a[i][k].
template <class Real>
inline void project_back(Real const* a, std::size_t rows, std::size_t columns, Real const* left, std::size_t rank, Real* right) {
  using numbers = pack<Real>;
  std::fill_n(right, rank * columns, Real(0));
  const auto add = [&](std::size_t i, auto of_rows) {
    constexpr std::size_t tall = decltype(of_rows)::value;
    elementwise::for_packs<numbers::lanes>(columns, [&](std::size_t k, auto n) {
      numbers x[tall];
      for (std::size_t r = 0; r < tall; ++r) x[r] = elementwise::load<numbers>(a + (i + r) * columns + k, n);
      for (std::size_t v = 0; v < rank; ++v) {
        Real* const to = right + v * columns + k;
        auto sum = elementwise::load<numbers>(to, n);
        for (std::size_t r = 0; r < tall; ++r) sum += numbers(left[v * rows + i + r]) * x[r];
        elementwise::store(sum, to, n);
      }
    });
  };
  std::size_t i = 0;
  for (; i + 4 <= rows; i += 4) add(i, std::integral_constant<std::size_t, 4>());
  for (; i < rows; ++i) add(i, std::integral_constant<std::size_t, 1>());
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

/// The vectors become orthonormal, by Gram and Schmidt, each made orthogonal to those before it twice: of one that lies in their
/// span rounding is left, and becomes a direction of its own. Of norm 1e-30 or less, a vector becomes zero; what is not finite
/// makes all after it so.
template <class Real>
inline void orthonormalize(Real* vectors, std::size_t count, std::size_t rank) {
  using numbers = pack<Real>;
  for (std::size_t v = 0; v < rank; ++v) {
    Real* const x = vectors + v * count;
    const auto divide_by = [&](double squares) {
      const numbers factor(1 / std::sqrt(squares));
      elementwise::for_packs<numbers::lanes>(
          count, [&](std::size_t i, auto n) { elementwise::store(elementwise::load<numbers>(x + i, n) * factor, x + i, n); });
    };
    for (int time = 0; time < 2; ++time) {
      const double squares = inner_product(x, x, count);
      if (squares <= 1e-60) break;
      divide_by(squares);  // so that rounding is that of numbers near 1, however small they were
      for (std::size_t w = 0; w < v; ++w) {
        Real const* const y = vectors + w * count;
        const numbers share(inner_product(x, y, count));
        elementwise::for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) {
          elementwise::store(elementwise::load<numbers>(x + i, n) - share * elementwise::load<numbers>(y + i, n), x + i, n);
        });
      }
    }
    const double squares = inner_product(x, x, count);
    if (squares <= 1e-60) {
      std::fill_n(x, count, Real(0));
    } else {
      divide_by(squares);
    }
  }
}

/// to[i] = keep to[i] + times (the element `first` + i of the product of left and right), of `count` elements.
template <class Real>
inline void add_product(Real const* left, Real const* right, std::size_t rows, std::size_t columns, std::size_t rank,
                        std::size_t first, std::size_t count, double keep, double times, Real* to) {
  using numbers = pack<Real>;
  const numbers kept(keep), factor(times);
  for (std::size_t done = 0; done < count;) {
    const std::size_t row = (first + done) / columns, column = (first + done) % columns;
    const std::size_t length = std::min(columns - column, count - done);
    Real* const at = to + done;
    elementwise::for_packs<numbers::lanes>(length, [&](std::size_t k, auto n) {
      numbers sum(0.0);
      for (std::size_t v = 0; v < rank; ++v)
        sum += numbers(left[v * rows + row]) * elementwise::load<numbers>(right + v * columns + column + k, n);
      elementwise::store(kept * elementwise::load<numbers>(at + k, n) + factor * sum, at + k, n);
    });
    done += length;
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::matrices
