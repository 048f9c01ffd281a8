// SPDX-License-Identifier: Apache-2.0
// threads_backend over device memory: several ranks on one GPU, or on several GPUs of one process that can read each
// other. Ranks meet on the host and hand over events; what is summed or copied is enqueued on each rank's own stream.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

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
  thread_local std::set<std::pair<int, int>> enabled;  // who reads, of whom
  if (enabled.count({mine, at.device}) != 0) return;
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
  enabled.insert({mine, at.device});
}

/// A rank's part in a collective, as tasks of its queue: it meets the others, `work(stream, point, rank, sources)`
/// enqueues what reads their data, and it parts: the stream goes on when all have read. Where it fails, or is never
/// made, the others hear of it at once, and no rank's memory is let go before all that reads it has ended.
template <class T, class Work>
struct meeting {
  cuda_queue* queue;
  meeting_point* point;
  int rank;
  collective operation;
  std::span<T> mine;
  Work work;
  int root;

  void operator()(cudaStream_t stream) const {
    try {
      with_place([this] { return queue->place; }, [&] { meet(stream); });  // the others are told too
    } catch (std::exception const& e) {
      point->fail(rank, e.what());
      throw;
    }
  }
  void dropped() const noexcept {
    try {
      queue->rethrow();
      point->fail(rank, "its queue ended");
    } catch (...) {
      point->fail(rank, words_of(std::current_exception()).view());
    }
  }

 private:
  void meet(cudaStream_t stream) const {
    thread_local cuda_event ready, read;  // of the thread that issues this rank's tasks
    if (static_cast<std::size_t>(point->size()) > cuda_kernels::most_ranks)
      throw usage_error(queue->place, text(point->size(), " ranks meet in one process"),
                        text("On device memory at most ", cuda_kernels::most_ranks, " can"));
    ready.record(stream);
    point->arrive(rank, {operation, mine.size(), sizeof(T), root, mine.data(), ready.get(), read.get()}, queue->place,
                  queue->deadline);
    std::exception_ptr failed;  // who has arrived must depart, twice
    const auto fails = [&] {
      if (!failed) point->run_out(rank, words_of(failed = std::current_exception()).view());
    };
    try {
      read_others(stream);
      read.record(stream);
    } catch (...) {
      fails();
      (void)cudaStreamSynchronize(stream);  // no event tells when it has read
    }
    if (!failed) point->count(rank);
    point->depart(queue->place, queue->deadline);
    try {
      if (!failed) for_others([&](meeting_point::post const& post) { hold(stream, post.read); });
    } catch (...) {
      fails();
    }
    if (failed) {
      for_others([](meeting_point::post const& post) { (void)cudaEventSynchronize(static_cast<cudaEvent_t>(post.read)); });
      point->has_run_out();
    }
    point->depart(queue->place, queue->deadline);  // nobody posts anew before all have read the posts
    if (failed) std::rethrow_exception(failed);
  }
  [[nodiscard]] static text words_of(std::exception_ptr const& thrown) noexcept {
    try {
      std::rethrow_exception(thrown);
    } catch (std::exception const& e) {
      return text(std::string_view(e.what()));
    } catch (...) {
      return text("an exception that is no std::exception");
    }
  }
  void read_others(cudaStream_t stream) const {
    sources all{};
    for (int peer = 0; peer < point->size(); ++peer) all[static_cast<std::size_t>(peer)] = point->of(peer).data;
    for_others([&](meeting_point::post const& post) {
      if (post.data != nullptr) enable_peer(post.data);
      hold(stream, post.ready);
    });
    work(stream, *point, rank, all);
  }
  void hold(cudaStream_t stream, void* event) const {
    check_cuda(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event), 0), "cudaStreamWaitEvent", queue->place);
  }
  template <class Visit>
  void for_others(Visit&& visit) const {
    for (int peer = 0; peer < point->size(); ++peer) {
      if (peer != rank) visit(point->of(peer));
    }
  }
};
template <class T, class Work>
void meet_and_read(cuda_queue& queue, meeting_point& point, int rank, collective operation, std::span<T> mine, int root,
                   Work work) {
  queue.issue(meeting<T, Work>{&queue, &point, rank, operation, mine, work, root});
}

template <class From, class To, bool add>
void sum(cuda_kernels::on where, int ranks, sources const& all, std::size_t offset, std::span<To> out) {
  const cuda_kernels::sum_body<From, To, add> body{all, ranks, offset, out.data()};
  std::array<cuda_kernels::array_place, cuda_kernels::most_ranks + 1> places{out.data()};
  for (std::size_t k = 0; k < static_cast<std::size_t>(ranks); ++k) places[k + 1] = static_cast<From const*>(all[k]) + offset;
  cuda_kernels::launch_elements(where, out.size(), body, cuda_kernels::head_of(places));
}
}  // namespace threads_cuda

template <class T>
void meet(cuda_queue& queue, meeting_point& point, int rank, partial<T const> in, replicated<T> out) {
  threads_cuda::meet_and_read(
      queue, point, rank, collective::all_reduce, in.local(), 0,
      [out, most = queue.max_ctas](cudaStream_t stream, meeting_point const& all, int, threads_cuda::sources const& from) {
        threads_cuda::sum<T, T, false>({stream, most}, all.size(), from, 0, out.whole());
      });
}
template <class Gradient, class Sum, bool add>
void meet(cuda_queue& queue, meeting_point& point, int rank, partial<Gradient const> in, sharded<Sum> out,
          std::bool_constant<add>) {
  threads_cuda::meet_and_read(
      queue, point, rank, collective::reduce_scatter, in.local(), 0,
      [out, most = queue.max_ctas](cudaStream_t stream, meeting_point const& all, int me, threads_cuda::sources const& from) {
        threads_cuda::sum<Gradient, Sum, add>({stream, most}, all.size(), from, static_cast<std::size_t>(me) * out.slice().size(),
                                              out.slice());
      });
}
template <class T>
void meet(cuda_queue& queue, meeting_point& point, int rank, sharded<T const> in, replicated<T> out) {
  threads_cuda::meet_and_read(queue, point, rank, collective::all_gather, in.slice(), 0,
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
  threads_cuda::meet_and_read(
      queue, point, rank, collective::all_to_all, in, 0,
      [out](cudaStream_t stream, meeting_point const& all, int me, threads_cuda::sources const& from) {
        const std::size_t part = out.size() / static_cast<std::size_t>(all.size());
        for (int peer = 0; peer < all.size() && part != 0; ++peer) {
          auto const* const theirs = static_cast<std::byte const*>(from[static_cast<std::size_t>(peer)]);
          check_cuda(cudaMemcpyAsync(out.data() + static_cast<std::size_t>(peer) * part,
                                     theirs + static_cast<std::size_t>(me) * part, part, cudaMemcpyDefault, stream),
                     "cudaMemcpyAsync");
        }
      });
}
template <class T>
void meet(cuda_queue& queue, meeting_point& point, int rank, replicated<T> whole, int root) {
  threads_cuda::meet_and_read(
      queue, point, rank, collective::broadcast, whole.whole(), root,
      [whole, root](cudaStream_t stream, meeting_point const&, int me, threads_cuda::sources const& from) {
        if (me != root && !whole.whole().empty())
          check_cuda(cudaMemcpyAsync(whole.whole().data(), from[static_cast<std::size_t>(root)], whole.whole().size_bytes(),
                                     cudaMemcpyDefault, stream),
                     "cudaMemcpyAsync");
      });
}

}  // namespace ACCO_SIMD_NAMESPACE
#endif
