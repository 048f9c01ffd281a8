// SPDX-License-Identifier: Apache-2.0
// How kernels are launched, and loaded before that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include <cub/warp/warp_reduce.cuh>
#include <cuda/functional>
#include <cuda_runtime.h>

#include "acco/cuda/runtime.hpp"
#include "acco/cuda/tile.cuh"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr unsigned block_threads = 256, block_warps = block_threads / warp_lanes;

/// All kernels of the library that this program may launch: each enters itself before main. CUDA loads a kernel when it
/// is first launched, and may wait for the device then; in the midst of a round, for a collective that waits for this
/// rank. So all are loaded before the first round.
class kernel_list {
 public:
  static bool enter(void const* kernel) {
    const std::lock_guard lock(mutex());
    all().push_back(kernel);
    return true;
  }
  /// On the calling thread's GPU, what is not yet. Any thread.
  static void load() {
    static std::map<int, std::size_t> loaded;
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    const std::lock_guard lock(mutex());
    for (std::size_t& k = loaded[device]; k < all().size(); ++k) {
      cudaFuncAttributes unused{};
      check_cuda(cudaFuncGetAttributes(&unused, all()[k]), "cudaFuncGetAttributes");
    }
  }
  [[nodiscard]] static std::size_t size() {
    const std::lock_guard lock(mutex());
    return all().size();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<void const*>& all() {
    static std::vector<void const*> kernels;
    return kernels;
  }
};
template <auto Kernel>
inline bool const listed = kernel_list::enter(reinterpret_cast<void const*>(Kernel));

/// Where and how widely a kernel runs.
struct on {
  cudaStream_t stream;
  unsigned max_ctas = 0;  ///< most thread blocks, so most multiprocessors; 0: as many as there is work for

  /// For so many blocks of work.
  [[nodiscard]] unsigned blocks(std::size_t wanted) const {
    constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
    return static_cast<unsigned>(
        std::clamp<std::size_t>(wanted, 1, max_ctas != 0 ? std::min<std::size_t>(max_ctas, most) : most));
  }
};

template <auto Kernel, class... Arguments>
void launch(on where, unsigned blocks, unsigned threads, Arguments const&... arguments) {
  (void)listed<Kernel>;
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3(blocks);
  shape.blockDim = dim3(threads);
  shape.stream = where.stream;
  check_cuda(cudaLaunchKernelEx(&shape, Kernel, arguments...), "cudaLaunchKernelEx");
}

/// An array that a kernel touches: where element 0 would lie.
struct array_place {
  array_place() = default;
  template <class T>
  array_place(T* array) : address(reinterpret_cast<std::uintptr_t>(array)), size(sizeof(T)) {}
  std::uintptr_t address = 0;
  std::size_t size = 0;
};
/// The first element from which all arrays lie at multiples of 16 bytes, and then every eighth; tiling::no_tiles if
/// there is none.
inline unsigned head_of(std::span<array_place const> arrays) {
  for (unsigned head = 0; head < tiling::no_tiles; ++head) {
    const auto straight = [head](array_place const& each) { return (each.address + head * each.size) % 16 == 0; };
    if (std::all_of(arrays.begin(), arrays.end(), straight)) return head;
  }
  return tiling::no_tiles;
}
inline unsigned head_of(std::initializer_list<array_place> arrays) { return head_of({arrays.begin(), arrays.size()}); }

/// All threads of a grid: visit(whole_tile or one_element) for every element of the cut once, a warp a tile.
template <class Visit>
__device__ void walk(tiling const& cut, Visit&& visit) {
  const std::size_t warps = static_cast<std::size_t>(gridDim.x) * block_warps;
  const std::size_t thread = static_cast<std::size_t>(blockIdx.x) * block_threads + threadIdx.x;
  const unsigned lane = threadIdx.x % warp_lanes;
  for (std::size_t k = thread / warp_lanes; k < cut.tiles; k += warps) visit(whole_tile{cut.first + k * tile_size, lane});
  for (std::size_t k = thread; k < cut.left(); k += warps * warp_lanes) visit(cut.left(k));
}
/// Calls body(whole_tile or one_element) for every element of `count`.
template <class Body>
__global__ void __launch_bounds__(block_threads) for_elements(std::size_t count, unsigned head, Body body) {
  walk(tiling(0, count, head), body);
}
/// `head`: head_of the arrays.
template <class Body>
void launch_elements(on where, std::size_t count, Body const& body, unsigned head) {
  if (count == 0) return;
  const tiling cut(0, count, head);
  const std::size_t work =
      std::max((cut.tiles + block_warps - 1) / block_warps, (cut.left() + block_threads - 1) / block_threads);
  launch<&for_elements<Body>>(where, where.blocks(work), block_threads, count, head, body);
}

/// For all lanes of a warp, of which lane 0 gets the result; in the one order that CUB has for it. Of a whole warp CUB
/// keeps nothing in its room.
template <class T>
__device__ cub::WarpReduce<T> over_warp() {
  __shared__ typename cub::WarpReduce<T>::TempStorage rooms[block_warps];
  return cub::WarpReduce<T>(rooms[threadIdx.x / warp_lanes]);
}
/// The same, and all lanes get it: of what is the same in any order.
template <class T, class Combine>
__device__ T for_warp(T mine, Combine combine) {
  return __shfl_sync(whole_warp, over_warp<T>().Reduce(mine, combine), 0);
}
template <class T>
__device__ T warp_maximum(T mine) {
  return for_warp(mine, cuda::maximum<>{});
}
/// The sum, for all lanes, half upon half as the host adds (code/block_scale.hpp). (Not cub::WarpReduce: it begins with
/// neighbours.)
template <class T>
__device__ T warp_sum(T mine) {
#pragma unroll
  for (int apart = static_cast<int>(warp_lanes) / 2; apart > 0; apart /= 2) mine += __shfl_xor_sync(whole_warp, mine, apart);
  return mine;
}

/// One thread: a step of a round.
template <class Step>
__global__ void one_step(Step step) {
  (void)step();
}
template <class Step>
void launch_one(on where, Step const& step) {
  launch<&one_step<Step>>(where, 1, 1, step);
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
