// SPDX-License-Identifier: Apache-2.0
// The steps of a round in which gradients of matrices travel as products of thin ones, as loops over host arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "acco/encoding/mix_bits.hpp"
#include "acco/number/convert.hpp"
#include "acco/number/low_rank.hpp"
#include "acco/number/pack.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One that travels as a product of `rank` vectors of `rows` and `rank` vectors of `columns` numbers.
struct low_rank_matrix {
  std::size_t rows, columns, rank;
  std::size_t at;          ///< where it begins in what is kept
  std::size_t left;        ///< where its vectors of rows begin in the first message
  std::size_t right;       ///< where those of columns begin in the second
  std::uint32_t seed = 0;  ///< of the vectors that it begins with
  [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

/// Neighbours in the buffer of gradients, or in a slice, that belong to one matrix, or to none.
struct low_rank_piece {
  static constexpr std::uint32_t exact = 0xffffffffU;

  std::size_t begin;  ///< where they lie
  std::size_t at;     ///< first of them, in their matrix, or in the first message
  std::size_t count;
  std::uint32_t matrix;  ///< its number, or `exact`
};

/// Where everything is. Owns nothing.
template <class Sum>
struct low_rank_view {
  low_rank_matrix const* matrices;
  std::size_t count;
  Sum* kept;       ///< e: what of this rank's gradients has not been sent, as if the loss scale were 1; during a round p
  Sum* direction;  ///< Q of the last round
  Sum* leaving;    ///< this rank's addend of a message
  Sum* left;       ///< the first one's sum over ranks: P, and all that travels exactly
  Sum* right;      ///< the second one's: Q
  std::size_t elements = 0, rows = 0, columns = 0;  ///< of all tensors; of all matrices: how much work there is to share out
};

namespace low_rank {

/// Number k of vector v of the matrix, if it points anywhere.
template <class Sum>
[[nodiscard]] constexpr Sum anywhere(low_rank_matrix const& m, std::size_t v, std::size_t k) noexcept {
  const std::uint32_t bits = mix_bits(mix_bits(m.seed + static_cast<std::uint32_t>(v)) + static_cast<std::uint32_t>(k));
  return static_cast<Sum>(static_cast<double>(bits) / 2147483648.0 - 1);
}
template <class Sum>
inline void point_anywhere(low_rank_matrix const& m, std::size_t v, Sum* vector) {
  for (std::size_t k = 0; k < m.columns; ++k) vector[k] = anywhere<Sum>(m, v, k);
}

/// Nothing has been kept, and no direction is known.
template <class Sum>
inline void forget(low_rank_view<Sum> const& view) {
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    std::fill_n(view.kept + m->at, m->size(), Sum(0));
    for (std::size_t v = 0; v < m->rank; ++v) point_anywhere(*m, v, view.direction + m->right + v * m->columns);
  }
}

/// p = e + g, and the first message: p Q, and what travels exactly. A rank without samples sends nothing of its matrices.
template <class Gradient, class Sum>
inline void begin(low_rank_view<Sum> const& view, low_rank_piece const* pieces, std::size_t count, Gradient const* gradients,
                  double loss_scale, bool brings) {
  using numbers = pack<Sum>;
  const numbers scale(loss_scale);
  for (low_rank_piece const* each = pieces; each != pieces + count; ++each) {
    Gradient const* const from = gradients + each->begin;
    if (each->matrix == low_rank_piece::exact) {
      elementwise::convert(from, view.leaving + each->at, each->count);
      continue;
    }
    Sum* const to = view.kept + view.matrices[each->matrix].at + each->at;
    elementwise::for_packs<numbers::lanes>(each->count, [&](std::size_t i, auto n) {
      elementwise::store(scale * elementwise::load<numbers>(to + i, n) + elementwise::load<numbers>(from + i, n), to + i, n);
    });
  }
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    Sum* const to = view.leaving + m->left;
    if (brings) {
      matrices::project(view.kept + m->at, m->rows, m->columns, view.direction + m->right, m->rank, to);
    } else {
      std::fill_n(to, m->rank * m->rows, Sum(0));
    }
  }
}
/// P becomes orthonormal; the second message: p' P.
template <class Sum>
inline void turn(low_rank_view<Sum> const& view, bool brings) {
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    Sum *const left = view.left + m->left, *const to = view.leaving + m->right;
    matrices::orthonormalize(left, m->rows, m->rank);
    if (brings) {
      matrices::project_back(view.kept + m->at, m->rows, m->columns, left, m->rank, to);
    } else {
      std::fill_n(to, m->rank * m->columns, Sum(0));
    }
  }
}
/// out, of `size` numbers, = (or +=) the pieces of the sum over ranks.
template <class Sum>
inline void write(low_rank_view<Sum> const& view, low_rank_piece const* pieces, std::size_t count, Sum* out, std::size_t size,
                  bool add) {
  if (!add) std::fill_n(out, size, Sum(0));
  for (low_rank_piece const* each = pieces; each != pieces + count; ++each) {
    if (each->matrix == low_rank_piece::exact) {
      elementwise::add(static_cast<Sum const*>(view.left + each->at), out + each->begin, each->count);
      continue;
    }
    low_rank_matrix const& m = view.matrices[each->matrix];
    matrices::add_product<Sum>(view.left + m.left, view.right + m.right, m.rows, m.columns, m.rank, each->at, each->count, 1, 1,
                               out + each->begin);
  }
}
/// e = p - `share` of the sum, and Q stays, unless nobody has brought anything. A vector that points nowhere, of a matrix without
/// gradients say, would for ever: it begins anew.
template <class Sum>
inline void end(low_rank_view<Sum> const& view, double loss_scale, double mine, double all) {
  const double share = all > 0 ? mine / all : 0;
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    Sum* const right = view.right + m->right;
    matrices::add_product<Sum>(view.left + m->left, right, m->rows, m->columns, m->rank, 0, m->size(), 1 / loss_scale,
                               -share / loss_scale, view.kept + m->at);
    if (!(all > 0)) continue;
    for (std::size_t v = 0; v < m->rank; ++v) {
      Sum* const vector = view.direction + m->right + v * m->columns;
      std::copy_n(right + v * m->columns, m->columns, vector);
      if (std::all_of(vector, vector + m->columns, [](Sum x) { return x == 0; })) point_anywhere(*m, v, vector);
    }
  }
}

}  // namespace low_rank
}  // namespace ACCO_SIMD_NAMESPACE
