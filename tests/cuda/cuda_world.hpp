// SPDX-License-Identifier: Apache-2.0
// Ranks are threads that share one GPU (or its stand-in, emulated/cuda_runtime_api.h); memory is such that the host can
// use it too.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include <acco/acco.hpp>
#include <acco/cuda/threads.hpp>

namespace worlds {

/// cuda_storage in managed memory, computing on the default stream.
template <class Parameter, class Gradient = Parameter,
          class Master = std::conditional_t<std::is_same_v<Parameter, double>, double, float>>
struct managed_storage : acco::cuda_storage<Parameter, Gradient, Master> {
  managed_storage() {
    static acco::cuda_managed_memory resource;
    this->memory = &resource;
  }
  static void settle() { acco::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); }
};

/// Memory for the arrays of tests.
template <class T>
struct managed_allocator {
  using value_type = T;
  managed_allocator() = default;
  template <class U>
  managed_allocator(managed_allocator<U> const&) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] T* allocate(std::size_t count) const {
    return static_cast<T*>(acco::cuda_managed_memory().allocate(count * sizeof(T), nullptr));
  }
  void deallocate(T* memory, std::size_t count) const noexcept {
    acco::cuda_managed_memory().deallocate(memory, count * sizeof(T), nullptr);
  }
  friend bool operator==(managed_allocator, managed_allocator) { return true; }
};
template <class T>
using managed_array = std::vector<T, managed_allocator<T>>;

struct cuda {
  static constexpr char const* name = "threads over device memory";
  static constexpr int most_ranks = 4;
  static constexpr bool rounds_otherwise = true;
  template <class... T>
  using storage = managed_storage<T...>;
  template <class T>
  using array = managed_array<T>;
  static acco::cuda_queue queue(acco::threads_backend const& /*world*/) {
    return acco::cuda_queue(nullptr, {}, 0, acco::cuda_issue::thread);
  }
  using backend = acco::threads_backend;
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, function);
  }
};

}  // namespace worlds
