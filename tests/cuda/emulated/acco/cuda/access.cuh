// SPDX-License-Identifier: Apache-2.0
// The stand-in's accesses: an address that is no multiple of what is read at once ends the program, as it ends a
// kernel; and a test can ask who touched what, and how widely.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <source_location>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "acco/version.hpp"

namespace emulated {

/// One thread's access: `site` and `turn` are alike for the lanes that make it together.
struct touch {
  unsigned block, thread, site, turn;
  std::uintptr_t address;
  std::size_t bytes;
  bool writes;
};
/// What kernels touch while somebody listens.
class touches {
 public:
  static touches& all() {
    static touches one;
    return one;
  }
  void listen() {
    const std::lock_guard lock(mutex_);
    list_.clear();
    turns_.clear();
    listening_ = true;
  }
  [[nodiscard]] std::vector<touch> heard() {
    const std::lock_guard lock(mutex_);
    listening_ = false;
    return std::move(list_);
  }
  void add(void const* at, std::size_t bytes, bool writes, unsigned site) {
    if (!listening_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    const unsigned turn = turns_[{blockIdx.x, threadIdx.x, site}]++;
    list_.push_back({blockIdx.x, threadIdx.x, site, turn, reinterpret_cast<std::uintptr_t>(at), bytes, writes});
  }

 private:
  std::mutex mutex_;
  std::vector<touch> list_;
  std::map<std::array<unsigned, 3>, unsigned> turns_;
  std::atomic<bool> listening_ = false;
};
inline void touched(void const* at, std::size_t bytes, bool writes, unsigned site) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0) refuse("an access at an address that is no multiple of its size");
  touches::all().add(at, bytes, writes, site);
}

}  // namespace emulated

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

template <class T, std::size_t Count>
struct alignas(sizeof(T) * Count < 16 ? sizeof(T) * Count : 16) lanes {
  T value[Count];
};

template <std::size_t Count, class T>
lanes<T, Count> load(T const* from, std::source_location where = std::source_location::current()) {
  static_assert(sizeof(lanes<T, Count>) <= 16);
  emulated::touched(from, sizeof(lanes<T, Count>), false, where.line());
  return *reinterpret_cast<lanes<T, Count> const*>(from);
}
template <std::size_t Count, class T>
void store(T* to, lanes<T, Count> const& values, std::source_location where = std::source_location::current()) {
  static_assert(sizeof(lanes<T, Count>) <= 16);
  emulated::touched(to, sizeof(lanes<T, Count>), true, where.line());
  *reinterpret_cast<lanes<T, Count>*>(to) = values;
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
