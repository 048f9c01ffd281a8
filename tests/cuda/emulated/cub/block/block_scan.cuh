// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <numeric>

#include <cuda_runtime.h>

namespace cub {

/// As CUB's, it leaves its storage without a barrier. What a thread gets lies where another one brings its number next,
/// so that a barrier that is missing shows.
template <class T, int Threads>
class BlockScan {
 public:
  struct TempStorage {
    T numbers[Threads], all;
  };
  explicit BlockScan(TempStorage& room) : room_(&room) {
    if (blockDim.x != Threads) emulated::refuse("a block of other threads than its cub::BlockScan");
  }
  void ExclusiveSum(T mine, T& before) const {
    T all;
    ExclusiveSum(mine, before, all);
  }
  /// `all`: the sum of all threads' numbers.
  void ExclusiveSum(T mine, T& before, T& all) const {
    room_->numbers[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      T sums[Threads];
      std::exclusive_scan(room_->numbers, room_->numbers + Threads, sums, T{});
      room_->all = sums[Threads - 1] + room_->numbers[Threads - 1];
      std::reverse_copy(sums, sums + Threads, room_->numbers);
    }
    __syncthreads();
    before = room_->numbers[Threads - 1 - threadIdx.x];
    all = room_->all;
  }

 private:
  TempStorage* room_;
};

}  // namespace cub
