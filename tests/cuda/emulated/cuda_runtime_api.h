// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA runtime on the host, so that the logic of CUDA storage (what is enqueued where, in which
// order, and who waits for whom) can be tested, and watched by sanitizers, without a GPU. Streams are threads, device
// memory is host memory full of NaN, a kernel's threads run one after the other, and wait for each other where it says
// so (block.hpp). It proves nothing about real kernels' speed, or about memory on a real device.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "block.hpp"

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
  cudaErrorLaunchFailure,
  cudaErrorInvalidConfiguration
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

inline thread_local int current_device = 0;  // memory and streams are of none

/// Lets one call of the runtime fail, and, where `sticky`, all after it, as after a kernel that has broken the context.
/// What takes something back does so all the same, and what waits waits.
struct fault {
  std::mutex mutex;
  long calls = 0, strikes_at = -1;  // -1: never
  bool sticky = false;
  int device = -1;  // only calls for this one count, and fail; -1: all
  cudaError_t with = cudaErrorLaunchFailure;
  char const* struck = "";  // the call that failed first

  /// What this call is to return instead of doing its work.
  cudaError_t next(char const* call) {
    const std::lock_guard lock(mutex);
    if (device >= 0 && device != current_device) return cudaSuccess;
    const long now = calls++;
    if (strikes_at < 0 || now < strikes_at || (now > strikes_at && !sticky)) return cudaSuccess;
    if (now == strikes_at) struck = call;
    return with;
  }
  /// Of calls that are made as often as somebody looks: they are not counted, and fail after others only.
  cudaError_t later() {
    const std::lock_guard lock(mutex);
    if (device >= 0 && device != current_device) return cudaSuccess;
    return sticky && strikes_at >= 0 && calls > strikes_at ? with : cudaSuccess;
  }
  void arm(long at, bool for_ever, cudaError_t code, int on = -1) {
    const std::lock_guard lock(mutex);
    device = on;
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

/// How late streams run: another number gives another interleaving of them, within what events allow; 0: the usual one.
inline std::atomic<unsigned>& weather() {
  static std::atomic<unsigned> seed = 0;
  return seed;
}

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
      dawdle(k);
      task();
      lock.lock();
    }
  }
  void dawdle(unsigned turn) {
    const unsigned seed = weather().load(std::memory_order_relaxed);
    if (seed == 0) {
      if (turn % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(30));
      return;
    }
    state_ = (state_ + seed + turn) * 2862933555777941757ULL + 3037000493ULL;
    const auto drawn = static_cast<unsigned>(state_ >> 40U);
    if (drawn % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn / 4 % (drawn % 64 == 0 ? 2000 : 200)));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::uint64_t state_ = reinterpret_cast<std::uintptr_t>(this);
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
/// In front of an allocation its size lies, behind it a guard, which nobody may touch: the address sanitizer sees who
/// does, and whoever writes there is found when the memory is given back.
inline constexpr std::size_t front_bytes = 256, guard_bytes = 64;
inline constexpr unsigned char guard_value = 0xa5;
inline void* allocate(std::size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  bytes_in_use() += bytes;
  ++live_objects();
  auto* const front = static_cast<unsigned char*>(std::aligned_alloc(256, (front_bytes + bytes + guard_bytes + 255) / 256 * 256));
  std::memcpy(front, &bytes, sizeof bytes);
  std::memset(front + front_bytes, 0xff, bytes);
  std::memset(front + front_bytes + bytes, guard_value, guard_bytes);
#if defined(ACCO_STAND_IN_ASAN)
  __asan_poison_memory_region(front + front_bytes + bytes, guard_bytes);
#endif
  return front + front_bytes;
}
inline void deallocate(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(memory_mutex());
  auto* const front = static_cast<unsigned char*>(memory) - front_bytes;
  std::size_t bytes = 0;
  std::memcpy(&bytes, front, sizeof bytes);
  unsigned char* const guard = front + front_bytes + bytes;
#if defined(ACCO_STAND_IN_ASAN)
  __asan_unpoison_memory_region(guard, guard_bytes);
#endif
  for (std::size_t k = 0; k < guard_bytes; ++k) {
    if (guard[k] != guard_value) refuse("memory was written behind its end");
  }
  bytes_in_use() -= bytes;
  --live_objects();
  std::free(front);
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
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* to, unsigned, int) {
  if (const cudaError_t failed = emulated::faults().next("cudaStreamCreateWithPriority")) return failed;
  *to = new emulated::stream;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  if (const cudaError_t failed = emulated::faults().next("cudaDeviceGetStreamPriorityRange")) return failed;
  *lowest = 0;
  *highest = -5;
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
inline cudaError_t cudaEventSynchronize(cudaEvent_t which) {
  const cudaError_t failed = emulated::faults().next("cudaEventSynchronize");
  which->last->wait();
  return failed;
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
inline cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t failed = emulated::faults().next("cudaGetDevice")) return failed;
  *device = emulated::current_device;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  emulated::current_device = device;
  return emulated::faults().next("cudaSetDevice");
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
  if (const cudaError_t failed = emulated::faults().next("cudaPointerGetAttributes")) return failed;
  *to = {cudaMemoryTypeDevice, 0};
  return cudaSuccess;
}
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  if (const cudaError_t failed = emulated::faults().next("cudaDeviceCanAccessPeer")) return failed;
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

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
namespace emulated {
/// What was launched: how many kernels, of how many blocks at most, and how many that nobody had loaded before.
struct launch_book {
  std::mutex mutex;
  std::set<void const*> loaded;
  unsigned long launches = 0, widest = 0, not_loaded = 0;
  void load(void const* kernel) {
    const std::lock_guard lock(mutex);
    loaded.insert(kernel);
  }
  void launch(void const* kernel, unsigned blocks) {
    const std::lock_guard lock(mutex);
    ++launches;
    widest = widest < blocks ? blocks : widest;
    not_loaded += loaded.count(kernel) == 0 ? 1U : 0U;
  }
  void clear() {
    const std::lock_guard lock(mutex);
    launches = widest = not_loaded = 0;
  }
};
inline launch_book& launches() {
  static launch_book one;
  return one;
}
}  // namespace emulated
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (const cudaError_t failed = emulated::faults().next("cudaLaunchKernelEx")) return failed;
  if (shape->gridDim.x == 0 || shape->blockDim.x == 0 || shape->blockDim.x > emulated::block_runner::most_threads)
    return cudaErrorInvalidConfiguration;
  emulated::launches().launch(reinterpret_cast<void const*>(kernel), shape->gridDim.x);
  emulated::of(shape->stream)
      .enqueue([kernel, blocks = shape->gridDim.x, threads = shape->blockDim.x, ... values = Parameters(arguments)] {
        const auto thread = [&] { kernel(values...); };
        const auto call = [](void const* which) { (*static_cast<decltype(thread) const*>(which))(); };
        emulated::block_runner::mine().run(blocks, threads, call, &thread);
      });
  return cudaSuccess;
}
struct cudaFuncAttributes {
  int numRegs;
};
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void const* kernel) {
  if (const cudaError_t failed = emulated::faults().next("cudaFuncGetAttributes")) return failed;
  emulated::launches().load(kernel);
  return cudaSuccess;
}
template <class T>
T atomicAdd(T* to, T value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicMin(T* to, T value) {
  T before = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (value < before && !__atomic_compare_exchange_n(to, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}

// What bench/cuda asks of a device beside that: no capture, a small cache, memory without end.

enum cudaDeviceAttr { cudaDevAttrL2CacheSize, cudaDevAttrMultiProcessorCount };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  *value = which == cudaDevAttrL2CacheSize ? 1 << 16 : 1;
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  *free = *all = std::size_t{1} << 30U;
  return cudaSuccess;
}
using cudaGraph_t = void*;
using cudaGraphExec_t = void*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaErrorLaunchFailure; }
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorLaunchFailure; }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) { return cudaErrorLaunchFailure; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorLaunchFailure; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
