// SPDX-License-Identifier: Apache-2.0
// Ranks as processes (or threads), one GPU each, over NCCL (component `nccl`): a thread of the queue's own enqueues a
// round whole on the communication stream, because NCCL takes its time over every call on a non-blocking communicator.
// Sums are NCCL's own, in the gradient's type and in NCCL's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "acco/bfloat16.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/cuda/nccl_communicator.hpp"
#include "acco/cuda/queue.hpp"
#include "acco/error.hpp"
#include "acco/half.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_tcp.hpp"
#include "acco/number/require.hpp"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "acco: nccl_backend needs NCCL 2.18 or newer (ncclCommSplit): install a newer libnccl-dev"
#endif

namespace ACCO_SIMD_NAMESPACE {

struct nccl_options {
  double deadline = 600;  ///< seconds to wait for the other ranks at start-up
  int max_ctas = 0;       ///< most thread blocks, so most SMs, that a collective
                          ///< takes from the computation; 0: NCCL's choice
  // What follows is of the start-up from the environment: docs/security.md.
  std::string run{};  ///< names this run, the same on all its ranks; default: launch_environment::run
  rendezvous::authenticator
      secret{};          ///< all ranks prove that they know it, e.g. a shared_secret; default: nobody proves anything
  std::string listen{};  ///< interface or address at which rank 0 awaits the others (rendezvous::tcp_options)
};

/// The NCCL type of an element type.
template <class T>
[[nodiscard]] constexpr ncclDataType_t nccl_type() noexcept {
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, bfloat16> || std::is_same_v<T, half> ||
                    std::is_same_v<T, char> || std::is_same_v<T, std::byte>,
                "acco: nccl_backend takes double, float, acco::bfloat16, acco::half and bytes");
  if constexpr (std::is_same_v<T, double>) return ncclDouble;
  if constexpr (std::is_same_v<T, float>) return ncclFloat;
  if constexpr (std::is_same_v<T, bfloat16>) return ncclBfloat16;
  if constexpr (std::is_same_v<T, half>) return ncclHalf;
  if constexpr (std::is_same_v<T, char> || std::is_same_v<T, std::byte>) return ncclChar;
}

/// A handle on this process as a rank of an NCCL communicator; cheap to copy. The calling thread's current GPU is the
/// rank's, and one thread calls the handles of a rank. The communicator is freed with the last handle on it.
class nccl_backend {
 public:
  static constexpr backend_traits traits{.passes = true,
                                         .sums_in_element_type = true,
                                         .tells_departures = true,
                                         .duplicates = true,
                                         .duplicates_together = true,
                                         .splits = true,
                                         .watched = true,
                                         .issues_slowly = true,
                                         .shares_device = true,
                                         .names_progress = true};

  /// Over a communicator of the caller's, ready for use, who destroys it after the last handle, unless `communicator()`
  /// is null by then: it is aborted, and so freed, when a rank does not come to a split within `deadline` seconds. If
  /// it is a
  /// blocking one, so are its splits, without a deadline.
  explicit nccl_backend(ncclComm_t communicator, double deadline = 600)
      : over_(std::make_shared<nccl_communicator>(false, deadline)) {
    require_positive("nccl_backend's deadline", deadline, {-1, -1, "start-up"});
    *over_->address() = communicator;
    over_->made(ncclSuccess, "nccl_backend", {}, deadline, "");
  }

  /// Through exchange(what rank 0 brings) -> everybody's contributions, in the order of ranks (network/rendezvous.hpp):
  /// for
  /// MPI, an MPI_Bcast. Collective; blocks at most chosen.deadline.
  template <class Exchange>
  [[nodiscard]] static nccl_backend from_exchange(rank_of mine, Exchange&& exchange, nccl_options const& chosen = {}) {
    const error_place where{mine.rank, -1, "start-up"};
    check_versions(where);
    if (mine.rank < 0 || mine.rank >= mine.size)
      throw usage_error(where, text("there is no rank ", mine.rank, " of ", mine.size), text("Ranks are numbered from 0"));
    require_positive("nccl_options::deadline", chosen.deadline, where);
    const auto look_for_gpu = [&] {  // in better words than NCCL's
      int gpus = 0;
      check_cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount", where);
    };
    ncclUniqueId id{};
    if (mine.rank == 0) {
      look_for_gpu();
      check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", where);
    }
    const auto all = exchange(mine.rank == 0 ? std::string(id.internal, sizeof id.internal) : std::string());
    if (all.empty() || all[0].size() != sizeof id.internal)
      throw mismatch_error(where, text("rank 0 sent no NCCL identifier"), text("Start the same program on every rank"), 0);
    std::memcpy(id.internal, all[0].data(), sizeof id.internal);
    look_for_gpu();

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (chosen.max_ctas > 0) config.maxCTAs = chosen.max_ctas;
    nccl_backend result(std::make_shared<nccl_communicator>(true, chosen.deadline));
    const ncclResult_t code = ncclCommInitRankConfig(result.over_->address(), mine.size, id, mine.rank, &config);
    result.over_->made(code, "ncclCommInitRankConfig", where, chosen.deadline,
                       "Check that every rank is alive and sees its GPU; NCCL_DEBUG=INFO tells how far NCCL came");
    return result;
  }
  /// From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as launchers set them.
  [[nodiscard]] static nccl_backend from_environment(nccl_options const& chosen = {}) {
    const launch_environment mine = launch_environment::read();
    return from_exchange(
        mine,
        [&](std::string const& brought) { return rendezvous::tcp_rendezvous(mine, rendezvous::start_of(chosen)).bring(brought); },
        chosen);
  }
  /// Through a directory that all ranks see; `run` names this run.
  [[nodiscard]] static nccl_backend from_files(rank_of mine, std::filesystem::path const& directory, std::string const& run,
                                               nccl_options const& chosen = {}) {
    return from_exchange(
        mine,
        [&](std::string const& brought) {
          rendezvous::tcp_options how = rendezvous::start_of(chosen);
          how.run = run;
          return rendezvous::tcp_rendezvous(mine, directory, how).bring(brought);
        },
        chosen);
  }

  [[nodiscard]] int rank() const noexcept { return over_->rank(); }
  [[nodiscard]] int size() const noexcept { return over_->size(); }
  /// NCCL's own handle; null after an abort.
  [[nodiscard]] ncclComm_t communicator() const noexcept { return over_->get(); }
  /// For what belongs to the communicator: memory that is registered with it.
  [[nodiscard]] std::shared_ptr<nccl_communicator> const& shared() const noexcept { return over_; }

  template <class T>
  void all_reduce(cuda_queue& queue, partial<T const> in, replicated<T> out) const {
    enqueue(queue, collective::all_reduce, [in, out](ncclComm_t over, cudaStream_t stream) {
      return ncclAllReduce(in.local().data(), out.whole().data(), in.local().size(), nccl_type<T>(), ncclSum, over, stream);
    });
  }
  template <class T>
  void reduce_scatter(cuda_queue& queue, partial<T const> in, sharded<T> out) const {
    enqueue(queue, collective::reduce_scatter, [in, out](ncclComm_t over, cudaStream_t stream) {
      return ncclReduceScatter(in.local().data(), out.slice().data(), out.slice().size(), nccl_type<T>(), ncclSum, over, stream);
    });
  }
  template <class T>
  void all_gather(cuda_queue& queue, sharded<T const> in, replicated<T> out) const {
    enqueue(queue, collective::all_gather, [in, out](ncclComm_t over, cudaStream_t stream) {
      return ncclAllGather(in.slice().data(), out.whole().data(), in.slice().size(), nccl_type<T>(), over, stream);
    });
  }
  void all_to_all(cuda_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    const std::size_t part = in.size() / static_cast<std::size_t>(over_->size());
    enqueue(queue, collective::all_to_all, [in, out, part, ranks = over_->size()](ncclComm_t over, cudaStream_t stream) {
      ncclResult_t code = ncclGroupStart();
      for (int peer = 0; peer < ranks && code == ncclSuccess; ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * part;
        code = ncclSend(in.data() + at, part, ncclChar, peer, over, stream);
        if (code == ncclSuccess || code == ncclInProgress) code = ncclRecv(out.data() + at, part, ncclChar, peer, over, stream);
        if (code == ncclInProgress) code = ncclSuccess;  // inside a group nothing has begun yet
      }
      const ncclResult_t ended = ncclGroupEnd();
      return code != ncclSuccess ? code : ended;
    });
  }
  template <class T>
  void broadcast(cuda_queue& queue, replicated<T> whole, int root) const {
    enqueue(queue, collective::broadcast, [whole, root](ncclComm_t over, cudaStream_t stream) {
      return ncclBroadcast(whole.whole().data(), whole.whole().data(), whole.whole().size_bytes(), ncclChar, root, over, stream);
    });
  }

  /// The same ranks over a communicator of their own (ncclCommSplit): several optimizers on one world do not disturb
  /// each other, and a failure of one leaves this handle good. Collective; blocks until all ranks have come, at most
  /// the backend's deadline.
  [[nodiscard]] nccl_backend duplicate() const { return nccl_backend(over_->duplicate()); }
  /// A world of the ranks that give the same colour, ordered by key, then rank here. Collective over this handle, on
  /// which no collective may be in flight; blocks at most `deadline` seconds. Throws `usage_error` for a negative
  /// colour.
  [[nodiscard]] nccl_backend split(int color, int key = 0, double deadline = 600) const {
    if (color < 0)
      throw usage_error({rank(), -1, "start-up"}, text("split got a color of ", color),
                        text("Ranks with the same color, 0 or more, form a world"));
    return nccl_backend(over_->split(color, key, deadline));
  }

  /// This rank leaves although a round is in flight: the communicator is aborted, and the others learn it from theirs,
  /// or at their deadline.
  void abort(std::string_view) const noexcept {
    over_->abort();
    over_->leave_order();
  }

  /// This rank leaves in peace: NCCL has no word for it; who waits for it learns it at the deadline.
  void close() const noexcept { over_->leave_order(); }

  /// An optimizer uses this handle, beside others on this GPU. NCCL needs one order of collectives on all ranks, so,
  /// where there are others, `same_everywhere` must hold for all: throws `usage_error` if not (cuda/device_order.hpp).
  void share(bool same_everywhere) const { over_->join_order(same_everywhere); }

  /// Looks, while the host waits for a round, whether NCCL has failed or the deadline has passed.
  [[nodiscard]] cuda_watch watch() const noexcept {
    return {[](void* which, error_place const& where, double waited, double deadline) {
              static_cast<nccl_communicator*>(which)->look(where, waited, deadline);
            },
            over_.get()};
  }
  [[nodiscard]] char const* progress_policy() const noexcept { return "NCCL: the GPU"; }

 private:
  explicit nccl_backend(std::shared_ptr<nccl_communicator> over) : over_(std::move(over)) {}

  /// A collective in a queue, whose place in the GPU's order is that of the call.
  template <class Call>
  struct issued {
    Call call;
    cuda_queue const* queue;
    nccl_communicator* over;
    std::uint64_t ticket;
    collective operation;
    void operator()(cudaStream_t stream) const {
      over->enqueue(ticket, stream, call, name_of(operation), queue->place, queue->deadline);
    }
    void dropped() const noexcept { over->give_back(ticket); }
  };
  template <class Call>
  void enqueue(cuda_queue& queue, collective operation, Call call) const {
    const issued<Call> next{call, &queue, over_.get(), over_->take_ticket(), operation};
    try {
      queue.issue(next);
    } catch (...) {
      next.dropped();
      throw;
    }
  }

  /// The library that the program runs with must not be older than the header that it was compiled with.
  static void check_versions(error_place where) {
    int running = 0;
    check_nccl(ncclGetVersion(&running), "ncclGetVersion", where);
    if (running < NCCL_VERSION_CODE) {
      throw usage_error(
          where, text("this program was compiled for NCCL ", version(NCCL_VERSION_CODE), " and runs with ", version(running)),
          text("Let LD_LIBRARY_PATH lead to NCCL ", version(NCCL_VERSION_CODE), " or newer"));
    }
  }
  static text version(int code) {
    return code >= 10000 ? text(code / 10000, ".", code / 100 % 100, ".", code % 100)
                         : text(code / 1000, ".", code / 100 % 10, ".", code % 100);
  }

  std::shared_ptr<nccl_communicator> over_;
};

}  // namespace ACCO_SIMD_NAMESPACE
