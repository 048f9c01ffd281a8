// SPDX-License-Identifier: Apache-2.0
// Ranks are threads that share one GPU (or its stand-in, emulated/cuda_runtime_api.h); memory is such that the host can use it
// too.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <acco/acco.hpp>
#include <acco/collective/threads_cuda.hpp>

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

struct cuda {
  static constexpr char const* name = "threads over device memory";
  static constexpr int most_ranks = 4;
  static constexpr bool rounds_otherwise = true;
  template <class... T>
  using storage = managed_storage<T...>;
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, function);
  }
};

}  // namespace worlds
