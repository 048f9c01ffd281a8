// SPDX-License-Identifier: Apache-2.0
// What the decorators `debug` and `rate_limited` need on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "acco/clock.hpp"
#include "acco/collective/around/debug.hpp"
#include "acco/collective/around/rate_limited.hpp"
#include "acco/cuda/memory.hpp"
#include "acco/cuda/pause.hpp"
#include "acco/cuda/queue.hpp"
#include "acco/cuda/runtime.hpp"
#if defined(__CUDACC__)
#include "acco/cuda/kernels.cuh"
#include "acco/cuda/time.cuh"
#endif

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The queue's thread, which issues the tasks, waits for every check; so what is not alike is never called.
template <>
struct call_check_memory<cuda_queue> {
  pinned_buffer here{2 * sizeof(call_numbers)};
  cuda_buffer there;
  cuda_event begun, ended;

  explicit call_check_memory(cuda_queue& queue) : there(default_cuda_memory(), queue.computation(), 2 * sizeof(call_numbers)) {
    queue.after_computation();  // tasks come behind the allocation
  }

  template <class Backend>
  void check(cuda_queue& queue, Backend& backend, collective_call const& call) {
    queue.issue([this, call](cudaStream_t stream) {
      *here.as<call_numbers>() = call_numbers(call);
      check_cuda(cudaMemcpyAsync(there.as<std::byte>(), here.as<std::byte>(), sizeof(call_numbers), cudaMemcpyDefault, stream),
                 "cudaMemcpyAsync");
      begun.record(stream);
    });
    constexpr std::size_t count = 2 * call_numbers::digits;
    auto* const numbers = there.as<double>();
    backend.all_reduce(queue, partial<double const>({numbers, count}), replicated<double>({numbers + count, count}));
    queue.issue([this, call, &queue, ranks = backend.size(), rank = backend.rank()](cudaStream_t stream) {
      call_numbers& sums = here.as<call_numbers>()[1];
      check_cuda(cudaMemcpyAsync(&sums, there.as<call_numbers>() + 1, sizeof sums, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
      ended.record(stream);
      error_place where = queue.place;
      where.rank = rank;
      wait(queue, where);
      require_alike(sums, call, ranks, where);
    });
  }

 private:
  /// Nobody is late before this rank's stream has come here.
  void wait(cuda_queue& queue, error_place const& where) const {
    double from = steady_seconds();
    bool came = false;
    for (pause rest; !ended.passed(); rest()) {
      if (!came) {
        came = begun.passed();
        from = steady_seconds();
      }
      cuda_watch const& watch = queue.watch();
      if (watch.look != nullptr) watch.look(watch.context, where, steady_seconds() - from, queue.deadline);
    }
  }
};

#if defined(__CUDACC__)
namespace cuda_kernels {
/// Nanoseconds on the GPU's clock.
struct note_time {
  std::uint64_t* to;
  __device__ void operator()() const { *to = global_nanoseconds(); }
};
struct sleep_from {
  std::uint64_t const* begun;
  std::uint64_t nanoseconds;
  __device__ void operator()() const {
    while (global_nanoseconds() - *begun < nanoseconds) nap();
  }
};
}  // namespace cuda_kernels

/// One thread of the GPU waits, in the order of the stream.
template <>
struct delay<cuda_queue> {
  cuda_buffer begun;
  explicit delay(cuda_queue& queue) : begun(default_cuda_memory(), queue.computation(), sizeof(std::uint64_t)) {
    queue.after_computation();
  }
  void begin(cuda_queue& queue) { run(queue, cuda_kernels::note_time{begun.as<std::uint64_t>()}); }
  void end(cuda_queue& queue, double seconds) {
    run(queue, cuda_kernels::sleep_from{begun.as<std::uint64_t>(), static_cast<std::uint64_t>(seconds * 1e9)});
  }

 private:
  template <class Step>
  static void run(cuda_queue& queue, Step step) {
    queue.issue([step](cudaStream_t stream) { cuda_kernels::launch_one({stream}, step); });
  }
};
#endif

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
