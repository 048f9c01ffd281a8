// SPDX-License-Identifier: Apache-2.0
// Left singular vectors: orthonormal, sorted, of the matrix that they were made of; and where it has fewer dimensions.
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/number/singular_vectors.hpp>

#include "support/problem.hpp"

namespace {

template <class Real>
double product(std::vector<Real> const& v, std::size_t count, std::size_t p, std::size_t q) {
  return acco::matrices::inner_product(v.data() + p * count, v.data() + q * count, count);
}

}  // namespace

TEST_CASE_TEMPLATE("vectors of known singular values come back, in their order, whatever they were mixed of", Real, float,
                   double) {
  const double eps = static_cast<double>(std::numeric_limits<Real>::epsilon());
  for (const std::size_t count : {5U, 33U, 130U}) {
    const std::size_t rank = 5;
    std::vector<double> u(count * rank), v(rank * rank);
    for (std::size_t i = 0; i < u.size(); ++i) u[i] = problem::unit(i + count) - 0.5;
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = problem::unit(i + 999) - 0.5;
    acco::matrices::orthonormalize(u.data(), count, rank);
    acco::matrices::orthonormalize(v.data(), rank, rank);
    const double values[] = {1, 8, 0.25, 2, 0.5};
    std::vector<Real> mixed(count * rank, Real(0));  // column k is sum over l of values[l] u[l] v[l][k]
    for (std::size_t k = 0; k < rank; ++k) {
      for (std::size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (std::size_t l = 0; l < rank; ++l) sum += values[l] * u[l * count + i] * v[l * rank + k];
        mixed[k * count + i] = static_cast<Real>(1e-6 * sum);
      }
    }
    std::vector<double> squares(rank);
    acco::matrices::singular_vectors(mixed.data(), count, rank, squares.data());
    const std::size_t order[] = {1, 3, 0, 4, 2};
    for (std::size_t p = 0; p < rank; ++p) {
      CHECK(std::sqrt(squares[p] / squares[0]) == doctest::Approx(values[order[p]] / 8).epsilon(1000 * eps));
      double along = 0;
      for (std::size_t i = 0; i < count; ++i) along += static_cast<double>(mixed[p * count + i]) * u[order[p] * count + i];
      CHECK(std::abs(along) == doctest::Approx(1).epsilon(1000 * eps));
      for (std::size_t q = 0; q < rank; ++q) CHECK(std::abs(product(mixed, count, p, q) - (p == q ? 1 : 0)) < 20 * eps);
    }
  }
}

TEST_CASE(
    "vectors of fewer dimensions: those that there are come first, the others stay orthonormal or are zero; nothing hangs") {
  const std::size_t count = 20, rank = 6;
  std::vector<float> v(count * rank, 0.0F);
  for (std::size_t k = 0; k < 4; ++k) {  // of two dimensions
    const auto x = static_cast<double>(k);
    for (std::size_t i = 0; i < count; ++i)
      v[k * count + i] = static_cast<float>((x + 1) * problem::unit(i) + x * x * problem::unit(i + 50));
  }
  std::vector<double> squares(rank);
  acco::matrices::singular_vectors(v.data(), count, rank, squares.data());
  CHECK(squares[1] > 1e-4);
  CHECK(squares[2] < 1e-10);
  for (std::size_t p = 0; p < rank; ++p) {
    const double length = product(v, count, p, p);
    CHECK((length == 0 || std::abs(length - 1) < 1e-5));
    for (std::size_t q = 0; q < p; ++q) CHECK(std::abs(product(v, count, p, q)) < 1e-5);
  }
  CHECK(product(v, count, 5, 5) == 0);

  std::vector<float> nothing(count * rank, 0.0F);
  acco::matrices::singular_vectors(nothing.data(), count, rank, squares.data());
  CHECK(nothing == std::vector<float>(count * rank, 0.0F));
  v[3] = std::numeric_limits<float>::quiet_NaN();
  acco::matrices::singular_vectors(v.data(), count, rank, squares.data());  // ends
}
