// SPDX-License-Identifier: Apache-2.0
// What the programs of bench/cuda share: words on the command line, figures as lines of JSON, and the time of launches.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cub/device/device_for.cuh>

#include <acco/acco.hpp>
#include <acco/cuda.hpp>

namespace bench {

using acco::check_cuda;

#if defined(ACCO_STAND_IN)
inline constexpr bool stand_in = true;  // kernels are loops on the host: sizes are tiny, times mean nothing
#else
inline constexpr bool stand_in = false;
#endif

/// `--name value` and `--name`.
class arguments {
 public:
  arguments(int count, char** words) : words_(words + 1, words + count) {}
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != words_.end(); }
  [[nodiscard]] std::string text(std::string_view name, std::string otherwise) const {
    const auto at = find(name);
    return at != words_.end() && at + 1 != words_.end() ? *(at + 1) : std::move(otherwise);
  }
  [[nodiscard]] double number(std::string_view name, double otherwise) const {
    const std::string word = text(name, "");
    return word.empty() ? otherwise : std::strtod(word.c_str(), nullptr);
  }

 private:
  [[nodiscard]] std::vector<std::string>::const_iterator find(std::string_view name) const {
    return std::find(words_.begin(), words_.end(), name);
  }
  std::vector<std::string> words_;
};

/// One measurement: a JSON object on a line of its own, which everything.py gathers.
class figure {
 public:
  explicit figure(std::string_view kind) { with("figure", kind); }
  figure& with(std::string_view name, std::string_view value) {
    std::string quoted = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return put(name, quoted + "\"");
  }
  figure& with(std::string_view name, char const* value) { return with(name, std::string_view(value)); }
  figure& with(std::string_view name, bool value) { return put(name, value ? "true" : "false"); }
  template <class T>
    requires std::is_arithmetic_v<T>
  figure& with(std::string_view name, T value) {
    if constexpr (std::is_integral_v<T>) return put(name, std::to_string(value));
    char digits[40] = "null";  // JSON has no infinity
    if (std::isfinite(static_cast<double>(value))) std::snprintf(digits, sizeof digits, "%.6g", static_cast<double>(value));
    return put(name, digits);
  }
  void print() const {
    std::printf("{%s}\n", line_.c_str());
    std::fflush(stdout);
  }

 private:
  figure& put(std::string_view name, std::string const& value) {
    if (!line_.empty()) line_ += ", ";
    line_.append("\"").append(name).append("\": ").append(value);
    return *this;
  }
  std::string line_;
};

/// How many GPUs this process sees; says so where there is none.
inline int gpus() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  std::printf("skipped: no GPU: %s\n", code != cudaSuccess ? cudaGetErrorString(code) : "cudaGetDeviceCount found none");
  return 0;
}

/// body(i) for all i < count.
template <class Body>
void launch(cudaStream_t stream, std::size_t count, Body const& body) {
  check_cuda(cub::DeviceFor::Bulk(count, body, stream), "cub::DeviceFor::Bulk");
}
template <class Body>
__global__ void by_one_thread(Body body) {
  body();
}
template <class Body>
void launch_one(cudaStream_t stream, Body const& body) {
  cudaLaunchConfig_t shape{};
  shape.blockDim = dim3(1);
  shape.gridDim = dim3(1);
  shape.stream = stream;
  check_cuda(cudaLaunchKernelEx(&shape, by_one_thread<Body>, body), "cudaLaunchKernelEx");
}

/// Takes so long on the GPU's own clock, and one thread of it: multiprocessors do not run at the clock that the driver
/// tells.
struct spin {
  std::uint64_t nanoseconds;
  __device__ void operator()() const {
    const std::uint64_t begin = acco::cuda_kernels::global_nanoseconds();
    while (acco::cuda_kernels::global_nanoseconds() - begin < nanoseconds) {
    }
  }
};
/// Notes the GPU's clock.
struct note_time {
  std::uint64_t* to;
  __device__ void operator()() const { *to = acco::cuda_kernels::global_nanoseconds(); }
};

/// Finite numbers of the size of gradients, of either sign.
template <class T>
struct fill {
  T* to;
  __device__ void operator()(std::size_t i) const {
    const auto mixed = static_cast<std::uint32_t>(i * 2654435761U >> 8U) & 0xffffU;
    to[i] = T((static_cast<float>(mixed) - 32768.0F) * 1e-7F);
  }
};
template <class T>
struct set_all {
  T* to;
  float value;
  __device__ void operator()(std::size_t i) const { to[i] = T(value); }
};

/// Seconds of one launch: median, least and most of some batches.
struct timing {
  double median = 0, least = 0, most = 0;
};

/// As many ones in device memory: what a training begins with.
template <class T>
acco::cuda_buffer ones(cudaStream_t stream, std::size_t count) {
  acco::cuda_buffer values(acco::default_cuda_memory(), stream, count * sizeof(T));
  launch(stream, count, set_all<T>{values.as<T>(), 1.0F});
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return values;
}

/// Set where each work is wanted once, and no time: under compute-sanitizer, or a profiler.
inline bool once_only = false;

/// Times works that are `enqueue(k)`-d one after another on the queue's stream, the k-th of a batch. A kernel that
/// spins goes first, so that all of the batch is enqueued when its first event is reached: the time of a launch on the
/// host is not in it.
template <class Enqueue>
timing time_launches(acco::cuda_queue& queue, Enqueue&& enqueue) {
  acco::cuda_event begin{true}, end{true};
  const auto batch = [&](std::size_t launches) {
    const std::uint64_t held = stand_in ? 20'000 : 100'000 + 10'000 * launches;
    queue.issue([&](cudaStream_t stream) {
      launch_one(stream, spin{held});
      begin.record(stream);
    });
    for (std::size_t k = 0; k < launches; ++k) enqueue(k);
    queue.issue([&](cudaStream_t stream) { end.record(stream); });
    queue.wait();
    return acco::cuda_clock::between(begin, end) / static_cast<double>(launches);
  };
  const double first = batch(1);  // loads the code
  if (once_only) return {first, first, first};
  const double once = std::max(batch(2), 1e-7);
  constexpr double batch_seconds = stand_in ? 1e-5 : 2e-3;
  const auto launches = static_cast<std::size_t>(std::clamp(batch_seconds / once, 2.0, 100.0));
  std::vector<double> all;
  for (int k = 0; k < (stand_in ? 3 : 7); ++k) all.push_back(batch(launches));
  std::sort(all.begin(), all.end());
  return {all[all.size() / 2], all.front(), all.back()};
}

/// What is enqueued on a queue's streams or a trainer's ends here.
inline void settle(cudaStream_t stream) { check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

inline std::size_t free_bytes() {
  std::size_t free = 0, all = 0;
  check_cuda(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return free;
}
inline int attribute(cudaDeviceAttr which) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, 0), "cudaDeviceGetAttribute");
  return value;
}

inline char const* name_of(float const*) { return "float"; }
inline char const* name_of(acco::bfloat16 const*) { return "bfloat16"; }
template <class T>
char const* type_name() {
  return name_of(static_cast<T const*>(nullptr));
}

}  // namespace bench
