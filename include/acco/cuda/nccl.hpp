// SPDX-License-Identifier: Apache-2.0
// Ranks as processes (or threads), one GPU each, over NCCL (component `nccl`): a round is enqueued whole on the communication
// stream. Sums are NCCL's own, in the gradient's type and in NCCL's order.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "acco/bfloat16.hpp"
#include "acco/clock.hpp"
#include "acco/collective/backend.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/cuda/queue.hpp"
#include "acco/error.hpp"
#include "acco/half.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_files.hpp"
#include "acco/network/rendezvous_tcp.hpp"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "acco: nccl_backend needs NCCL 2.14 or newer (non-blocking initialisation): install a newer libnccl-dev"
#endif

namespace ACCO_SIMD_NAMESPACE {

struct nccl_options {
  double deadline = 600;  ///< seconds to wait for the other ranks at start-up
  int max_ctas = 0;       ///< most thread blocks, so most SMs, that a collective takes from the computation; 0: NCCL's choice
  // What follows is of the start-up from the environment: docs/security.md.
  std::string run{};  ///< names this run, the same on all its ranks; default: launch_environment::run
  rendezvous::authenticator
      secret{};          ///< all ranks prove that they know it, e.g. a shared_secret; default: nobody proves anything
  std::string listen{};  ///< interface or address at which rank 0 awaits the others (rendezvous::tcp_options)
};

/// The NCCL type of an element type.
template <class T>
[[nodiscard]] constexpr ncclDataType_t nccl_type() noexcept {
  if constexpr (std::is_same_v<T, double>) return ncclDouble;
  if constexpr (std::is_same_v<T, float>) return ncclFloat;
  if constexpr (std::is_same_v<T, bfloat16>) return ncclBfloat16;
  if constexpr (std::is_same_v<T, half>) return ncclHalf;
  if constexpr (std::is_same_v<T, char> || std::is_same_v<T, std::byte>) return ncclChar;
}

/// A handle on this process as a rank of an NCCL communicator; cheap to copy. The calling thread's current GPU is the rank's.
class nccl_backend {
 public:
  static constexpr backend_traits traits{
      .passes = true, .sums_in_element_type = true, .tells_departures = true, .watched = true, .names_progress = true};

  /// Over a communicator of the caller's, who destroys it after the last copy of the handle.
  explicit nccl_backend(ncclComm_t communicator) : group_(std::make_shared<group>(communicator, false)) { group_->look_up(); }

  /// Through exchange(what rank 0 brings) -> everybody's contributions, in the order of ranks (network/rendezvous.hpp): for
  /// MPI, an MPI_Bcast. Collective; blocks at most chosen.deadline.
  template <class Exchange>
  [[nodiscard]] static nccl_backend from_exchange(rank_of mine, Exchange&& exchange, nccl_options const& chosen = {}) {
    const error_place where{mine.rank, -1, "start-up"};
    check_versions(where);
    if (mine.rank < 0 || mine.rank >= mine.size)
      throw usage_error(where, text("there is no rank ", mine.rank, " of ", mine.size), text("Ranks are numbered from 0"));
    ncclUniqueId id{};
    if (mine.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId", nullptr, where);
    const auto all = exchange(mine.rank == 0 ? std::string(id.internal, sizeof id.internal) : std::string());
    if (all.empty() || all[0].size() != sizeof id.internal)
      throw mismatch_error(where, text("rank 0 sent no NCCL identifier"), text("Start the same program on every rank"), 0);
    std::memcpy(id.internal, all[0].data(), sizeof id.internal);

    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (chosen.max_ctas > 0) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
      config.maxCTAs = chosen.max_ctas;
#else
      throw usage_error(where, text("nccl_options::max_ctas needs NCCL 2.17"), text("Install a newer NCCL, or leave it 0"));
#endif
    }
    ncclComm_t communicator = nullptr;
    const ncclResult_t code = ncclCommInitRankConfig(&communicator, mine.size, id, mine.rank, &config);
    nccl_backend result(std::make_shared<group>(communicator, true));
    result.group_->finish(code, "ncclCommInitRankConfig", where, chosen.deadline,
                          "Check that every rank is alive and sees its GPU; NCCL_DEBUG=INFO tells how far NCCL came");
    result.group_->look_up();
    return result;
  }
  /// From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as launchers set them.
  [[nodiscard]] static nccl_backend from_environment(nccl_options const& chosen = {}) {
    const launch_environment mine = launch_environment::read();
    return from_exchange(
        mine,
        [&](std::string const& brought) {
          return rendezvous::over_tcp(mine, mine.address, mine.port, brought,
                                      {.deadline = chosen.deadline,
                                       .run = chosen.run.empty() ? mine.run : chosen.run,
                                       .secret = chosen.secret,
                                       .listen = chosen.listen});
        },
        chosen);
  }
  /// Through a directory that all ranks see; `run` names this run.
  [[nodiscard]] static nccl_backend from_files(rank_of mine, std::filesystem::path const& directory, std::string const& run,
                                               nccl_options const& chosen = {}) {
    return from_exchange(
        mine,
        [&](std::string const& brought) { return rendezvous::through_files(mine, directory, run, brought, chosen.deadline); },
        chosen);
  }

  [[nodiscard]] int rank() const noexcept { return group_->rank; }
  [[nodiscard]] int size() const noexcept { return group_->size; }
  [[nodiscard]] ncclComm_t communicator() const noexcept { return group_->communicator; }

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
    const std::size_t part = in.size() / static_cast<std::size_t>(group_->size);
    enqueue(queue, collective::all_to_all, [in, out, part, ranks = group_->size](ncclComm_t over, cudaStream_t stream) {
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

  /// This rank leaves although a round is in flight: the communicator is aborted, and the others learn it from theirs, or at
  /// their deadline.
  void abandon(std::string_view) const noexcept { group_->abort(); }

  /// This rank leaves in peace: NCCL has no word for it; who waits for it learns it at the deadline.
  void retire() const noexcept {}

  /// Looks, while the host waits for a round, whether NCCL has failed or the deadline has passed.
  [[nodiscard]] cuda_watch watch() const noexcept {
    return {[](void* which, error_place const& where, double waited, double deadline) {
              static_cast<group*>(which)->look(where, waited, deadline);
            },
            group_.get()};
  }
  [[nodiscard]] char const* progress_policy() const noexcept { return "NCCL: the GPU"; }

 private:
  struct group {
    group(ncclComm_t which, bool owned) : communicator(which), mine(owned) {}
    group(group const&) = delete;
    group& operator=(group const&) = delete;
    ~group() {
      if (mine && communicator != nullptr && !aborted) (void)ncclCommDestroy(communicator);
    }
    void look_up() {
      check(ncclCommUserRank(communicator, &rank), "ncclCommUserRank", communicator, {});
      check(ncclCommCount(communicator, &size), "ncclCommCount", communicator, {});
    }
    void abort() noexcept {
      if (!aborted && communicator != nullptr) (void)ncclCommAbort(communicator);
      aborted = true;
    }
    /// Waits until NCCL has accepted a call.
    void finish(ncclResult_t code, char const* call, error_place const& where, double deadline, char const* advice) {
      const double from = steady_seconds();
      while (code == ncclInProgress) {
        const ncclResult_t asked = ncclCommGetAsyncError(communicator, &code);
        if (asked != ncclSuccess) code = asked;
        if (code != ncclInProgress) break;
        if (steady_seconds() - from > deadline) {
          abort();
          throw deadline_error(where, text(call, " did not end within ", deadline, " s: a rank did not come"),
                               text(std::string_view(advice)));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      if (code == ncclSuccess) return;
      const text words(std::string_view(last_error(communicator)));
      abort();
      check(code, call, nullptr, where, words.view());
    }
    void look(error_place const& where, double waited, double deadline) {
      if (aborted) throw peer_error(where, text("this rank has left the group"), text("Look at this rank's first error"), rank);
      ncclResult_t code = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(communicator, &code);
      if (asked != ncclSuccess) code = asked;
      if (code != ncclSuccess && code != ncclInProgress) {
        const text words(std::string_view(last_error(communicator)));
        abort();
        throw peer_error(where, text("a collective failed: ", ncclGetErrorString(code), " (", words, ")"),
                         text("A rank was killed or ended, or its network is down: look at the other ranks' output first"));
      }
      if (waited > deadline) {
        abort();
        throw deadline_error(where, text("a rank did not come to this round's collectives within ", deadline, " s"),
                             text("Check that every rank is alive and processes the same rounds, or raise options::deadline"));
      }
    }

    ncclComm_t communicator;
    bool mine;
    int rank = 0, size = 1;
    bool aborted = false;
  };

  explicit nccl_backend(std::shared_ptr<group> which) : group_(std::move(which)) {}

  template <class Call>
  void enqueue(cuda_queue& queue, collective operation, Call call) const {
    queue.issue([call, &queue, operation, over = group_.get()](cudaStream_t stream) {
      if (over->aborted)
        throw peer_error(queue.place, text(name_of(operation), " is impossible: this rank has left the group"),
                         text("Look at this rank's first error"), over->rank);
      over->finish(call(over->communicator, stream), name_of(operation), queue.place, queue.deadline,
                   "Check that every rank is alive and makes the same calls");
    });
  }

  static char const* last_error([[maybe_unused]] ncclComm_t communicator) noexcept {
    char const* const words = ncclGetLastError(communicator);
    return words != nullptr ? words : "";
  }
  static void check(ncclResult_t code, char const* call, ncclComm_t communicator, error_place where,
                    std::string_view words = {}) {
    if (code == ncclSuccess) return;
    throw device_error(where,
                       text(call, " failed: ", ncclGetErrorString(code), " (",
                            words.empty() ? std::string_view(last_error(communicator)) : words, ")"),
                       text("NCCL_DEBUG=WARN tells more"));
  }
  /// The program's header and the library that it runs with must be of one major version.
  static void check_versions(error_place where) {
    int running = 0;
    check(ncclGetVersion(&running), "ncclGetVersion", nullptr, where);
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

  std::shared_ptr<group> group_;
};

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
/// Device memory that is registered with a communicator as symmetric: NCCL then copies less. Collective: every rank allocates the
/// same sizes in the same order, as optimizers do that are constructed alike. Give it to `cuda_storage::memory`.
class nccl_symmetric_memory : public cuda_memory_resource {
 public:
  explicit nccl_symmetric_memory(nccl_backend over) : over_(std::move(over)) {}

  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t) override {
    void* memory = nullptr;
    check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
    ncclWindow_t window = nullptr;
    ncclResult_t code = ncclCommWindowRegister(over_.communicator(), memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
    while (code == ncclInProgress) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (ncclCommGetAsyncError(over_.communicator(), &code) != ncclSuccess) break;
    }
    check(code, "ncclCommWindowRegister");
    windows_[memory] = window;
    return memory;
  }
  void deallocate(void* memory, std::size_t, cudaStream_t stream) noexcept override {
    (void)cudaStreamSynchronize(stream);
    if (const auto found = windows_.find(memory); found != windows_.end()) {
      (void)ncclCommWindowDeregister(over_.communicator(), found->second);
      windows_.erase(found);
    }
    (void)ncclMemFree(memory);
  }

 private:
  void check(ncclResult_t code, char const* call) const {
    if (code != ncclSuccess)
      throw device_error({.rank = over_.rank()}, text(call, " failed: ", ncclGetErrorString(code)),
                         text("NCCL_DEBUG=WARN tells more"));
  }
  nccl_backend over_;
  std::map<void*, ncclWindow_t> windows_;
};
#endif

}  // namespace ACCO_SIMD_NAMESPACE
