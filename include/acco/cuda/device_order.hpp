// SPDX-License-Identifier: Apache-2.0
// One order for the collectives of all communicators on a GPU: kernels that wait for other ranks must not wait for each other.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include <cuda_runtime_api.h>

#include "acco/cuda/runtime.hpp"
#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A GPU's, in this process. What is issued through it runs on the GPU in the order in which the host issues it, whichever
/// streams it is for. So it is in one order on all ranks where their hosts issue in one order: the trainers call their optimizers
/// in the same order, and no part of a step is longer on one rank than on another. Any thread.
class device_order {
 public:
  /// Of the calling thread's GPU.
  [[nodiscard]] static std::shared_ptr<device_order> of_this_device() {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<device_order>> all;
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    const std::lock_guard lock(mutex);
    std::shared_ptr<device_order> found = all[device].lock();
    if (!found) all[device] = found = std::make_shared<device_order>();
    return found;
  }

  /// `call` enqueues on `stream` what belongs to `who`: it runs after what others have issued before.
  template <class Call>
  void issue(void const* who, cudaStream_t stream, Call&& call) {
    const std::lock_guard lock(mutex_);
    if (last_ != nullptr && last_ != who) end_.hold(stream);
    call();
    end_.record(stream);
    last_ = who;
  }

  /// An optimizer that will issue through it joins the others; `same_everywhere`: the trainer's thread issues, after as many
  /// micro-batches on every rank. Throws `usage_error` where the ranks' orders could differ, alike on all ranks; then it has not
  /// joined.
  void join(bool same_everywhere, error_place where) {
    const std::lock_guard lock(mutex_);
    if (optimizers_ != 0 && (!same_everywhere || elastic_ != 0)) {
      throw usage_error(
          where,
          text("several optimizers use NCCL on one GPU, and the order of their collectives could differ from rank to rank"),
          text("Give all of them fixed_pace or auto_pace, and none acco::debug"));
    }
    ++optimizers_;
    elastic_ += same_everywhere ? 0 : 1;
  }
  void leave(bool same_everywhere) noexcept {
    const std::lock_guard lock(mutex_);
    --optimizers_;
    elastic_ -= same_everywhere ? 0 : 1;
  }

 private:
  std::mutex mutex_;
  cuda_event end_;
  void const* last_ = nullptr;
  std::size_t optimizers_ = 0, elastic_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE
