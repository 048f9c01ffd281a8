// SPDX-License-Identifier: Apache-2.0
// Where device memory comes from: one replaceable resource.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>

#include "acco/cuda/runtime.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Gives and takes device memory in the order of a stream. Derive from it to use a pool of your own; at least 256 bytes
/// aligned.
class cuda_memory_resource {
 public:
  cuda_memory_resource() = default;
  cuda_memory_resource(cuda_memory_resource const&) = delete;
  cuda_memory_resource& operator=(cuda_memory_resource const&) = delete;
  virtual ~cuda_memory_resource() = default;
  [[nodiscard]] virtual void* allocate(std::size_t bytes, cudaStream_t stream) = 0;
  virtual void deallocate(void* memory, std::size_t bytes, cudaStream_t stream) noexcept = 0;
};

/// The runtime's own pool: cudaMallocAsync.
class cuda_stream_ordered_memory : public cuda_memory_resource {
 public:
  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t stream) override {
    void* memory = nullptr;
    check_cuda(cudaMallocAsync(&memory, bytes, stream), "cudaMallocAsync");
    return memory;
  }
  void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept override { (void)cudaFreeAsync(memory, stream); }
};

/// cudaMallocManaged: memory that host code can read and write too, for tests and debugging.
class cuda_managed_memory : public cuda_memory_resource {
 public:
  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t) override {
    void* memory = nullptr;
    check_cuda(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
    return memory;
  }
  void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept override {
    (void)cudaStreamSynchronize(stream);
    (void)cudaFree(memory);
  }
};

/// The resource that `cuda_storage` uses unless it is given another.
inline cuda_memory_resource* default_cuda_memory() {
  static cuda_stream_ordered_memory resource;
  return &resource;
}

/// A range of device memory; freed with the object, in the order of its stream.
class cuda_buffer {
 public:
  static constexpr std::size_t alignment = 256;

  cuda_buffer() = default;
  cuda_buffer(cuda_memory_resource* resource, cudaStream_t stream, std::size_t bytes)
      : resource_(resource), stream_(stream), memory_(bytes != 0 ? resource->allocate(bytes, stream) : nullptr), bytes_(bytes) {}
  cuda_buffer(cuda_buffer&& other) noexcept
      : resource_(other.resource_),
        stream_(other.stream_),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  cuda_buffer& operator=(cuda_buffer&& other) noexcept {
    std::swap(resource_, other.resource_);
    std::swap(stream_, other.stream_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  cuda_buffer(cuda_buffer const&) = delete;
  cuda_buffer& operator=(cuda_buffer const&) = delete;
  ~cuda_buffer() {
    if (memory_ != nullptr) resource_->deallocate(memory_, bytes_, stream_);
  }

  /// The memory as an array of trivial T.
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<T*>(memory_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  cuda_memory_resource* resource_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Host memory that a GPU reads and writes without a detour; freed with the object.
class pinned_buffer {
 public:
  pinned_buffer() = default;
  explicit pinned_buffer(std::size_t bytes) {
    check_cuda(cudaHostAlloc(&memory_, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  }
  pinned_buffer(pinned_buffer&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  pinned_buffer(pinned_buffer const&) = delete;
  pinned_buffer& operator=(pinned_buffer const&) = delete;
  ~pinned_buffer() {
    if (memory_ != nullptr) (void)cudaFreeHost(memory_);
  }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace ACCO_SIMD_NAMESPACE
