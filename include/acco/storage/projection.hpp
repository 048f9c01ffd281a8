// SPDX-License-Identifier: Apache-2.0
// Between matrices, their coordinates in a basis, and gradients of both, as loops over host arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "acco/number/convert.hpp"
#include "acco/number/low_rank.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A tensor that is trained as its coordinates z in an orthonormal basis P of the smaller of its two sides: rows where they are
/// the fewer, else columns. Both are `rank` vectors, one after the other: those of P of `side()` numbers, those of z of
/// `other()`.
struct projected_matrix {
  std::size_t tensor;  ///< its number, in both layouts
  std::size_t rows, columns, rank;
  std::size_t group;
  std::size_t base;   ///< where it begins among all such matrices
  std::size_t basis;  ///< where its P begins among all
  std::size_t thin;   ///< where its z begins among all
  std::size_t z;      ///< where its z begins in the inner layout
  [[nodiscard]] constexpr bool of_rows() const noexcept { return rows < columns; }
  [[nodiscard]] constexpr std::size_t side() const noexcept { return of_rows() ? rows : columns; }
  [[nodiscard]] constexpr std::size_t other() const noexcept { return of_rows() ? columns : rows; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

/// Where the trainer has a tensor that is trained, `count` numbers, and where what stands for it lies in the inner layout: for a
/// matrix its coordinates, `rank` x `other()` numbers.
template <class Parameter, class Gradient>
struct trained_tensor {
  Parameter* parameters;
  Gradient* gradients;
  std::size_t z, count;
};

/// Where everything is. Owns nothing.
template <class Parameter, class Gradient, class Sum>
struct projection_view {
  projected_matrix const* matrices;
  trained_tensor<Parameter, Gradient> const* tensors;  ///< the matrices, in their order, and behind them what is trained as it is
  std::size_t count, tensor_count;                     ///< of matrices, of both
  Sum* base;                                           ///< B
  Sum* bases;                                          ///< P
  Sum* thin = nullptr;       ///< room for the largest z, and for the largest gradient where it is not of type Sum:
  Sum* converted = nullptr;  ///< of the loops on the host, kernels need none
  std::size_t rank = 0, elements = 0, sides = 0, others = 0,
              as_they_are = 0;  ///< how much work there is to share out: of all matrices; of all other tensors
};

/// The products of a gradient G and thin matrices.
enum class thin_product {
  of_basis,       ///< P' G, or G P where there are more rows: as long as z
  of_coordinates  ///< the other way round, G z', or G' z: as long as P
};
/// Whether it sums over rows: then the gradient stands at the right of the product.
[[nodiscard]] constexpr bool sums_rows(projected_matrix const& m, thin_product which) noexcept {
  return m.of_rows() == (which == thin_product::of_basis);
}

namespace in_bases {

/// to = shrink B + scale P z, or z P'.
template <class View, class Z, class To>
inline void expand(View const& view, projected_matrix const& m, Z const* z, double shrink, double scale, To* to) {
  using real = std::remove_pointer_t<decltype(view.base)>;
  elementwise::convert(z, view.thin, m.rank * m.other());
  real const *const basis = view.bases + m.basis, *const base = view.base + m.base;
  real const* const left = m.of_rows() ? basis : view.thin;
  real const* const right = m.of_rows() ? view.thin : basis;
  constexpr std::size_t most = 1024;
  real piece[most];
  for (std::size_t first = 0; first < m.size(); first += most) {
    const std::size_t count = std::min(most, m.size() - first);
    elementwise::convert(base + first, piece, count);
    matrices::add_product(left, right, m.rows, m.columns, m.rank, first, count, shrink, scale, piece);
    elementwise::convert(static_cast<real const*>(piece), to + first, count);
  }
}
/// The trainer's matrices of this group.
template <class View, class Z>
inline void show(View const& view, std::size_t group, double shrink, double scale, Z const* z) {
  for (std::size_t k = 0; k < view.count; ++k) {
    projected_matrix const& m = view.matrices[k];
    if (m.group == group) expand(view, m, z + m.z, shrink, scale, view.tensors[k].parameters);
  }
}
/// The trainer's tensors that are trained as they are.
template <class View, class Z>
inline void show_others(View const& view, Z const* z) {
  for (auto const* each = view.tensors + view.count; each != view.tensors + view.tensor_count; ++each)
    elementwise::convert(z + each->z, each->parameters, each->count);
}
/// A product of the gradient of matrix k, of which `vectors` are the thin matrix's.
template <class View, class Sum>
inline void multiply(View const& view, std::size_t k, thin_product which, Sum const* vectors, Sum* to) {
  projected_matrix const& m = view.matrices[k];
  auto const* const gradient = view.tensors[k].gradients;
  Sum const* dense = nullptr;
  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*gradient)>, Sum>) {
    dense = gradient;
  } else {
    elementwise::convert(gradient, view.converted, m.size());
    dense = view.converted;
  }
  sums_rows(m, which) ? matrices::project_back(dense, m.rows, m.columns, vectors, m.rank, to)
                      : matrices::project(dense, m.rows, m.columns, vectors, m.rank, to);
}
/// Of all matrices, where thin matrices and products lie among all.
template <class View, class Sum>
inline void multiply_all(View const& view, thin_product which, Sum const* vectors, Sum* to) {
  for (std::size_t k = 0; k < view.count; ++k) {
    projected_matrix const& m = view.matrices[k];
    const bool basis = which == thin_product::of_basis;
    multiply(view, k, which, vectors + (basis ? m.basis : m.thin), to + (basis ? m.thin : m.basis));
  }
}
/// The trainer's gradients, projected, are added to those of the inner layout.
template <class View, class Gradient>
inline void project(View const& view, Gradient* to) {
  using real = std::remove_pointer_t<decltype(view.base)>;
  for (std::size_t k = 0; k < view.count; ++k) {
    projected_matrix const& m = view.matrices[k];
    multiply(view, k, thin_product::of_basis, static_cast<real const*>(view.bases + m.basis), view.thin);
    elementwise::add(static_cast<real const*>(view.thin), to + m.z, m.rank * m.other());
  }
  for (auto const* each = view.tensors + view.count; each != view.tensors + view.tensor_count; ++each)
    elementwise::add(static_cast<Gradient const*>(each->gradients), to + each->z, each->count);
}

}  // namespace in_bases
}  // namespace ACCO_SIMD_NAMESPACE
