// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA runtime on the host, so that the logic of CUDA storage (what is enqueued where, in which order, and who
// waits for whom) can be tested, and watched by sanitizers, without a GPU. Streams are threads, device memory is host memory full
// of NaN, a kernel is a loop over its threads. It proves nothing about real kernels' speed, or about memory on a real device.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#define __CUDACC__ 1
#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)

enum cudaError_t {
  cudaSuccess,
  cudaErrorMemoryAllocation,
  cudaErrorNotReady,
  cudaErrorNoDevice,
  cudaErrorInsufficientDriver,
  cudaErrorPeerAccessAlreadyEnabled,
  cudaErrorLaunchFailure
};
inline char const* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "out of memory" : "emulated";
}
inline char const* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorEmulated";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

namespace emulated {
using clock = std::chrono::steady_clock;

/// Lets one call of the runtime fail, and, where `sticky`, all after it, as after a kernel that has broken the context. What
/// takes something back does so all the same.
struct fault {
  std::mutex mutex;
  long calls = 0, strikes_at = -1;  // -1: never
  bool sticky = false;
  cudaError_t with = cudaErrorLaunchFailure;
  char const* struck = "";  // the call that failed first

  /// What this call is to return instead of doing its work.
  cudaError_t next(char const* call) {
    const std::lock_guard lock(mutex);
    const long now = calls++;
    if (strikes_at < 0 || now < strikes_at || (now > strikes_at && !sticky)) return cudaSuccess;
    if (now == strikes_at) struck = call;
    return with;
  }
  /// Of calls that are made as often as somebody looks: they are not counted, and fail after others only.
  cudaError_t later() {
    const std::lock_guard lock(mutex);
    return sticky && strikes_at >= 0 && calls > strikes_at ? with : cudaSuccess;
  }
  void arm(long at, bool for_ever, cudaError_t code) {
    const std::lock_guard lock(mutex);
    calls = 0;
    strikes_at = at;
    sticky = for_ever;
    with = code;
    struck = "";
  }
};
inline fault& faults() {
  static fault all;
  return all;
}
/// Streams, events, buffers of device and of pinned memory that exist.
inline std::atomic<long>& live_objects() {
  static std::atomic<long> count = 0;
  return count;
}

/// What an event holds of its last record: shared, so that recording it again does not change what others wait for.
struct mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  clock::time_point at{};
  void reach() {
    {
      const std::lock_guard lock(mutex);
      done = true;
      at = clock::now();
    }
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
  bool reached() {
    const std::lock_guard lock(mutex);
    return done;
  }
};

/// Works of a stream, in order, on a thread; late, so that whoever forgets to wait is found out.
class stream {
 public:
  stream() : thread_([this] { work(); }) { ++live_objects(); }
  ~stream() {
    --live_objects();
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void enqueue(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  std::shared_ptr<mark> record() {
    auto here = std::make_shared<mark>();
    enqueue([here] { here->reach(); });
    return here;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (unsigned k = 0;; ++k) {
      changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (k % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(30));
      task();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};
struct event {
  std::shared_ptr<mark> last = std::make_shared<mark>();
  event() {
    last->done = true;
    ++live_objects();
  }
  ~event() { --live_objects(); }
  event(event const&) = delete;
};
inline std::size_t& bytes_in_use() {
  static std::size_t bytes = 0;
  return bytes;
}
inline std::mutex& memory_mutex() {
  static std::mutex mutex;
  return mutex;
}
inline void* allocate(std::size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  bytes_in_use() += bytes;
  ++live_objects();
  auto* const memory = static_cast<std::size_t*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256));
  *memory = bytes;
  std::memset(memory + 32, 0xff, bytes);
  return memory + 32;
}
inline void deallocate(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(memory_mutex());
  auto* const head = static_cast<std::size_t*>(memory) - 32;
  bytes_in_use() -= *head;
  --live_objects();
  std::free(head);
}
}  // namespace emulated

using cudaStream_t = emulated::stream*;
using cudaEvent_t = emulated::event*;
namespace emulated {
inline stream& of(cudaStream_t which) {
  static stream legacy;
  return which != nullptr ? *which : legacy;
}
}  // namespace emulated

enum {
  cudaStreamNonBlocking = 1,
  cudaEventDefault = 0,
  cudaEventDisableTiming = 2,
  cudaMemAttachGlobal = 1,
  cudaHostAllocMapped = 2,
  cudaHostAllocPortable = 1
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault };

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* to, unsigned, int) {
  if (const cudaError_t failed = emulated::faults().next("cudaStreamCreateWithPriority")) return failed;
  *to = new emulated::stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t which) {
  const cudaError_t failed = emulated::faults().next("cudaStreamDestroy");
  delete which;
  return failed;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t which) {
  const cudaError_t failed = emulated::faults().next("cudaStreamSynchronize");
  emulated::of(which).record()->wait();
  return failed;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* to, unsigned) {
  if (const cudaError_t failed = emulated::faults().next("cudaEventCreateWithFlags")) return failed;
  *to = new emulated::event;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t which) {
  const cudaError_t failed = emulated::faults().next("cudaEventDestroy");
  delete which;
  return failed;
}
inline cudaError_t cudaEventRecord(cudaEvent_t which, cudaStream_t on) {
  if (const cudaError_t failed = emulated::faults().next("cudaEventRecord")) return failed;
  which->last = emulated::of(on).record();
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t which) {
  if (const cudaError_t failed = emulated::faults().later()) return failed;
  return which->last->reached() ? cudaSuccess : cudaErrorNotReady;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (const cudaError_t failed = emulated::faults().next("cudaEventElapsedTime")) return failed;
  *milliseconds = std::chrono::duration<float, std::milli>(to->last->at - from->last->at).count();
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t which, cudaEvent_t what, unsigned) {
  if (const cudaError_t failed = emulated::faults().next("cudaStreamWaitEvent")) return failed;
  emulated::of(which).enqueue([last = what->last] { last->wait(); });
  return cudaSuccess;
}
inline cudaError_t cudaMallocAsync(void** to, std::size_t bytes, cudaStream_t) {
  if (const cudaError_t failed = emulated::faults().next("cudaMallocAsync")) return failed;
  *to = emulated::allocate(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t on) {
  const cudaError_t failed = emulated::faults().next("cudaFreeAsync");
  emulated::of(on).enqueue([memory] { emulated::deallocate(memory); });
  return failed;
}
template <class T>
cudaError_t cudaMallocManaged(T** to, std::size_t bytes, unsigned) {
  if (const cudaError_t failed = emulated::faults().next("cudaMallocManaged")) return failed;
  *to = emulated::allocate(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  const cudaError_t failed = emulated::faults().next("cudaFree");
  emulated::deallocate(memory);
  return failed;
}
inline cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  if (const cudaError_t failed = emulated::faults().next("cudaHostAlloc")) return failed;
  *to = std::malloc(bytes);
  ++emulated::live_objects();
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* memory) {
  const cudaError_t failed = emulated::faults().next("cudaFreeHost");
  if (memory != nullptr) --emulated::live_objects();
  std::free(memory);
  return failed;
}
inline cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t on) {
  if (const cudaError_t failed = emulated::faults().next("cudaMemcpyAsync")) return failed;
  emulated::of(on).enqueue([=] {
    if (bytes != 0) std::memcpy(to, from, bytes);  // CUDA takes null with no bytes, memcpy does not
  });
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t on) {
  if (const cudaError_t failed = emulated::faults().next("cudaMemsetAsync")) return failed;
  emulated::of(on).enqueue([=] {
    if (bytes != 0) std::memset(to, value, bytes);
  });
  return cudaSuccess;
}
inline cudaError_t cudaLaunchHostFunc(cudaStream_t on, void (*function)(void*), void* data) {
  if (const cudaError_t failed = emulated::faults().next("cudaLaunchHostFunc")) return failed;
  emulated::of(on).enqueue([=] { function(data); });
  return cudaSuccess;
}
namespace emulated {
inline thread_local int current_device = 0;  // memory and streams are of none
}
inline cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t failed = emulated::faults().next("cudaGetDevice")) return failed;
  *device = emulated::current_device;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t failed = emulated::faults().next("cudaSetDevice")) return failed;
  emulated::current_device = device;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
enum cudaMemoryType { cudaMemoryTypeDevice };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* to, void const*) {
  *to = {cudaMemoryTypeDevice, 0};
  return cudaSuccess;
}
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
using cudaMemPool_t = void*;
enum { cudaMemLocationTypeDevice, cudaMemAccessFlagsProtReadWrite };
struct cudaMemLocation {
  int type;
  int id;
};
struct cudaMemAccessDesc {
  cudaMemLocation location;
  int flags;
};
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) { return cudaSuccess; }
inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, cudaMemAccessDesc const*, std::size_t) { return cudaSuccess; }

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1) : x(a) {}
};
inline thread_local dim3 blockIdx, threadIdx, blockDim, gridDim;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (const cudaError_t failed = emulated::faults().next("cudaLaunchKernelEx")) return failed;
  emulated::of(shape->stream)
      .enqueue([kernel, blocks = shape->gridDim.x, threads = shape->blockDim.x, ... values = Parameters(arguments)] {
        blockDim = dim3(threads);
        gridDim = dim3(blocks);
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
          for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(values...);
        }
      });
  return cudaSuccess;
}
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
template <class T>
T atomicMin(T* to, T value) {
  const T before = *to;
  if (value < before) *to = value;
  return before;
}
