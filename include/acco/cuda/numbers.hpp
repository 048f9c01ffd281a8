// SPDX-License-Identifier: Apache-2.0
// A few numbers that the host and kernels share.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cuda_runtime_api.h>

#include "acco/cuda/memory.hpp"
#include "acco/cuda/queue.hpp"
#include "acco/cuda/runtime.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A few numbers that the trainer's thread and kernels both use: pinned host memory, and a copy on the device.
template <class T>
class cuda_numbers {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  cuda_numbers() = default;
  template <class Storage>
  cuda_numbers(Storage const& storage, std::size_t count)
      : count_(count), here_(count * sizeof(T)), there_(storage.memory, storage.computation, count * sizeof(T)) {
    for (std::size_t i = 0; i < count; ++i) here_.template as<T>()[i] = T{};
    check_cuda(cudaMemcpyAsync(there_.template as<T>(), here_.template as<T>(), count * sizeof(T), cudaMemcpyHostToDevice,
                               storage.computation),
               "cudaMemcpyAsync");
    // the host may write them from now on
    check_cuda(cudaStreamSynchronize(storage.computation), "cudaStreamSynchronize");
  }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return here_.template as<T>()[i]; }
  [[nodiscard]] T const& operator[](std::size_t i) const noexcept { return here_.template as<T>()[i]; }
  /// Where kernels find them.
  [[nodiscard]] T* there(std::size_t i = 0) noexcept { return there_.template as<T>() + i; }
  [[nodiscard]] T const* there(std::size_t i = 0) const noexcept { return there_.template as<T>() + i; }
  void upload(cuda_queue& queue) const {
    queue.issue([to = there_.template as<T>(), from = here_.template as<T>(), bytes = count_ * sizeof(T)](cudaStream_t stream) {
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    });
  }
  void download(cuda_queue& queue) const {
    queue.issue([to = here_.template as<T>(), from = there_.template as<T>(), bytes = count_ * sizeof(T)](cudaStream_t stream) {
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    });
  }

 private:
  std::size_t count_ = 0;
  pinned_buffer here_;
  cuda_buffer there_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
