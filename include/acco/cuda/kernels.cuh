// SPDX-License-Identifier: Apache-2.0
// The kernels of CUDA storage: the loops of storage/elementwise.hpp, with warps for packs. What is computed per element
// is the same code (rules, decisions, conversions); here is only how memory is passed: tiles (cuda/tile.cuh), each
// value once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cub/block/block_reduce.cuh>
#include <cuda/functional>
#include <cuda_runtime.h>

#include "acco/cuda/launch.cuh"
#include "acco/cuda/tile.cuh"
#include "acco/number/digest.hpp"
#include "acco/number/finite.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/update_table.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr std::size_t most_ranks = 64;  ///< that meet in one process

template <class From, class To, bool add>
struct convert_body {
  From const* from;
  To* to;
  template <class At>
  __device__ void operator()(At at) const {
    using total = elementwise::wider<From, To>;
    const auto in = at.load(from);
    lanes<To, At::count> out{};
    if constexpr (add) out = at.load(static_cast<To const*>(to));
#pragma unroll
    for (std::size_t k = 0; k < At::count; ++k) {
      total x = static_cast<total>(in.value[k]);
      if constexpr (add) x = static_cast<total>(out.value[k]) + x;
      out.value[k] = static_cast<To>(x);
    }
    at.store(to, out);
  }
};

template <class From, class To>
struct edit_body {
  From const* from;
  To* to;
  template <class At>
  __device__ void operator()(At at) const {
    using total = elementwise::wider<From, To>;
    const auto in = at.load(from);
    auto out = at.load(static_cast<To const*>(to));
#pragma unroll
    for (std::size_t k = 0; k < At::count; ++k) {
      const total wanted = static_cast<total>(in.value[k]);
      const From shown = static_cast<From>(static_cast<total>(out.value[k]));
      if (!(static_cast<total>(shown) == wanted)) out.value[k] = static_cast<To>(wanted);
    }
    at.store(to, out);
  }
};

/// Works that are seldom wanted: few threads look at the flag, and walk through the array where it is set.
inline std::size_t seldom(std::size_t count) { return std::min<std::size_t>(count / (block_warps * tile_size) + 1, 1024); }

template <class T>
__global__ void __launch_bounds__(block_threads) clear_where_wanted(bool const* wanted, std::size_t count, unsigned head, T* to) {
  if (!*wanted) return;
  walk(tiling(0, count, head), [&](auto at) { at.store(to, lanes<T, decltype(at)::count>{}); });
}

template <class T>
void launch_clear(on where, bool const* wanted, T* to, std::size_t count) {
  launch<&clear_where_wanted<T>>(where, where.blocks(seldom(count)), block_threads, wanted, count, head_of({to}), to);
}

/// How many numbers are not finite, and the first of them: a lane's, then, together, all lanes'.
struct not_finite {
  unsigned long long found = 0, first = ~0ULL;

  template <class T>
  __device__ void look(T x, unsigned long long index) {
    if (is_finite(x)) return;
    ++found;
    first = index < first ? index : first;
  }
  /// All lanes of a warp: one of them notes it.
  __device__ void note(unsigned long long* all, unsigned long long* first_of_all) const {
    if (__ballot_sync(whole_warp, found != 0) == 0) return;
    const unsigned long long together = over_warp<unsigned long long>().Sum(found);
    const unsigned long long earliest = over_warp<unsigned long long>().Reduce(first, cuda::minimum<>{});
    if (threadIdx.x % warp_lanes != 0) return;
    atomicAdd(all, together);
    atomicMin(first_of_all, earliest);
  }
};
template <class T>
__global__ void __launch_bounds__(block_threads)
    find_where_wanted(bool const* wanted, std::size_t count, unsigned head, T const* from, unsigned long long* found,
                      unsigned long long* first) {
  if (!*wanted) return;
  not_finite mine;
  walk(tiling(0, count, head), [&](auto at) {
    const auto x = at.load(from);
    for (unsigned k = 0; k < at.count; ++k) mine.look(x.value[k], at.index(k));
  });
  mine.note(found, first);
}

template <class T>
void launch_find(on where, bool const* wanted, T const* from, std::size_t count, unsigned long long* found,
                 unsigned long long* first) {
  launch<&find_where_wanted<T>>(where, where.blocks(seldom(count)), block_threads, wanted, count, head_of({from}), from, found,
                                first);
}

/// *sum += the digest of the array: a sum of whole numbers, the same in any order.
template <class T>
__global__ void __launch_bounds__(block_threads)
    digest_elements(std::size_t count, unsigned head, T const* from, digest_key key, unsigned long long* sum) {
  unsigned long long mine = 0;
  walk(tiling(0, count, head), [&](auto at) {
    const auto x = at.load(from);
    for (unsigned k = 0; k < at.count; ++k) mine += digest_part(x.value[k], key(at.index(k)));
  });
  const unsigned long long together = over_warp<unsigned long long>().Sum(mine);
  if (threadIdx.x % warp_lanes == 0) atomicAdd(sum, together);
}

template <class T>
void launch_digest(on where, T const* from, std::size_t count, digest_key key, unsigned long long* sum) {
  launch<&digest_elements<T>>(where, where.blocks(seldom(count)), block_threads, count, head_of({from}), from, key, sum);
}

/// The elements of block k of the table, or, without a table, of the k-th 4096 of `count`.
__device__ inline update_block block_of(update_block const* blocks, std::size_t k, std::size_t count) {
  if (blocks != nullptr) return blocks[k];
  const std::size_t begin = k * update_block::most;
  return {begin, static_cast<std::uint32_t>(count - begin < update_block::most ? count - begin : update_block::most), 0};
}

/// A warp a block: the sum of the squares that step.finish(at, step.load(at)) gives. Several loads are on their way at
/// a time. (Not cub::DeviceReduce: it adds in another order on another GPU.)
template <class Step>
__global__ void __launch_bounds__(block_threads) squares_by_block(update_block const* table, std::size_t blocks,
                                                                  std::size_t count, unsigned head, Step step, double* results) {
  const unsigned lane = threadIdx.x % warp_lanes;
  const std::size_t warps = static_cast<std::size_t>(gridDim.x) * block_warps;
  for (std::size_t b = static_cast<std::size_t>(blockIdx.x) * block_warps + threadIdx.x / warp_lanes; b < blocks; b += warps) {
    const update_block mine = block_of(table, b, count);
    const tiling cut(mine.begin, mine.begin + mine.count, head);
    double squares = 0;
    const auto tile = [&](std::size_t k) { return whole_tile{cut.first + k * tile_size, lane}; };
    std::size_t k = 0;
    for (constexpr std::size_t ahead = 4; k + ahead <= cut.tiles; k += ahead) {
      decltype(step.load(tile(0))) loaded[ahead];
#pragma unroll
      for (std::size_t j = 0; j < ahead; ++j) loaded[j] = step.load(tile(k + j));
#pragma unroll
      for (std::size_t j = 0; j < ahead; ++j) squares += step.finish(tile(k + j), loaded[j]);
    }
    for (; k < cut.tiles; ++k) squares += step.finish(tile(k), step.load(tile(k)));
    for (k = lane; k < cut.left(); k += warp_lanes) squares += step.finish(cut.left(k), step.load(cut.left(k)));
    squares = over_warp<double>().Sum(squares);
    if (lane == 0) results[b] = squares;
  }
}
template <class T>
struct square_step {
  T const* slice;
  template <class At>
  __device__ auto load(At at) const {
    return at.load(slice);
  }
  template <class At>
  __device__ double finish(At, lanes<T, At::count> const& in) const {
    double squares = 0;
    for (T const& each : in.value) squares += static_cast<double>(each) * static_cast<double>(each);
    return squares;
  }
};
/// The same of sums that are converted, or added, on the way.
template <class From, class To, bool add>
struct take_step {
  From const* from;
  To* to;
  template <class At>
  __device__ auto load(At at) const {
    lanes<To, At::count> x{};
    if constexpr (add) x = at.load(static_cast<To const*>(to));
    const auto in = at.load(from);
    for (std::size_t k = 0; k < At::count; ++k)
      x.value[k] = add ? x.value[k] + static_cast<To>(in.value[k]) : static_cast<To>(in.value[k]);
    return x;
  }
  template <class At>
  __device__ double finish(At at, lanes<To, At::count> const& x) const {
    at.store(to, x);
    return square_step<To>{to}.finish(at, x);
  }
};
template <class Step>
void launch_squares(on where, update_block const* table, std::size_t blocks, std::size_t count, Step const& step, double* results,
                    std::initializer_list<array_place> arrays) {
  if (blocks == 0) return;
  launch<&squares_by_block<Step>>(where, where.blocks((blocks + block_warps - 1) / block_warps), block_threads, table, blocks,
                                  count, head_of(arrays), step, results);
}

/// A thread block a region: sums[r] = the sum of the squares of its blocks; without a table, of all.
template <unsigned Threads>
__global__ void __launch_bounds__(Threads) add_squares_by_region(double* sums, std::size_t regions, double const* of_blocks,
                                                                 update_block const* table, std::size_t blocks) {
  using all_threads = cub::BlockReduce<double, Threads>;
  __shared__ typename all_threads::TempStorage room;
  for (std::size_t region = blockIdx.x; region < regions; region += gridDim.x) {
    double sum = 0;
    for (std::size_t k = threadIdx.x; k < blocks; k += Threads) {
      if (table == nullptr || table[k].region == region) sum += of_blocks[k];
    }
    sum = all_threads(room).Sum(sum);
    if (threadIdx.x == 0) sums[region] = sum;
    __syncthreads();  // the next region's sums come to the same place
  }
}
inline void launch_add_squares(on where, double* sums, std::size_t regions, double const* of_blocks, update_block const* table,
                               std::size_t blocks) {
  launch<&add_squares_by_region<block_threads>>(where, where.blocks(regions), block_threads, sums, regions, of_blocks, table,
                                                blocks);
}

template <class Master>
struct average_body {
  bool const* wanted;
  Master const* from;
  Master* to;
  double keep;
  template <class At>
  __device__ void operator()(At at) const {
    const auto in = at.load(from);
    auto out = at.load(static_cast<Master const*>(to));
    if (!*wanted) return;
#pragma unroll
    for (std::size_t k = 0; k < At::count; ++k) out.value[k] = Master(keep) * out.value[k] + Master(1 - keep) * in.value[k];
    at.store(to, out);
  }
};

/// As in elementwise::combine.
template <class A, class B, class To>
struct combine_body {
  combination const* how;
  A const* a;
  B const* b;
  To* to;
  template <class At>
  __device__ void operator()(At at) const {
    using total = elementwise::wider<elementwise::wider<A, B>, To>;
    const auto x = at.load(a);
    const auto y = at.load(b);
    if (!how->wanted) return;
    const auto first = static_cast<total>(how->first), second = static_cast<total>(how->second);
    lanes<To, At::count> out{};
#pragma unroll
    for (std::size_t k = 0; k < At::count; ++k)
      out.value[k] = static_cast<To>(first * static_cast<total>(x.value[k]) + second * static_cast<total>(y.value[k]));
    at.store(to, out);
  }
};

/// The update of one rank's slice: unscale, clip, rule and conversion in one pass. Nothing is asked before all is on
/// its way; where no update is wanted, what was computed is not kept.
template <class Rule, update kind, class Master, class Sum, class Parameter>
struct update_body {
  update_table<Rule, Master, Sum> a;
  Parameter* to;
  template <class At>
  __device__ void operator()(At at, std::uint32_t region) const {
    constexpr std::size_t n = At::count, slot_count = Rule::slot_count;
    auto parameter = at.load(static_cast<Master const*>(a.master));
    const auto gradient = at.load(a.gradient);
    std::array<lanes<Master, n>, slot_count> slots;
#pragma unroll
    for (std::size_t s = 0; s < slot_count; ++s) slots[s] = at.load(static_cast<Master const*>(a.slots[s]));
    const region_update decided = a.decided[region];
    const rule_constants<Rule> constants = a.now[region];
    const auto factor = static_cast<Master>(decided.scale);
    lanes<Parameter, n> out;
#pragma unroll
    for (std::size_t k = 0; k < n; ++k) {
      std::array<Master, slot_count> mine;
#pragma unroll
      for (std::size_t s = 0; s < slot_count; ++s) mine[s] = slots[s].value[k];
      const Master before = parameter.value[k];
      Master p = before;
      const Master g = static_cast<Master>(gradient.value[k]) * factor;
      Rule::apply(p, g, mine, constants);
      parameter.value[k] = p;
#pragma unroll
      for (std::size_t s = 0; s < slot_count; ++s) slots[s].value[k] = mine[s];
      if constexpr (kind == update::commit_and_predict) Rule::apply(p, g, mine, a.next[region]);
      if constexpr (kind == update::commit_and_show) {
        p = Rule::show(before, p, mine, constants);
        for (std::size_t s = 0; s < slot_count; ++s) slots[s].value[k] = mine[s];
      }
      out.value[k] = static_cast<Parameter>(decided.wanted ? p : before);
    }
    if constexpr (kind != update::predict) {
      if (decided.wanted) {
        at.store(a.master, parameter);
#pragma unroll
        for (std::size_t s = 0; s < slot_count; ++s) at.store(a.slots[s], slots[s]);
      } else if constexpr (remembers_moves<Rule>) {
        at.store(a.slots[Rule::moved_slot], lanes<Master, n>{});
      }
    }
    at.store(to, out);
  }
};
/// A thread block a block of the table: body(whole_tile or one_element, region).
template <class Body>
__global__ void __launch_bounds__(block_threads)
    for_table(update_block const* table, std::size_t blocks, unsigned head, Body body) {
  const unsigned lane = threadIdx.x % warp_lanes;
  for (std::size_t b = blockIdx.x; b < blocks; b += gridDim.x) {
    const update_block mine = table[b];
    const tiling cut(mine.begin, mine.begin + mine.count, head);
    for (std::size_t k = threadIdx.x / warp_lanes; k < cut.tiles; k += block_warps)
      body(whole_tile{cut.first + k * tile_size, lane}, mine.region);
    for (std::size_t k = threadIdx.x; k < cut.left(); k += block_threads) body(cut.left(k), mine.region);
  }
}
template <class Body>
void launch_table(on where, update_block const* table, std::size_t blocks, unsigned head, Body const& body) {
  if (blocks != 0) launch<&for_table<Body>>(where, where.blocks(blocks), block_threads, table, blocks, head, body);
}

/// out = (or +=) the sum over `sources` of what lies at source[k] + offset, in that order.
template <class From, class To, bool add>
struct sum_body {
  std::array<void const*, most_ranks> sources;
  int count;
  std::size_t offset;
  To* to;
  template <class At>
  __device__ void operator()(At at) const {
    using total = elementwise::wider<From, To>;
    total sums[At::count] = {};
    for (int source = 0; source < count; ++source) {
      const auto in = at.load(static_cast<From const*>(sources[static_cast<std::size_t>(source)]) + offset);
#pragma unroll
      for (std::size_t k = 0; k < At::count; ++k)
        sums[k] = source == 0 ? static_cast<total>(in.value[k]) : sums[k] + static_cast<total>(in.value[k]);
    }
    lanes<To, At::count> out{};
    if constexpr (add) out = at.load(static_cast<To const*>(to));
#pragma unroll
    for (std::size_t k = 0; k < At::count; ++k)
      out.value[k] = static_cast<To>(add ? static_cast<total>(out.value[k]) + sums[k] : sums[k]);
    at.store(to, out);
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
