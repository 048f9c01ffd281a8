// SPDX-License-Identifier: Apache-2.0
// Device memory that NCCL knows.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "acco/cuda/memory.hpp"
#include "acco/cuda/nccl.hpp"
#include "acco/cuda/nccl_communicator.hpp"
#include "acco/error.hpp"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
namespace ACCO_SIMD_NAMESPACE {

/// Device memory that is registered with a communicator as symmetric: NCCL then copies less. Collective: every rank
/// allocates the same sizes in the same order, as optimizers do that are constructed alike; an allocation gives up at
/// the backend's deadline, and ends its communicator. Registered with that of the optimizer that was initialised last
/// over this backend, the one that allocates; where there is none, with the backend's own. Give it to
/// `cuda_storage::memory`.
class nccl_symmetric_memory : public cuda_memory_resource {
 public:
  explicit nccl_symmetric_memory(nccl_backend const& over) : over_(over.shared()) {}

  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t) override {
    auto window = std::make_unique<registration>();  // NCCL writes into it, late
    window->with = over_->twin();
    if (!window->with) window->with = over_;
    const error_place where{window->with->rank(), -1, "initialize"};
    check_nccl(ncclMemAlloc(&window->memory, bytes), "ncclMemAlloc", where);
    try {
      window->with->use(
          [&](ncclComm_t with) {
            return ncclCommWindowRegister(with, window->memory, bytes, &window->handle, NCCL_WIN_COLL_SYMMETRIC);
          },
          "ncclCommWindowRegister", where, window->with->deadline(),
          "Check that every rank is alive and has the memory: they allocate together");
      const std::lock_guard lock(mutex_);
      windows_.push_back(std::move(window));
      return windows_.back()->memory;
    } catch (...) {
      if (window) (void)ncclMemFree(window->memory);
      throw;
    }
  }
  void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept override {
    (void)cudaStreamSynchronize(stream);
    const std::unique_ptr<registration> window = take(memory);
    if (window) window->with->forget(window->handle);
    (void)ncclMemFree(memory);
  }

 private:
  struct registration {
    std::shared_ptr<nccl_communicator> with;
    void* memory = nullptr;
    ncclWindow_t handle = nullptr;
  };
  [[nodiscard]] std::unique_ptr<registration> take(void* memory) noexcept {
    const std::lock_guard lock(mutex_);
    for (std::unique_ptr<registration>& each : windows_) {
      if (each->memory != memory) continue;
      std::swap(each, windows_.back());
      std::unique_ptr<registration> found = std::move(windows_.back());
      windows_.pop_back();
      return found;
    }
    return nullptr;
  }

  std::shared_ptr<nccl_communicator> over_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<registration>> windows_;
};

}  // namespace ACCO_SIMD_NAMESPACE
#endif
