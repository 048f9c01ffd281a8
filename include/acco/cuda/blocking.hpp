// SPDX-License-Identifier: Apache-2.0
// Collectives of a few numbers in host memory that return when they are done: they pass through the device.
#pragma once

#include <cstddef>
#include <span>

#include <cuda_runtime_api.h>

#include "acco/cuda/memory.hpp"
#include "acco/cuda/queue.hpp"
#include "acco/cuda/runtime.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/storage/scoped_buffer.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// On the trainer's stream.
template <class T>
void copy_with(cuda_queue& queue, T const* from, T* to, std::size_t count) {
  check_cuda(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, queue.computation()), "cudaMemcpyAsync",
             queue.place);
}
template <class Backend, class T>
void broadcast_and_wait(cuda_queue& queue, Backend& backend, std::span<T> whole, int root) {
  if (whole.empty()) return;
  const cuda_drained copied(queue.computation());
  const scoped_buffer<cuda_queue, cuda_buffer> there(queue,
                                                     cuda_buffer(default_cuda_memory(), queue.computation(), whole.size_bytes()));
  copy_with(queue, whole.data(), there.as<T>(), whole.size());
  queue.after_computation();
  backend.broadcast(queue, replicated<T>({there.as<T>(), whole.size()}), root);
  queue.wait();
  queue.before_computation();
  copy_with(queue, there.as<T>(), whole.data(), whole.size());
  check_cuda(cudaStreamSynchronize(queue.computation()), "cudaStreamSynchronize", queue.place);
}
template <class Backend>
void all_reduce_and_wait(cuda_queue& queue, Backend& backend, std::span<double const> in, std::span<double> out) {
  if (in.empty()) return;
  const cuda_drained copied(queue.computation());
  const scoped_buffer<cuda_queue, cuda_buffer> there(
      queue, cuda_buffer(default_cuda_memory(), queue.computation(), 2 * in.size_bytes()));
  double* const sums = there.as<double>() + in.size();
  copy_with(queue, in.data(), there.as<double>(), in.size());
  queue.after_computation();
  backend.all_reduce(queue, partial<double const>({there.as<double>(), in.size()}), replicated<double>({sums, in.size()}));
  queue.wait();
  queue.before_computation();
  copy_with(queue, static_cast<double const*>(sums), out.data(), out.size());
  check_cuda(cudaStreamSynchronize(queue.computation()), "cudaStreamSynchronize", queue.place);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
