// SPDX-License-Identifier: Apache-2.0
// Products of a matrix and thin ones, piece by piece, against loops, for shapes that fit no pack.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

#include <acco/number/low_rank.hpp>

#include "support/problem.hpp"

namespace {

template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t from) {
  std::vector<T> found(count);
  for (std::size_t i = 0; i < count; ++i) found[i] = static_cast<T>(static_cast<float>(2 * problem::unit(from + i) - 1));
  return found;
}
/// The largest difference.
template <class T>
double furthest(std::vector<T> const& found, std::vector<double> const& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
  return worst;
}
template <class T>
double products_differ(acco::matrices::thin_shape const& of) {
  const auto [m, n, rank] = of;
  const auto a = numbers<T>(m * n, 1), right = numbers<T>(rank * n, 5000), left = numbers<T>(rank * m, 9000);
  std::vector<T> along(rank * m), back(rank * n), product(m * n);
  std::vector<double> of_along(rank * m), of_back(rank * n), of_product(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t v = 0; v < rank; ++v) {
        const auto x = static_cast<double>(a[i * n + k]), l = static_cast<double>(left[v * m + i]),
                   r = static_cast<double>(right[v * n + k]);
        of_along[v * m + i] += x * r;
        of_back[v * n + k] += x * l;
        of_product[i * n + k] += l * r;
      }
    }
  }
  for (const bool second : {false, true}) {  // of a matrix that is cut
    const std::size_t cut = m * n / 3, first = second ? cut : 0, count = second ? m * n - cut : cut;
    const auto read = [&](std::size_t i, auto lanes) {
      return acco::elementwise::load<acco::pack<T>>(a.data() + first + i, lanes);
    };
    acco::matrices::project(of, first, count, read, right.data(), along.data());
    acco::matrices::project_back(of, first, count, read, left.data(), back.data());
    acco::matrices::for_product(of, first, count, left.data(), right.data(), [&](std::size_t i, auto lanes, auto const& x) {
      acco::elementwise::store(x, product.data() + first + i, lanes);
    });
  }
  return std::max({furthest(along, of_along), furthest(back, of_back), furthest(product, of_product)});
}

}  // namespace

TEST_CASE("products with thin matrices are those of loops, however the matrix is cut") {
  for (const std::size_t rows : std::initializer_list<std::size_t>{1, 2, 5, 34}) {
    for (const std::size_t columns : std::initializer_list<std::size_t>{1, 3, 16, 37}) {
      for (const std::size_t rank : std::initializer_list<std::size_t>{1, 4, 6}) {
        CHECK(products_differ<float>({rows, columns, rank}) < 2e-5);
        CHECK(products_differ<double>({rows, columns, rank}) < 1e-13);
      }
    }
  }
}

TEST_CASE("vectors become orthonormal: tiny ones, and those that nearly lie in the span of others; of none it is zero") {
  constexpr std::size_t count = 37, rank = 5;
  auto x = numbers<float>(count * rank, 1);
  for (std::size_t i = 0; i < count; ++i) {
    x[count + i] *= 1e-12F;
    x[2 * count + i] = x[i] * 3 + x[2 * count + i] * 1e-6F;
    x[3 * count + i] = 0;
  }
  acco::matrices::orthonormalize(x.data(), count, rank);
  for (std::size_t v = 0; v < rank; ++v) {
    for (std::size_t w = 0; w < rank; ++w) {
      const double expected = v == w && v != 3 ? 1 : 0;
      CHECK(std::abs(acco::matrices::inner_product(x.data() + v * count, x.data() + w * count, count) - expected) < 1e-6);
    }
  }
}
