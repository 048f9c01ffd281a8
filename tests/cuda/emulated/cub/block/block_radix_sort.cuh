// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

namespace cub {

struct NullType {};

/// Keys, and values that move with them: a thread holds neighbours. Stable. As CUB's, it leaves its storage without a
/// barrier; what a thread gets lies where another one brings its keys next, so that a barrier that is missing shows.
template <class Key, int Threads, int Items, class Value = NullType>
class BlockRadixSort {
  static_assert(std::is_unsigned_v<Key>, "the stand-in sorts keys whose order is that of their bits");
  static constexpr std::size_t count = std::size_t{Threads} * Items;

 public:
  struct TempStorage {
    Key keys[count];
    Value values[count];
  };
  explicit BlockRadixSort(TempStorage& room) : room_(&room) {
    if (blockDim.x != Threads) emulated::refuse("a block of other threads than its cub::BlockRadixSort");
  }
  void SortDescending(Key (&keys)[Items], int begin_bit = 0, int end_bit = 8 * sizeof(Key)) const {
    Value values[Items];
    SortDescending(keys, values, begin_bit, end_bit);
  }
  void SortDescending(Key (&keys)[Items], Value (&values)[Items], int begin_bit = 0, int end_bit = 8 * sizeof(Key)) const {
    const std::size_t first = std::size_t{threadIdx.x} * Items;
    std::copy_n(keys, Items, room_->keys + first);
    std::copy_n(values, Items, room_->values + first);
    __syncthreads();
    if (threadIdx.x == 0) sort(begin_bit, end_bit);
    __syncthreads();
    std::reverse_copy(room_->keys + count - first - Items, room_->keys + count - first, keys);
    std::reverse_copy(room_->values + count - first - Items, room_->values + count - first, values);
  }

 private:
  void sort(int begin_bit, int end_bit) const {
    const std::vector<Key> keys(room_->keys, room_->keys + count);
    const std::vector<Value> values(room_->values, room_->values + count);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const int above = static_cast<int>(8 * sizeof(Key)) - end_bit;
    const auto part = [&](std::size_t k) { return static_cast<Key>(static_cast<Key>(keys[k] << above) >> above >> begin_bit); };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return part(a) != part(b) ? part(a) > part(b) : a < b; });
    for (std::size_t k = 0; k < count; ++k) {
      room_->keys[count - 1 - k] = keys[order[k]];
      room_->values[count - 1 - k] = values[order[k]];
    }
  }
  TempStorage* room_;
};

}  // namespace cub
