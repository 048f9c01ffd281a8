// SPDX-License-Identifier: Apache-2.0
// What happens between a matrix, its gradient, its basis and its coordinates, in host memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "acco/number/convert.hpp"
#include "acco/number/low_rank.hpp"
#include "acco/number/pack.hpp"
#include "acco/number/singular_vectors.hpp"
#include "acco/projected/projected_layout.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// W = ... + scale P z of fewer rows than columns, else W = ... + scale z' P: either way a product of vectors of rows
/// and of columns (number/low_rank.hpp).
template <class Real>
class matrix_in_basis {
 public:
  using numbers = pack<Real>;

  /// `kept` has P, the coordinates that W shows, and, last, W's decay beyond the last commit.
  matrix_in_basis(projected_matrix const& of, Real* kept) : of_(of), shape_{of.rows, of.columns, of.rank}, kept_(kept) {}

  [[nodiscard]] Real* basis() const noexcept { return kept_; }
  /// Whether it has been found: the first vector is that of the largest singular value.
  [[nodiscard]] bool is_there() const noexcept {
    return std::any_of(basis(), basis() + of_.side(), [](Real x) { return x != 0; });
  }
  [[nodiscard]] Real* shown() const noexcept { return kept_ + of_.of_basis(); }
  [[nodiscard]] Real& decay() const noexcept { return shown()[of_.count()]; }
  /// Shows coordinates of 0, as what has been committed.
  void begin() const noexcept {
    std::fill_n(kept_, of_.of_basis() + of_.count(), Real(0));
    decay() = 1;
  }

  /// to += P' G, or P G': the gradient of the coordinates.
  void project(Real const* gradient, Real* to) const { product(of_.is_wide(), gradient, basis(), to); }
  /// W at coordinates z, where it has decayed by `decays` since the last commit; what it shows is that, and decays by
  /// `ahead` of what is committed now.
  void show(Real const* z, double decays, double ahead, double scale, Real* w) const {
    const auto factor = static_cast<Real>(decays / static_cast<double>(decay()));
    Real* const change = shown();
    for (std::size_t i = 0; i < of_.count(); ++i) change[i] = z[i] - factor * change[i];
    const numbers keeps(static_cast<double>(factor)), by(scale);
    matrices::for_product(shape_, 0, of_.rows * of_.columns, of_.is_wide() ? basis() : change, of_.is_wide() ? change : basis(),
                          [&](std::size_t i, auto n, numbers const& sum) {
                            elementwise::store(elementwise::load<numbers>(w + i, n) * keeps + sum * by, w + i, n);
                          });
    std::copy_n(z, of_.count(), shown());
    decay() = static_cast<Real>(ahead);
  }

  /// P becomes the singular vectors of a gradient's largest singular values, by subspace iteration from a random
  /// beginning (in the old basis training has left little). Each points to the side of the one before, of the same
  /// number: the rule's moments stay. A gradient that is 0 changes nothing.
  void find(Real const* gradient, unsigned iterations, std::uint64_t step) const {
    if (std::all_of(gradient, gradient + of_.rows * of_.columns, [](Real x) { return x == 0; })) return;
    std::vector<Real> next(of_.of_basis()), across(of_.count());
    std::vector<double> squares(of_.rank);
    std::uint64_t state = (step + 1) * 0x9e3779b97f4a7c15ULL + of_.tensor;
    for (Real& each : next) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      each = static_cast<Real>(static_cast<double>(state >> 40U) / 8388608.0 - 1);
    }
    matrices::orthonormalize(next.data(), of_.side(), of_.rank);
    for (unsigned k = 0; k < iterations; ++k) {
      std::fill(across.begin(), across.end(), Real(0));
      product(of_.is_wide(), gradient, next.data(), across.data());
      matrices::orthonormalize(across.data(), of_.other(), of_.rank);
      std::fill(next.begin(), next.end(), Real(0));
      product(!of_.is_wide(), gradient, across.data(), next.data());
      if (k + 1 < iterations) matrices::orthonormalize(next.data(), of_.side(), of_.rank);
    }
    matrices::singular_vectors(next.data(), of_.side(), of_.rank, squares.data());
    for (std::size_t v = 0; v < of_.rank; ++v) {
      Real *const x = next.data() + v * of_.side(), *const before = basis() + v * of_.side();
      const Real sign = matrices::inner_product(x, before, of_.side()) < 0 ? Real(-1) : Real(1);
      for (std::size_t i = 0; i < of_.side(); ++i) before[i] = sign * x[i];
    }
  }

 private:
  /// to += the product of a matrix with vectors of its rows (`from_rows`), which are vectors of its columns, or the
  /// other way round.
  void product(bool from_rows, Real const* matrix, Real const* from, Real* to) const {
    const auto read = [matrix](std::size_t i, auto n) { return elementwise::load<numbers>(matrix + i, n); };
    const std::size_t size = of_.rows * of_.columns;
    from_rows ? matrices::project_back(shape_, 0, size, read, from, to) : matrices::project(shape_, 0, size, read, from, to);
  }

  projected_matrix const& of_;
  matrices::thin_shape shape_;
  Real* kept_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
