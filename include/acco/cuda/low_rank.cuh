// SPDX-License-Identifier: Apache-2.0
// The kernels of rounds in which gradients of matrices travel as products of thin ones: the loops of storage/low_rank.hpp. Sums
// are in another order than there, and the same in every run. Neighbours in memory are read by neighbours of a warp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "acco/cuda/launch.cuh"
#include "acco/cuda/runtime.hpp"
#include "acco/cuda/warp.cuh"
#include "acco/storage/low_rank.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr unsigned vectors_at_once = 4;  ///< sums of so many vectors are kept while a matrix is read
/// Blocks for `count` works of `a_block` each: what is left is done in further turns.
inline unsigned blocks_for(on where, std::size_t count, std::size_t a_block) {
  return where.blocks(std::min<std::size_t>((count + a_block - 1) / a_block, 4096));
}

/// Works of several things in one row, dealt to `workers` in turn: visit(thing, which of its works).
class dealt {
 public:
  __device__ dealt(std::size_t worker, std::size_t workers) : next_(worker), workers_(workers) {}
  template <class Visit>
  __device__ void of(std::size_t count, Visit&& visit) {
    for (; next_ < first_ + count; next_ += workers_) visit(next_ - first_);
    first_ += count;
  }

 private:
  std::size_t first_ = 0, next_, workers_;
};
inline __device__ dealt to_threads() {
  return {static_cast<std::size_t>(blockIdx.x) * block_threads + threadIdx.x,
          static_cast<std::size_t>(gridDim.x) * block_threads};
}
inline __device__ dealt to_warps() {
  return {static_cast<std::size_t>(blockIdx.x) * block_warps + threadIdx.x / warp_lanes,
          static_cast<std::size_t>(gridDim.x) * block_warps};
}
inline __device__ dealt to_blocks() { return {blockIdx.x, gridDim.x}; }

/// The sum over a thread block. All of its threads call this, and all get the same.
inline __device__ double block_sum(double mine) {
  __shared__ double of_warps[block_warps];
  mine = warp_sum(mine);
  if (threadIdx.x % warp_lanes == 0) of_warps[threadIdx.x / warp_lanes] = mine;
  __syncthreads();
  double all = 0;
  for (double const each : of_warps) all += each;
  __syncthreads();  // the next one's sums come to the same place
  return all;
}

/// Element i of the product.
template <class Sum>
__device__ Sum product_at(low_rank_view<Sum> const& view, low_rank_matrix const& m, std::size_t i) {
  const std::size_t row = i / m.columns, column = i % m.columns;
  Sum sum = 0;
  for (std::size_t v = 0; v < m.rank; ++v)
    sum += view.left[m.left + v * m.rows + row] * view.right[m.right + v * m.columns + column];
  return sum;
}

/// p = e + g; what travels exactly goes to the first message.
template <class Gradient, class Sum>
__global__ void __launch_bounds__(block_threads) low_rank_take(low_rank_view<Sum> view, low_rank_piece const* pieces,
                                                               std::size_t count, Gradient const* gradients, Sum scale) {
  dealt elements = to_threads();
  for (low_rank_piece const* each = pieces; each != pieces + count; ++each) {
    Gradient const* const from = gradients + each->begin;
    if (each->matrix == low_rank_piece::exact) {
      elements.of(each->count, [&](std::size_t i) { view.leaving[each->at + i] = static_cast<Sum>(from[i]); });
    } else {
      Sum* const to = view.kept + view.matrices[each->matrix].at + each->at;
      elements.of(each->count, [&](std::size_t i) { to[i] = scale * to[i] + static_cast<Sum>(from[i]); });
    }
  }
}
/// The first message: p Q, a warp a row. A rank without samples sends nothing of its matrices.
template <class Sum>
__global__ void __launch_bounds__(block_threads) low_rank_project(low_rank_view<Sum> view, double const* mine) {
  const unsigned lane = threadIdx.x % warp_lanes;
  const bool brings = *mine > 0;
  dealt rows = to_warps();
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    rows.of(m->rows, [&](std::size_t row) {
      Sum const* const along = view.kept + m->at + row * m->columns;
      for (std::size_t v = 0; v < m->rank; v += vectors_at_once) {
        Sum sums[vectors_at_once] = {};
        for (std::size_t k = lane; brings && k < m->columns; k += warp_lanes) {
          const Sum x = along[k];
#pragma unroll
          for (unsigned w = 0; w < vectors_at_once; ++w)
            if (v + w < m->rank) sums[w] += x * view.direction[m->right + (v + w) * m->columns + k];
        }
#pragma unroll
        for (unsigned w = 0; w < vectors_at_once; ++w) {
          const Sum sum = warp_sum(sums[w]);
          if (lane == 0 && v + w < m->rank) view.leaving[m->left + (v + w) * m->rows + row] = sum;
        }
      }
    });
  }
}
/// P becomes orthonormal, a thread block a matrix: as matrices::orthonormalize.
template <class Sum>
__global__ void __launch_bounds__(block_threads) low_rank_orthonormalize(low_rank_view<Sum> view) {
  for (std::size_t k = blockIdx.x; k < view.count; k += gridDim.x) {
    low_rank_matrix const& m = view.matrices[k];
    const auto inner_product = [&](Sum const* x, Sum const* y) {
      double sum = 0;
      for (std::size_t i = threadIdx.x; i < m.rows; i += block_threads)
        sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
      return block_sum(sum);
    };
    for (std::size_t v = 0; v < m.rank; ++v) {
      Sum* const x = view.left + m.left + v * m.rows;  // each of its numbers is one thread's
      const auto times = [&](Sum factor) {
        for (std::size_t i = threadIdx.x; i < m.rows; i += block_threads) x[i] *= factor;
      };
      for (int time = 0; time < 2; ++time) {
        const double squares = inner_product(x, x);
        if (squares <= 1e-60) break;
        times(static_cast<Sum>(1 / sqrt(squares)));
        for (std::size_t w = 0; w < v; ++w) {
          Sum const* const y = view.left + m.left + w * m.rows;
          const auto share = static_cast<Sum>(inner_product(x, y));
          for (std::size_t i = threadIdx.x; i < m.rows; i += block_threads) x[i] -= share * y[i];
        }
      }
      const double squares = inner_product(x, x);
      times(squares <= 1e-60 ? Sum(0) : static_cast<Sum>(1 / sqrt(squares)));
    }
  }
}
/// The second message: p' P, a thread block 32 columns, whose rows its warps take in turn.
template <class Sum>
__global__ void __launch_bounds__(block_threads) low_rank_project_back(low_rank_view<Sum> view, double const* mine) {
  __shared__ Sum of_warps[block_warps][vectors_at_once][warp_lanes];
  const unsigned lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes;
  const bool brings = *mine > 0;
  dealt stretches = to_blocks();
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    stretches.of((m->columns + warp_lanes - 1) / warp_lanes, [&](std::size_t stretch) {
      const std::size_t column = stretch * warp_lanes + lane;
      for (std::size_t v = 0; v < m->rank; v += vectors_at_once) {
        Sum sums[vectors_at_once] = {};
        for (std::size_t row = warp; brings && column < m->columns && row < m->rows; row += block_warps) {
          const Sum x = view.kept[m->at + row * m->columns + column];
#pragma unroll
          for (unsigned w = 0; w < vectors_at_once; ++w)
            if (v + w < m->rank) sums[w] += x * view.left[m->left + (v + w) * m->rows + row];
        }
#pragma unroll
        for (unsigned w = 0; w < vectors_at_once; ++w) of_warps[warp][w][lane] = sums[w];
        __syncthreads();
        if (warp < vectors_at_once && v + warp < m->rank && column < m->columns) {
          Sum all = 0;
          for (unsigned k = 0; k < block_warps; ++k) all += of_warps[k][warp][lane];
          view.leaving[m->right + (v + warp) * m->columns + column] = all;
        }
        __syncthreads();  // the next sums come to the same place
      }
    });
  }
  static_assert(vectors_at_once <= block_warps, "a warp sums one vector's");
}
/// out += the pieces of the sum over ranks.
template <class Sum>
__global__ void __launch_bounds__(block_threads)
    low_rank_add(low_rank_view<Sum> view, low_rank_piece const* pieces, std::size_t count, Sum* out) {
  dealt elements = to_threads();
  for (low_rank_piece const* each = pieces; each != pieces + count; ++each) {
    Sum* const to = out + each->begin;
    if (each->matrix == low_rank_piece::exact) {
      elements.of(each->count, [&](std::size_t i) { to[i] += view.left[each->at + i]; });
    } else {
      low_rank_matrix const& m = view.matrices[each->matrix];
      elements.of(each->count, [&](std::size_t i) { to[i] += product_at(view, m, each->at + i); });
    }
  }
}
/// e = p - *mine / *all of the sum; nothing where *skip, or where `skip` is null.
template <class Sum>
__global__ void __launch_bounds__(block_threads)
    low_rank_keep(low_rank_view<Sum> view, double loss_scale, double const* mine, double const* all, bool const* skip) {
  const bool forgets = skip == nullptr || *skip;
  const double share = !forgets && *all > 0 ? *mine / *all : 0;
  const auto keep = static_cast<Sum>(1 / loss_scale), times = static_cast<Sum>(-share / loss_scale);
  dealt elements = to_threads();
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    Sum* const kept = view.kept + m->at;
    elements.of(m->size(), [&](std::size_t i) { kept[i] = forgets ? Sum(0) : keep * kept[i] + times * product_at(view, *m, i); });
  }
}
/// Q of the next round, a thread block a vector: this one's; one that points nowhere begins anew, and all where all is forgotten.
template <class Sum>
__global__ void __launch_bounds__(block_threads) low_rank_point(low_rank_view<Sum> view, double const* all, bool const* skip) {
  const bool forgets = skip == nullptr || *skip;
  if (!forgets && !(*all > 0)) return;
  dealt vectors = to_blocks();
  for (low_rank_matrix const* m = view.matrices; m != view.matrices + view.count; ++m) {
    vectors.of(m->rank, [&](std::size_t v) {
      Sum const* const from = view.right + m->right + v * m->columns;
      Sum* const to = view.direction + m->right + v * m->columns;
      double others = 0;  // than 0
      for (std::size_t k = threadIdx.x; !forgets && k < m->columns; k += block_threads) others += from[k] == 0 ? 0 : 1;
      const bool anew = block_sum(others) == 0;
      for (std::size_t k = threadIdx.x; k < m->columns; k += block_threads)
        to[k] = anew ? low_rank::anywhere<Sum>(*m, v, k) : from[k];
    });
  }
}

template <class Gradient, class Sum>
void launch_low_rank_begin(on where, low_rank_view<Sum> const& view, low_rank_piece const* pieces, std::size_t count,
                           Gradient const* gradients, double loss_scale, double const* mine) {
  launch<&low_rank_take<Gradient, Sum>>(where, blocks_for(where, view.elements, block_threads), block_threads, view, pieces,
                                        count, gradients, static_cast<Sum>(loss_scale));
  launch<&low_rank_project<Sum>>(where, blocks_for(where, view.rows, block_warps), block_threads, view, mine);
}
template <class Sum>
void launch_low_rank_turn(on where, low_rank_view<Sum> const& view, double const* mine) {
  launch<&low_rank_orthonormalize<Sum>>(where, blocks_for(where, view.count, 1), block_threads, view);
  launch<&low_rank_project_back<Sum>>(where, blocks_for(where, view.columns, warp_lanes), block_threads, view, mine);
}
template <class Sum>
void launch_low_rank_write(on where, low_rank_view<Sum> const& view, low_rank_piece const* pieces, std::size_t count, Sum* out,
                           std::size_t size, bool add) {
  if (!add && size != 0) check_cuda(cudaMemsetAsync(out, 0, size * sizeof *out, where.stream), "cudaMemsetAsync");
  if (count == 0) return;
  launch<&low_rank_add<Sum>>(where, blocks_for(where, size, block_threads), block_threads, view, pieces, count, out);
}
/// `skip` null: all is forgotten.
template <class Sum>
void launch_low_rank_end(on where, low_rank_view<Sum> const& view, double loss_scale, double const* mine, double const* all,
                         bool const* skip) {
  launch<&low_rank_keep<Sum>>(where, blocks_for(where, view.elements, block_threads), block_threads, view, loss_scale, mine, all,
                              skip);
  launch<&low_rank_point<Sum>>(where, blocks_for(where, view.count, 1), block_threads, view, all, skip);
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
