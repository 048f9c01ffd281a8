// SPDX-License-Identifier: Apache-2.0
// What acco needs of the CUDA runtime, as owners with the runtime's own names; host compilers can include it.
#pragma once

#include <limits>
#include <utility>

#include <cuda_runtime_api.h>

#include "acco/error.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Throws `device_error` with the runtime's own words unless `code` is cudaSuccess.
inline void check_cuda(cudaError_t code, char const* call, error_place where = {}) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // so that the next call does not report this one again
  throw device_error(
      where, text(call, " failed: ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")"),
      code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver
          ? text("Check with nvidia-smi that this process sees a GPU and that the driver is recent enough")
      : code == cudaErrorMemoryAllocation
          ? text("optimizer::memory() tells how many bytes acco needs: free some, or use more ranks")
          : text("An earlier kernel may have caused it: run once with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer"));
}

/// Stands for the highest priority that the GPU has.
inline constexpr int highest_priority = std::numeric_limits<int>::min();

/// Owns a stream that does not wait for the default stream.
class cuda_stream {
 public:
  /// `priority`: as in cudaStreamCreateWithPriority; lower numbers go first.
  explicit cuda_stream(int priority = 0) {
    if (priority == highest_priority) {
      int lowest = 0;
      check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &priority), "cudaDeviceGetStreamPriorityRange");
    }
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "cudaStreamCreateWithPriority");
  }
  cuda_stream(cuda_stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  cuda_stream& operator=(cuda_stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  cuda_stream(cuda_stream const&) = delete;
  cuda_stream& operator=(cuda_stream const&) = delete;
  ~cuda_stream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Waits, when a scope is left however that comes, for what a stream still does with the scope's memory.
class cuda_drained {
 public:
  explicit cuda_drained(cudaStream_t stream) noexcept : stream_(stream) {}
  cuda_drained(cuda_drained const&) = delete;
  cuda_drained& operator=(cuda_drained const&) = delete;
  ~cuda_drained() { (void)cudaStreamSynchronize(stream_); }

 private:
  cudaStream_t stream_;
};

/// Owns an event; `timed` ones carry the time at which they were passed.
class cuda_event {
 public:
  explicit cuda_event(bool timed = false) {
    check_cuda(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  cuda_event(cuda_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  cuda_event& operator=(cuda_event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  cuda_event(cuda_event const&) = delete;
  cuda_event& operator=(cuda_event const&) = delete;
  ~cuda_event() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t on) const { check_cuda(cudaEventRecord(event_, on), "cudaEventRecord"); }
  /// What is enqueued on `stream` from now on waits for it.
  void hold(cudaStream_t stream) const { check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  /// Whether it was passed. Never blocks.
  [[nodiscard]] bool passed() const {
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) return false;
    check_cuda(code, "cudaEventQuery");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
