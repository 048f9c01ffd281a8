// SPDX-License-Identifier: Apache-2.0
// threads_backend over device memory: several ranks on one GPU, or on several GPUs of one process that can read each other. Ranks
// meet on the host and exchange events; what is summed or copied is enqueued on each rank's own stream.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include <cuda_runtime_api.h>

#include "acco/collective/redistribution.hpp"
#include "acco/collective/threads.hpp"
#include "acco/cuda/storage.hpp"
#include "acco/error.hpp"

#if defined(__CUDACC__)
namespace ACCO_SIMD_NAMESPACE {

namespace threads_cuda {
/// The addresses of all ranks' data, as a kernel takes them.
using sources = std::array<void const*, cuda_kernels::most_ranks>;

/// Lets this thread's device read the memory of the device on which `peer` lies, once.
inline void enable_peer(void const* peer) {
  cudaPointerAttributes at{};
  check_cuda(cudaPointerGetAttributes(&at, peer), "cudaPointerGetAttributes");
  int mine = 0;
  check_cuda(cudaGetDevice(&mine), "cudaGetDevice");
  if (at.type != cudaMemoryTypeDevice || at.device == mine) return;
  thread_local std::array<bool, 64> enabled{};
  if (at.device < 64 && enabled[static_cast<std::size_t>(at.device)]) return;
  int can = 0;
  check_cuda(cudaDeviceCanAccessPeer(&can, mine, at.device), "cudaDeviceCanAccessPeer");
  if (can == 0) {
    throw usage_error({}, text("GPU ", mine, " cannot read the memory of GPU ", at.device),
                      text("Use nccl_backend between these, or put all ranks of threads_backend on one GPU"));
  }
  const cudaError_t code = cudaDeviceEnablePeerAccess(at.device, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
  } else {
    check_cuda(code, "cudaDeviceEnablePeerAccess");
  }
  cudaMemPool_t pool = nullptr;  // memory of cudaMallocAsync has access rights of its own
  check_cuda(cudaDeviceGetDefaultMemPool(&pool, at.device), "cudaDeviceGetDefaultMemPool");
  const cudaMemAccessDesc access{{cudaMemLocationTypeDevice, mine}, cudaMemAccessFlagsProtReadWrite};
  check_cuda(cudaMemPoolSetAccess(pool, &access, 1), "cudaMemPoolSetAccess");
  if (at.device < 64) enabled[static_cast<std::size_t>(at.device)] = true;
}

/// Meets, lets `work(stream, sources)` enqueue what reads the others' data, and parts: the stream goes on when all have read.
template <class T, class Work>
void exchange(cuda_queue& queue, meeting_point& point, int rank, collective operation, std::span<T> mine, int root, Work work) {
  queue.issue([&queue, &point, rank, operation, mine, root, work](cudaStream_t stream) {
    thread_local cuda_event ready, read;  // of the thread that issues this rank's works
    if (static_cast<std::size_t>(point.size()) > cuda_kernels::most_ranks)
      throw usage_error(queue.place, text(point.size(), " ranks meet in one process"), text("On device memory at most 64 can"));
    ready.record(stream);
    point.arrive(rank, {operation, mine.size(), sizeof(T), root, mine.data(), ready.get(), read.get()}, queue.place,
                 queue.deadline);
    std::exception_ptr failed;
    try {
      sources all{};
      for (int peer = 0; peer < point.size(); ++peer) {
        auto const& post = point.of(peer);
        all[static_cast<std::size_t>(peer)] = post.data;
        if (peer == rank) continue;
        if (post.data != nullptr) enable_peer(post.data);
        check_cuda(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(post.ready), 0), "cudaStreamWaitEvent", queue.place);
      }
      work(stream, point, rank, all);
      read.record(stream);
    } catch (...) {
      failed = std::current_exception();  // who has arrived must depart
    }
    if (!failed) point.count(rank);
    point.depart(queue.place, queue.deadline);
    for (int peer = 0; peer < point.size() && !failed; ++peer) {
      if (peer != rank)
        check_cuda(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(point.of(peer).read), 0), "cudaStreamWaitEvent",
                   queue.place);
    }
    point.depart(queue.place, queue.deadline);  // nobody posts anew before all have read the posts
    if (failed) std::rethrow_exception(failed);
  });
}

template <class From, class To, bool add>
void sum(cudaStream_t stream, int ranks, sources const& all, std::size_t offset, std::span<To> out) {
  constexpr std::size_t lanes = cuda_kernels::lanes_of<From, To>;
  const cuda_kernels::sum_body<From, To, add> body{all, ranks, offset, out.data()};
  std::array<void const*, cuda_kernels::most_ranks + 1> arrays{};
  for (int k = 0; k < ranks; ++k)
    arrays[static_cast<std::size_t>(k)] = static_cast<From const*>(all[static_cast<std::size_t>(k)]) + offset;
  arrays.back() = out.data();
  cuda_kernels::launch<lanes>(stream, out.size(), body, arrays);
}
}  // namespace threads_cuda

template <class T>
void meet(cuda_queue& queue, meeting_point& point, int rank, partial<T const> in, replicated<T> out) {
  threads_cuda::exchange(queue, point, rank, collective::all_reduce, in.local(), 0,
                         [out](cudaStream_t stream, meeting_point const& all, int, threads_cuda::sources const& from) {
                           threads_cuda::sum<T, T, false>(stream, all.size(), from, 0, out.whole());
                         });
}
template <class Gradient, class Sum, bool add>
void meet(cuda_queue& queue, meeting_point& point, int rank, partial<Gradient const> in, sharded<Sum> out,
          std::bool_constant<add>) {
  threads_cuda::exchange(queue, point, rank, collective::reduce_scatter, in.local(), 0,
                         [out](cudaStream_t stream, meeting_point const& all, int me, threads_cuda::sources const& from) {
                           threads_cuda::sum<Gradient, Sum, add>(stream, all.size(), from,
                                                                 static_cast<std::size_t>(me) * out.slice().size(), out.slice());
                         });
}
template <class T>
void meet(cuda_queue& queue, meeting_point& point, int rank, sharded<T const> in, replicated<T> out) {
  threads_cuda::exchange(queue, point, rank, collective::all_gather, in.slice(), 0,
                         [out](cudaStream_t stream, meeting_point const& all, int, threads_cuda::sources const& from) {
                           for (int peer = 0; peer < all.size(); ++peer) {
                             const std::size_t count = all.of(peer).count;
                             T* const to = out.whole().data() + static_cast<std::size_t>(peer) * count;
                             void const* const theirs = from[static_cast<std::size_t>(peer)];
                             if (theirs != to && count != 0)
                               check_cuda(cudaMemcpyAsync(to, theirs, count * sizeof(T), cudaMemcpyDefault, stream),
                                          "cudaMemcpyAsync");
                           }
                         });
}
inline void meet(cuda_queue& queue, meeting_point& point, int rank, std::span<std::byte const> in, std::span<std::byte> out) {
  threads_cuda::exchange(queue, point, rank, collective::all_to_all, in, 0,
                         [out](cudaStream_t stream, meeting_point const& all, int me, threads_cuda::sources const& from) {
                           const std::size_t part = out.size() / static_cast<std::size_t>(all.size());
                           for (int peer = 0; peer < all.size() && part != 0; ++peer) {
                             auto const* const theirs = static_cast<std::byte const*>(from[static_cast<std::size_t>(peer)]);
                             check_cuda(
                                 cudaMemcpyAsync(out.data() + static_cast<std::size_t>(peer) * part,
                                                 theirs + static_cast<std::size_t>(me) * part, part, cudaMemcpyDefault, stream),
                                 "cudaMemcpyAsync");
                           }
                         });
}
template <class T>
void meet(cuda_queue& queue, meeting_point& point, int rank, replicated<T> whole, int root) {
  threads_cuda::exchange(queue, point, rank, collective::broadcast, whole.whole(), root,
                         [whole, root](cudaStream_t stream, meeting_point const&, int me, threads_cuda::sources const& from) {
                           if (me != root && !whole.whole().empty())
                             check_cuda(cudaMemcpyAsync(whole.whole().data(), from[static_cast<std::size_t>(root)],
                                                        whole.whole().size_bytes(), cudaMemcpyDefault, stream),
                                        "cudaMemcpyAsync");
                         });
}

}  // namespace ACCO_SIMD_NAMESPACE
#endif
