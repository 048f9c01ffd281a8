// SPDX-License-Identifier: Apache-2.0
// The kernels of CUDA storage: the loops of storage/elementwise.hpp, with threads for packs. What is computed per element is the
// same code (rules, decisions, conversions); here is only how memory is passed: 16 bytes an access, once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cub/device/device_reduce.cuh>
#include <cuda_runtime.h>

#include "acco/cuda/queue.hpp"
#include "acco/cuda/runtime.hpp"
#include "acco/cuda/warp.cuh"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/update_table.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr unsigned block_threads = 256;
inline constexpr std::size_t most_ranks = 64;  ///< that meet in one process

/// `Lanes` neighbours, moved by accesses of 16 bytes where they are that long.
template <class T, std::size_t Lanes>
struct alignas(sizeof(T) * Lanes < 16 ? sizeof(T) * Lanes : 16) lanes {
  T value[Lanes];
};
/// How many neighbours a thread takes, so that the narrowest of the types fills 16 bytes.
template <class... T>
inline constexpr std::size_t lanes_of = 16 / std::min({sizeof(T)...});

/// Calls body(first element, Lanes or 1 as a constant) so that every element of `count` is visited once.
template <std::size_t Lanes, class Body>
__global__ void __launch_bounds__(block_threads) for_lanes(std::size_t count, Body body) {
  const std::size_t i = (static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * Lanes;
  if (i + Lanes <= count) {
    body(i, std::integral_constant<std::size_t, Lanes>{});
  } else {
    for (std::size_t k = i; k < count; ++k) body(k, std::integral_constant<std::size_t, 1>{});
  }
}
/// Launches it with `Lanes` neighbours a thread where all arrays begin at a multiple of 16 bytes, else one by one.
template <std::size_t Lanes, class Body, std::size_t Arrays>
void launch(cudaStream_t stream, std::size_t count, Body const& body, std::array<void const*, Arrays> const& arrays) {
  if (count == 0) return;
  const auto go = [&](auto width) {
    constexpr std::size_t n = decltype(width)::value;
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(static_cast<unsigned>(((count + n - 1) / n + block_threads - 1) / block_threads));
    shape.blockDim = dim3(block_threads);
    shape.stream = stream;
    check_cuda(cudaLaunchKernelEx(&shape, for_lanes<n, Body>, count, body), "cudaLaunchKernelEx");
  };
  bool straight = true;
  for (void const* each : arrays) straight = straight && reinterpret_cast<std::uintptr_t>(each) % 16 == 0;
  straight ? go(std::integral_constant<std::size_t, Lanes>{}) : go(std::integral_constant<std::size_t, 1>{});
}

/// Calls body(first element, Lanes or 1 as a constant, region) for the elements of a block of the table, one thread block each:
/// neighbours of `Lanes` from the first multiple of `Lanes` on.
template <std::size_t Lanes, class Body>
__global__ void __launch_bounds__(block_threads) for_table(update_block const* blocks, Body body) {
  const update_block mine = blocks[blockIdx.x];
  const std::size_t begin = mine.begin, end = begin + mine.count;
  const std::size_t aligned = (begin + Lanes - 1) / Lanes * Lanes;
  const std::size_t head = aligned < end ? aligned : end;
  const std::size_t tail = head + (end - head) / Lanes * Lanes;
  constexpr std::integral_constant<std::size_t, 1> one;
  for (std::size_t i = begin + threadIdx.x; i < head; i += blockDim.x) body(i, one, mine.region);
  for (std::size_t i = head + threadIdx.x * Lanes; i < tail; i += blockDim.x * Lanes)
    body(i, std::integral_constant<std::size_t, Lanes>{}, mine.region);
  for (std::size_t i = tail + threadIdx.x; i < end; i += blockDim.x) body(i, one, mine.region);
}
template <std::size_t Lanes, class Body, std::size_t Arrays>
void launch_table(cudaStream_t stream, update_block const* blocks, std::size_t count, Body const& body,
                  std::array<void const*, Arrays> const& arrays) {
  if (count == 0) return;
  const auto go = [&](auto width) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(static_cast<unsigned>(count));
    shape.blockDim = dim3(block_threads);
    shape.stream = stream;
    check_cuda(cudaLaunchKernelEx(&shape, for_table<decltype(width)::value, Body>, blocks, body), "cudaLaunchKernelEx");
  };
  bool straight = true;
  for (void const* each : arrays) straight = straight && reinterpret_cast<std::uintptr_t>(each) % 16 == 0;
  straight ? go(std::integral_constant<std::size_t, Lanes>{}) : go(std::integral_constant<std::size_t, 1>{});
}

template <std::size_t Lanes, class T>
__device__ lanes<T, Lanes> load(T const* from) {
  return *reinterpret_cast<lanes<T, Lanes> const*>(from);
}
template <std::size_t Lanes, class T>
__device__ void store(T* to, lanes<T, Lanes> const& values) {
  *reinterpret_cast<lanes<T, Lanes>*>(to) = values;
}

/// One thread: a step of a round.
template <class Step>
__global__ void one_step(Step step) {
  (void)step();
}
template <class Step>
void launch_one(cudaStream_t stream, Step const& step) {
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3(1);
  shape.blockDim = dim3(1);
  shape.stream = stream;
  check_cuda(cudaLaunchKernelEx(&shape, one_step<Step>, step), "cudaLaunchKernelEx");
}

template <class From, class To, bool add>
struct convert_body {
  From const* from;
  To* to;
  template <class N>
  __device__ void operator()(std::size_t i, N) const {
    using total = elementwise::wider<From, To>;
    constexpr std::size_t n = N::value;
    const auto in = load<n>(from + i);
    lanes<To, n> out{};
    if constexpr (add) out = load<n>(static_cast<To const*>(to) + i);
    for (std::size_t k = 0; k < n; ++k) {
      total x = static_cast<total>(in.value[k]);
      if constexpr (add) x = static_cast<total>(out.value[k]) + x;
      out.value[k] = static_cast<To>(x);
    }
    store<n>(to + i, out);
  }
};

/// Works that are seldom wanted: few threads look at the flag, and walk through the array where it is set.
template <class Body>
__global__ void __launch_bounds__(block_threads) for_all_if(bool const* wanted, std::size_t count, Body body) {
  if (!*wanted) return;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) body(i);
}
template <class Body>
void launch_if(cudaStream_t stream, bool const* wanted, std::size_t count, Body const& body) {
  if (count == 0) return;
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3(static_cast<unsigned>(std::min((count + block_threads - 1) / block_threads, std::size_t{1024})));
  shape.blockDim = dim3(block_threads);
  shape.stream = stream;
  check_cuda(cudaLaunchKernelEx(&shape, for_all_if<Body>, wanted, count, body), "cudaLaunchKernelEx");
}

template <class T>
struct clear_body {
  T* to;
  __device__ void operator()(std::size_t i) const { to[i] = T(0.0F); }
};

template <class T>
struct find_body {
  T const* from;
  unsigned long long *found, *first;
  __device__ void operator()(std::size_t i) const {
    if (is_finite(from[i])) return;
    atomicAdd(found, 1ULL);
    atomicMin(first, static_cast<unsigned long long>(i));
  }
};

/// One warp a block of the table: the sum of its squares.
template <class T>
__global__ void __launch_bounds__(warp_lanes) squares_of_table(update_block const* blocks, T const* slice, double* results) {
  const update_block mine = blocks[blockIdx.x];
  const double sum = warp_sum(threadIdx.x, [&](unsigned lane) {
    double squares = 0;
    for (std::size_t i = lane; i < mine.count; i += warp_lanes) {
      const auto x = static_cast<double>(slice[mine.begin + i]);
      squares += x * x;
    }
    return squares;
  });
  if (threadIdx.x == 0) results[blockIdx.x] = sum;
}
template <class T>
void launch_squares(cudaStream_t stream, update_block const* blocks, std::size_t count, T const* slice, double* results) {
  if (count == 0) return;
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3(static_cast<unsigned>(count));
  shape.blockDim = dim3(warp_lanes);
  shape.stream = stream;
  check_cuda(cudaLaunchKernelEx(&shape, squares_of_table<T>, blocks, slice, results), "cudaLaunchKernelEx");
}

template <class Master>
struct average_body {
  bool const* wanted;
  Master const* from;
  Master* to;
  double keep;
  template <class N>
  __device__ void operator()(std::size_t i, N) const {
    if (!*wanted) return;
    constexpr std::size_t n = N::value;
    const auto in = load<n>(from + i);
    auto out = load<n>(static_cast<Master const*>(to) + i);
    for (std::size_t k = 0; k < n; ++k) out.value[k] = Master(keep) * out.value[k] + Master(1 - keep) * in.value[k];
    store<n>(to + i, out);
  }
};

/// The update of one rank's slice: unscale, clip, rule and conversion in one pass.
template <class Rule, update kind, class Master, class Sum, class Parameter>
struct update_body {
  update_table<Rule, Master, Sum> a;
  Parameter* to;
  template <class N>
  __device__ void operator()(std::size_t i, N, std::uint32_t region) const {
    constexpr std::size_t n = N::value, slot_count = Rule::slot_count;
    auto parameter = load<n>(static_cast<Master const*>(a.master) + i);
    lanes<Parameter, n> out;
    const region_update decided = a.decided[region];
    if (decided.wanted) {
      const auto factor = static_cast<Master>(decided.scale);
      const rule_constants<Rule> constants = a.now[region];
      const auto gradient = load<n>(a.gradient + i);
      std::array<lanes<Master, n>, slot_count> slots;
      for (std::size_t s = 0; s < slot_count; ++s) slots[s] = load<n>(static_cast<Master const*>(a.slots[s]) + i);
      for (std::size_t k = 0; k < n; ++k) {
        std::array<Master, slot_count> mine;
        for (std::size_t s = 0; s < slot_count; ++s) mine[s] = slots[s].value[k];
        Master p = parameter.value[k];
        const Master g = static_cast<Master>(gradient.value[k]) * factor;
        Rule::apply(p, g, mine, constants);
        parameter.value[k] = p;
        for (std::size_t s = 0; s < slot_count; ++s) slots[s].value[k] = mine[s];
        if constexpr (kind == update::commit_and_predict) Rule::apply(p, g, mine, a.next[region]);
        out.value[k] = static_cast<Parameter>(p);
      }
      if constexpr (kind != update::predict) {
        store<n>(a.master + i, parameter);
        for (std::size_t s = 0; s < slot_count; ++s) store<n>(a.slots[s] + i, slots[s]);
      }
    } else {
      for (std::size_t k = 0; k < n; ++k) out.value[k] = static_cast<Parameter>(parameter.value[k]);
    }
    store<n>(to + i, out);
  }
};

/// out = (or +=) the sum over `sources` of what lies at source[k] + offset, in that order.
template <class From, class To, bool add>
struct sum_body {
  std::array<void const*, most_ranks> sources;
  int count;
  std::size_t offset;
  To* to;
  template <class N>
  __device__ void operator()(std::size_t i, N) const {
    using total = elementwise::wider<From, To>;
    constexpr std::size_t n = N::value;
    total sums[n] = {};
    for (int source = 0; source < count; ++source) {
      const auto in = load<n>(static_cast<From const*>(sources[static_cast<std::size_t>(source)]) + offset + i);
      for (std::size_t k = 0; k < n; ++k)
        sums[k] = source == 0 ? static_cast<total>(in.value[k]) : sums[k] + static_cast<total>(in.value[k]);
    }
    lanes<To, n> out{};
    if constexpr (add) out = load<n>(static_cast<To const*>(to) + i);
    for (std::size_t k = 0; k < n; ++k)
      out.value[k] = static_cast<To>(add ? static_cast<total>(out.value[k]) + sums[k] : sums[k]);
    store<n>(to + i, out);
  }
};

struct square {
  template <class T>
  __host__ __device__ double operator()(T const& x) const {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};
struct plus {
  __host__ __device__ double operator()(double a, double b) const { return a + b; }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
