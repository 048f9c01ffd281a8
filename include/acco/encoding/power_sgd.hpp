// SPDX-License-Identifier: Apache-2.0
// Gradients of matrices as products of two thin ones (PowerSGD, Vogels et al., arXiv 1905.13727).
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"
#include "acco/number/demand.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// For gradients that are committed: those of a matrix of m rows and n columns, G_i on rank i, travel as one step of power
/// iteration for the largest `rank` directions of their sum (Algorithm 1 and 2 of the paper, warm start included):
///     p_i = G_i + e_i,   P = orthonormal(sum of p_i Q),   Q <- sum of p_i' P,   M = P Q',   e_i <- p_i - (w_i / W) M.
/// P and Q are summed over the ranks, rank (m + n) numbers in place of m n; every rank then has M, and each owner takes its own
/// part of it for the sum of all gradients: there is no reduce-scatter. What M lacks is in e_i, and is sent later; w_i are the
/// rank's samples, W all ranks' (the paper's 1 / N for equal batches), so the sum of all e_i is the sum of all p_i minus what was
/// applied. A rank that brings no samples keeps its p_i. Q begins at random, the same on every rank, and goes on from the last.
///
/// A tensor of two dimensions or more counts as a matrix of as many rows as its first; it travels like this where
/// rank (m + n) min_compression < m n. All other tensors travel exactly, in the same message as P. A rank of min(m, n) or more is
/// exact, but for rounding. Parameters travel as they would otherwise (`coded`).
///
/// It stands as `commit`, or as `coded::gradients` of it, of a schedule, in the memory of a host or a GPU, over one level of
/// ranks. Every rank keeps an e of all such matrices, in the type of sums (`memory_table::encoded`). It begins anew (e = 0, Q at
/// random) after `set_parameters`, and after a step that is skipped; `rewind` brings it back, and so do checkpoints, to as many
/// ranks (`options::residuals`). For rules with momentum it is `loose`: what is late may drive them away.
struct power_sgd {
  unsigned rank = 4;           ///< 1 to 1024
  double min_compression = 2;  ///< matrices that would not become smaller by more than this travel exactly; 0: none does
  unsigned exact_steps = 0;    ///< the first so many commits travel in full; with Adam 10 or more
  std::uint32_t seed = 1;      ///< of the first Q

  static constexpr char const* name = "power_sgd";
  static constexpr bool low_rank = true, loose = true;

  /// Whether a matrix travels as a product.
  [[nodiscard]] constexpr bool pays(std::size_t rows, std::size_t columns) const noexcept {
    const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
    return rows != 0 && columns != 0 && static_cast<double>(rank) * (m + n) * min_compression < m * n;
  }
  /// Throws `usage_error` unless 1 <= rank <= 1024, and min_compression is finite and not negative.
  void check(error_place where = {}) const {
    if (rank == 0 || rank > 1024)
      throw usage_error(where, text("power_sgd::rank is ", rank),
                        text("Choose 1 to 1024; 1 to 4 is usual, up to 32 for language"));
    demand_not_negative("power_sgd::min_compression", min_compression, where);
  }
};

}  // namespace ACCO_SIMD_NAMESPACE
