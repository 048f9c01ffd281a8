// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cub/warp/warp_reduce.cuh"

namespace cub {

/// Thread 0 gets the result. As CUB's, it leaves its storage without a barrier.
template <class T, int Threads>
class BlockReduce {
  static_assert(Threads % 32 == 0, "the stand-in reduces over whole warps");

 public:
  struct TempStorage {
    T of_warps[Threads / 32];
  };
  explicit BlockReduce(TempStorage& room) : room_(&room) {
    if (blockDim.x != Threads) emulated::refuse("a block of other threads than its cub::BlockReduce");
  }
  T Sum(T mine) const { return Reduce(mine, std::plus<>()); }
  template <class Combine>
  T Reduce(T mine, Combine combine) const {
    typename WarpReduce<T>::TempStorage none;
    T all = WarpReduce<T>(none).Reduce(mine, combine);
    if (threadIdx.x % 32 == 0) room_->of_warps[threadIdx.x / 32] = all;
    __syncthreads();
    if (threadIdx.x != 0) return emulated::nobodys<T>();
    for (int warp = 1; warp < Threads / 32; ++warp) all = combine(all, room_->of_warps[warp]);
    return all;
  }

 private:
  TempStorage* room_;
};

}  // namespace cub
