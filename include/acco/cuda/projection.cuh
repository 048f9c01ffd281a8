// SPDX-License-Identifier: Apache-2.0
// The kernels of matrices that are trained in bases: the loops of storage/projection.hpp. Sums are in another order than there,
// and the same in every run. A thread block makes a tile of a product, whose factors pass through shared memory: neighbours in
// memory are read by neighbours of a warp. The tiles of all matrices stand in one row, so that small ones are made side by side.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "acco/cuda/launch.cuh"
#include "acco/cuda/low_rank.cuh"
#include "acco/number/convert.hpp"
#include "acco/storage/projection.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// Threads of a block, as a square: each makes every sixteenth row and column of a tile.
inline constexpr unsigned square_side = 16;
static_assert(square_side * square_side == block_threads);
/// So many numbers of an expanded matrix are a tile, in both directions, and of so many vectors at a time.
inline constexpr unsigned expanded_side = 64, expanded_depth = 16;
/// Vectors and numbers of each that are a tile of a thin product, and addends at a time.
inline constexpr unsigned thin_vectors = 32, thin_numbers = 64, thin_depth = 32;

[[nodiscard]] constexpr std::size_t tiles_in(std::size_t count, std::size_t side) noexcept { return (count + side - 1) / side; }

/// sums += the products of the tiles in shared memory, each thread's own: every sixteenth of both.
template <std::size_t Depth, std::size_t Left, std::size_t Right, std::size_t Tall, std::size_t Wide, class Sum>
__device__ void multiply_tiles(Sum const (&left)[Depth][Left], Sum const (&right)[Depth][Right], unsigned x, unsigned y,
                               Sum (&sums)[Tall][Wide]) {
  __syncthreads();
#pragma unroll
  for (unsigned d = 0; d < Depth; ++d) {
#pragma unroll
    for (unsigned i = 0; i < Tall; ++i) {
#pragma unroll
      for (unsigned j = 0; j < Wide; ++j) sums[i][j] += left[d][y + square_side * i] * right[d][x + square_side * j];
    }
  }
  __syncthreads();  // the next ones come to the same place
}

/// The tile of keep B + times P z that begins at this row and column.
template <class View, class Sum, class Z, class To>
__device__ void expand_tile(View const& view, projected_matrix const& m, std::size_t row, std::size_t column, Sum keep, Sum times,
                            Z const* z, To* to) {
  __shared__ Sum left[expanded_depth][expanded_side], right[expanded_depth][expanded_side];
  constexpr unsigned each = expanded_side / square_side;
  const unsigned x = threadIdx.x % square_side, y = threadIdx.x / square_side;
  Sum const* const basis = view.bases + m.basis;
  Sum const* const base = view.base + m.base;
  const auto in_left = [&](std::size_t i) { return m.of_rows() ? basis[i] : static_cast<Sum>(z[i]); };
  const auto in_right = [&](std::size_t i) { return m.of_rows() ? static_cast<Sum>(z[i]) : basis[i]; };
  Sum sums[each][each] = {};
  for (std::size_t first = 0; first < m.rank; first += expanded_depth) {
#pragma unroll
    for (unsigned k = 0; k < expanded_depth * expanded_side / block_threads; ++k) {
      const unsigned i = k * block_threads + threadIdx.x, d = i / expanded_side, at = i % expanded_side;
      const std::size_t v = first + d;
      left[d][at] = v < m.rank && row + at < m.rows ? in_left(v * m.rows + row + at) : Sum(0);
      right[d][at] = v < m.rank && column + at < m.columns ? in_right(v * m.columns + column + at) : Sum(0);
    }
    multiply_tiles(left, right, x, y, sums);
  }
#pragma unroll
  for (unsigned i = 0; i < each; ++i) {
#pragma unroll
    for (unsigned j = 0; j < each; ++j) {
      const std::size_t r = row + y + square_side * i, c = column + x + square_side * j;
      if (r < m.rows && c < m.columns) {
        const std::size_t at = r * m.columns + c;
        to[at] = static_cast<To>(keep * base[at] + times * sums[i][j]);
      }
    }
  }
}

/// Where expanded matrices go; null: this one is not wanted.
template <class View>
struct to_trainer {
  std::size_t group;
  __device__ auto* operator()(View const& view, std::size_t k) const {
    return view.matrices[k].group == group ? view.tensors[k].parameters : nullptr;
  }
};
template <class To>
struct to_array {
  std::size_t number;
  To* array;
  template <class View>
  __device__ To* operator()(View const&, std::size_t k) const {
    return k == number ? array : nullptr;
  }
};
/// Coordinates of matrix k: in the inner layout, or an array of their own.
template <class Z>
struct from_layout {
  Z const* z;
  __device__ Z const* operator()(projected_matrix const& m) const { return z + m.z; }
};
template <class Z>
struct from_array {
  Z const* z;
  __device__ Z const* operator()(projected_matrix const&) const { return z; }
};

template <class View, class Sum, class From, class Where>
__global__ void __launch_bounds__(block_threads)
    projection_expanded(View view, Sum keep, Sum times, From coordinates, Where where) {
  dealt tiles = to_blocks();
  for (std::size_t k = 0; k < view.count; ++k) {
    auto* const to = where(view, k);
    if (to == nullptr) continue;
    projected_matrix const& m = view.matrices[k];
    const std::size_t across = tiles_in(m.columns, expanded_side);
    tiles.of(tiles_in(m.rows, expanded_side) * across, [&](std::size_t tile) {
      expand_tile(view, m, tile / across * expanded_side, tile % across * expanded_side, keep, times, coordinates(m), to);
    });
  }
}
/// What is trained as it is.
template <class View, class Z>
__global__ void __launch_bounds__(block_threads) projection_shown(View view, Z const* z) {
  dealt elements = to_threads();
  for (std::size_t k = view.count; k < view.tensor_count; ++k) {
    auto const& each = view.tensors[k];
    using parameter = std::remove_cvref_t<decltype(*each.parameters)>;
    elements.of(each.count, [&](std::size_t i) {
      each.parameters[i] = static_cast<parameter>(static_cast<elementwise::wider<Z, parameter>>(z[each.z + i]));
    });
  }
}

/// The tile of a product with the gradient, of these vectors from this number on: put(vector, number, sum).
template <class Gradient, class Sum, class Put>
__device__ void thin_tile(projected_matrix const& m, Gradient const* gradient, Sum const* vectors, bool over_rows,
                          std::size_t vector, std::size_t number, Put&& put) {
  __shared__ Sum factors[thin_depth][thin_vectors + 1], addends[thin_depth][thin_numbers + 1];
  constexpr unsigned tall = thin_vectors / square_side, wide = thin_numbers / square_side;
  const unsigned x = threadIdx.x % square_side, y = threadIdx.x / square_side;
  const std::size_t length = over_rows ? m.rows : m.columns, numbers = over_rows ? m.columns : m.rows;
  Sum sums[tall][wide] = {};
  for (std::size_t first = 0; first < length; first += thin_depth) {
#pragma unroll
    for (unsigned k = 0; k < thin_depth * thin_vectors / block_threads; ++k) {
      const unsigned i = k * block_threads + threadIdx.x, d = i % thin_depth, v = i / thin_depth;
      factors[d][v] = vector + v < m.rank && first + d < length ? vectors[(vector + v) * length + first + d] : Sum(0);
    }
#pragma unroll
    for (unsigned k = 0; k < thin_depth * thin_numbers / block_threads; ++k) {
      const unsigned i = k * block_threads + threadIdx.x;
      const unsigned d = over_rows ? i / thin_numbers : i % thin_depth, n = over_rows ? i % thin_numbers : i / thin_depth;
      const std::size_t row = over_rows ? first + d : number + n, column = over_rows ? number + n : first + d;
      addends[d][n] = row < m.rows && column < m.columns ? static_cast<Sum>(gradient[row * m.columns + column]) : Sum(0);
    }
    multiply_tiles(factors, addends, x, y, sums);
  }
#pragma unroll
  for (unsigned i = 0; i < tall; ++i) {
#pragma unroll
    for (unsigned j = 0; j < wide; ++j) {
      const std::size_t v = vector + y + square_side * i, n = number + x + square_side * j;
      if (v < m.rank && n < numbers) put(v, n, sums[i][j]);
    }
  }
}
/// Visits the tiles of this product of all matrices: `vectors` lie among all.
template <class View, class Sum, class Put>
__device__ void thin_tiles(View const& view, thin_product which, Sum const* vectors, Put&& put) {
  dealt tiles = to_blocks();
  for (std::size_t k = 0; k < view.count; ++k) {
    projected_matrix const& m = view.matrices[k];
    const bool basis = which == thin_product::of_basis;
    const std::size_t numbers = basis ? m.other() : m.side(), across = tiles_in(numbers, thin_numbers);
    tiles.of(tiles_in(m.rank, thin_vectors) * across, [&](std::size_t tile) {
      thin_tile(m, view.tensors[k].gradients, vectors + (basis ? m.basis : m.thin), sums_rows(m, which),
                tile / across * thin_vectors, tile % across * thin_numbers,
                [&](std::size_t v, std::size_t n, Sum sum) { put(m, v * numbers + n, sum); });
    });
  }
}
template <class View, class Sum>
__global__ void __launch_bounds__(block_threads)
    projection_multiplied(View view, thin_product which, Sum const* vectors, Sum* to) {
  thin_tiles(view, which, vectors, [&](projected_matrix const& m, std::size_t i, Sum sum) {
    to[(which == thin_product::of_basis ? m.thin : m.basis) + i] = sum;
  });
}
/// The projected gradients are added to the inner layout's.
template <class View, class Gradient>
__global__ void __launch_bounds__(block_threads) projection_projected(View view, Gradient* to) {
  using sum_type = std::remove_cvref_t<decltype(*view.bases)>;
  thin_tiles(view, thin_product::of_basis, static_cast<sum_type const*>(view.bases),
             [&](projected_matrix const& m, std::size_t i, sum_type sum) {
               to[m.z + i] = static_cast<Gradient>(static_cast<sum_type>(to[m.z + i]) + sum);
             });
}
/// And so are those of what is trained as it is.
template <class View, class Gradient>
__global__ void __launch_bounds__(block_threads) projection_added(View view, Gradient* to) {
  using total = elementwise::wider<Gradient, Gradient>;
  dealt elements = to_threads();
  for (std::size_t k = view.count; k < view.tensor_count; ++k) {
    auto const& each = view.tensors[k];
    elements.of(each.count, [&](std::size_t i) {
      Gradient& sum = to[each.z + i];
      sum = static_cast<Gradient>(static_cast<total>(sum) + static_cast<total>(each.gradients[i]));
    });
  }
}

/// Launches for what galore does between rounds, on the trainer's stream, where no computation runs beside it.
template <class View>
struct projection_launches {
  using sum_type = std::remove_cvref_t<decltype(*View::base)>;
  on where;
  View const& view;

  template <class Z>
  void show(std::size_t group, double shrink, double scale, Z const* z) const {
    expanded(shrink, scale, from_layout<Z>{z}, to_trainer<View>{group}, view.elements);
  }
  template <class Z, class To>
  void expand(std::size_t k, double shrink, double scale, Z const* z, To* to) const {
    expanded(shrink, scale, from_array<Z>{z}, to_array<To>{k, to}, view.elements);
  }
  template <class Z>
  void show_others(Z const* z) const {
    if (view.as_they_are == 0) return;
    launch<&projection_shown<View, Z>>(where, blocks_for(where, view.as_they_are, block_threads), block_threads, view, z);
  }
  void multiply(thin_product which, sum_type const* vectors, sum_type* to) const {
    launch<&projection_multiplied<View, sum_type>>(where, thin_blocks(which), block_threads, view, which, vectors, to);
  }
  template <class Gradient>
  void project(Gradient* to) const {
    launch<&projection_projected<View, Gradient>>(where, thin_blocks(thin_product::of_basis), block_threads, view, to);
    if (view.as_they_are == 0) return;
    launch<&projection_added<View, Gradient>>(where, blocks_for(where, view.as_they_are, block_threads), block_threads, view, to);
  }

 private:
  template <class From, class Where>
  void expanded(double shrink, double scale, From from, Where to, std::size_t elements) const {
    launch<&projection_expanded<View, sum_type, From, Where>>(where, blocks_for(where, elements, expanded_side * expanded_side),
                                                              block_threads, view, static_cast<sum_type>(shrink),
                                                              static_cast<sum_type>(scale), from, to);
  }
  [[nodiscard]] unsigned thin_blocks(thin_product which) const {
    const std::size_t numbers = which == thin_product::of_basis ? view.others : view.sides;
    return blocks_for(where, tiles_in(view.rank, thin_vectors) * numbers, thin_numbers);
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
