// SPDX-License-Identifier: Apache-2.0
// Gradients of matrices as products of two thin ones (PowerSGD, Vogels, Karimireddy, Jaggi, arXiv 1905.13727).
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/code/encoding.hpp"
#include "acco/error.hpp"
#include "acco/number/require.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The gradients of a matrix of m rows and n columns, p_i on rank i, travel as one step of power iteration for the
/// `rank` largest directions of their sum (Algorithm 1 of the paper, with its warm start):
///     P = orthonormal(sum of p_i Q),   Q <- sum of p_i' P,   the sum is taken to be P Q'.
/// P and Q are summed over ranks, rank (m + n) numbers for m n; then every owner has its part of the sum. Q begins at
/// random, the same on every rank, and goes on, in directions of length 1, from the last round that has counted.
///
/// A tensor of two dimensions or more is a matrix of as many rows as its first; it travels like this where
/// rank (m + n) min_compression < m n. All other tensors travel exactly, with P. A rank of min(m, n) or more is exact,
/// but for rounding.
///
/// What P Q' lacks of gradients that are committed, a feedback keeps (Algorithm 2): `with_feedback{power_sgd{},
/// error_feedback{}}` sends p_i = g_i + e_i, and keeps e_i = p_i - P P' p_i. The sum of these is the paper's, what the
/// sum of p_i had more than what was applied, and so are P and Q; but of the mean of P Q' the paper's ranks also keep
/// how far their own gradients were from it, which cancels in the sum and wanders off on every rank. Estimates need
/// none.
struct power_sgd {
  unsigned rank = 4;           ///< 1 to 1024
  double min_compression = 2;  ///< matrices that would become smaller by no more travel exactly; 0: none does
  std::uint32_t seed = 1;      ///< of the first Q

  static constexpr char const* name = "power_sgd";
  static constexpr bool low_rank = true, biased = true;

  /// Whether a matrix travels as a product.
  [[nodiscard]] constexpr bool pays(std::size_t rows, std::size_t columns) const noexcept {
    const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
    return rows != 0 && columns != 0 && static_cast<double>(rank) * (m + n) * min_compression < m * n;
  }
  void check() const {
    if (rank == 0 || rank > 1024)
      throw usage_error({}, text("power_sgd::rank is ", rank), text("Choose 1 to 1024; 1 to 4 is usual, up to 32 for language"));
    require_not_negative("power_sgd::min_compression", min_compression);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("rank", rank);
    visit("min_compression", min_compression);
    visit("seed", seed);
  }
};
static_assert(low_rank<power_sgd> && biased<power_sgd> && gradient_wire<power_sgd>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
