// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL: who owns it, when it may be used, how it ends. Every call on it goes through here.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "acco/clock.hpp"
#include "acco/cuda/device_order.hpp"
#include "acco/cuda/pause.hpp"
#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The error of a call that failed, with NCCL's own words.
[[nodiscard]] inline device_error nccl_failed(ncclResult_t code, char const* call, error_place const& where,
                                              std::string_view words) {
  return {where, text(call, " failed: ", ncclGetErrorString(code), words.empty() ? "" : " (", words, words.empty() ? "" : ")"),
          text("NCCL_DEBUG=WARN tells more")};
}
/// Throws it unless `code` is ncclSuccess.
inline void check_nccl(ncclResult_t code, char const* call, error_place const& where) {
  if (code == ncclSuccess) return;
  char const* const last = ncclGetLastError(nullptr);
  throw nccl_failed(code, call, where, last != nullptr ? last : "");
}

/// Used by several handles; freed once: an owned one is destroyed when NCCL has flushed it, or aborted. After an abort
/// nothing calls NCCL with it. Any thread.
class nccl_communicator {
 public:
  /// `owned`: not the caller's. `deadline`: how long it waits for other ranks when it is split or freed.
  explicit nccl_communicator(bool owned, double deadline) noexcept : owned_(owned), deadline_(deadline) {}
  nccl_communicator(nccl_communicator const&) = delete;
  nccl_communicator& operator=(nccl_communicator const&) = delete;
  ~nccl_communicator() {
    leave_order();
    if (!owned_ || communicator_ == nullptr) return;
    if (std::uncaught_exceptions() == 0 && flush())
      (void)ncclCommDestroy(communicator_);
    else
      (void)ncclCommAbort(communicator_);
  }

  /// Where NCCL writes the handle: before anything else.
  [[nodiscard]] ncclComm_t* address() noexcept { return &communicator_; }
  /// Waits until NCCL has made it, after `code`, and asks who this rank is.
  void made(ncclResult_t code, char const* call, error_place const& where, double deadline, char const* advice) {
    settle(code, call, where, deadline, advice);
    const std::lock_guard lock(mutex_);
    check_nccl(ncclCommUserRank(communicator_, &rank_), "ncclCommUserRank", where);
    check_nccl(ncclCommCount(communicator_, &size_), "ncclCommCount", where);
    order_ = device_order::of_this_device();
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] double deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool aborted() const noexcept { return aborted_.load(std::memory_order_acquire); }
  /// For the caller's own use; null when it was aborted, and then freed.
  [[nodiscard]] ncclComm_t get() const noexcept {
    const std::lock_guard lock(mutex_);
    return communicator_;
  }

  /// call(communicator) gives an ncclResult_t; waits until NCCL has accepted it. Where that fails or takes longer than
  /// the deadline, the communicator is aborted. Beside it another thread may look.
  template <class Call>
  void use(Call&& call, char const* name, error_place const& where, double deadline, char const* advice) {
    ncclResult_t code = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      refuse_aborted(name, where);
      code = call(communicator_);
    }
    settle(code, name, where, deadline, advice);
  }
  /// A place in the GPU's order, for `enqueue`, which gives it back.
  [[nodiscard]] std::uint64_t take_ticket() const { return order_->take(); }
  void give_back(std::uint64_t ticket) const noexcept { order_->give_back(ticket); }
  /// The same as `use` for a collective on a stream, when its turn comes.
  template <class Call>
  void enqueue(std::uint64_t ticket, cudaStream_t stream, Call&& call, char const* name, error_place const& where,
               double deadline) {
    const ticket_holder mine{*this, ticket};
    if (!order_->comes(ticket, aborted_)) refuse_aborted(name, where);
    order_->issue(this, stream, [&] {
      use([&](ncclComm_t over) { return call(over, stream); }, name, where, deadline,
          "Check that every rank is alive and makes the same calls");
    });
  }

  /// While the host waits for a round: throws when NCCL has failed, or when others are `waited` seconds late. The
  /// thread that issues may be the first to see it: then it throws what that throws.
  void look(error_place const& where, double waited, double deadline) {
    const ncclResult_t code = ask();
    if (aborted()) {
      if (const std::exception_ptr first = cause()) std::rethrow_exception(first);
      throw peer_error(where, text("this rank has left the group"), text("Look at this rank's first error"), rank_);
    }
    if (code != ncclSuccess && code != ncclInProgress) {
      give_up(peer_error(where, text("a collective failed: ", ncclGetErrorString(code), " (", last_words(), ")"),
                         text("A rank was killed or ended, or its network is down: look at the other ranks' output first")));
    }
    if (waited > deadline) {
      give_up(deadline_error(
          where, text("a rank did not come to this round's collectives within ", deadline, " s"),
          text("Check that every rank is alive and processes the same rounds, or raise the deadline (options::deadline)")));
    }
  }
  void abort() noexcept {
    {
      const std::lock_guard lock(mutex_);
      aborted_.store(true, std::memory_order_release);
      if (communicator_ != nullptr) (void)ncclCommAbort(std::exchange(communicator_, nullptr));
    }
    if (order_) order_->wake();
  }

  /// A communicator of the ranks of one colour, by key, then rank. Collective over this one, on which nothing may be in
  /// flight.
  [[nodiscard]] std::shared_ptr<nccl_communicator> split(int color, int key, double deadline) {
    const error_place where{rank_, -1, "start-up"};
    constexpr char const* name = "ncclCommSplit";
    constexpr char const* advice = "Check that every rank is alive and splits the same world";
    auto part = std::make_shared<nccl_communicator>(true, deadline_);
    const double from = steady_seconds();
    // NCCL writes the handle when this communicator is ready again, or aborted
    use([&](ncclComm_t over) { return ncclCommSplit(over, color, key, part->address(), nullptr); }, name, where, deadline,
        advice);
    part->made(part->ask(), name, where, deadline - (steady_seconds() - from), advice);
    return part;
  }
  /// The same ranks again, for an optimizer; memory that is registered from now on is registered with it.
  [[nodiscard]] std::shared_ptr<nccl_communicator> duplicate() {
    std::shared_ptr<nccl_communicator> twin = split(0, rank_, deadline_);
    const std::lock_guard lock(mutex_);
    twin_ = twin;
    return twin;
  }
  /// The last duplicate that is in use; null if there is none.
  [[nodiscard]] std::shared_ptr<nccl_communicator> twin() const noexcept {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<nccl_communicator> last = twin_.lock();
    return last && !last->aborted() ? last : nullptr;
  }

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  /// Ends a registration of memory; an abort has ended them all.
  void forget(ncclWindow_t window) noexcept {
    const std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) (void)ncclCommWindowDeregister(communicator_, window);
  }
#endif

  /// An optimizer uses it from now on, beside others on this GPU (device_order); until `leave_order`.
  void join_order(bool same_everywhere) {
    order_->join(same_everywhere, {rank_, -1, "initialize"});
    const std::lock_guard lock(mutex_);
    joined_ = same_everywhere;
  }
  void leave_order() noexcept {
    std::optional<bool> joined;
    {
      const std::lock_guard lock(mutex_);
      joined = std::exchange(joined_, std::nullopt);
    }
    if (joined) order_->leave(*joined);
  }

 private:
  struct ticket_holder {
    nccl_communicator const& of;
    std::uint64_t ticket;
    ~ticket_holder() { of.give_back(ticket); }
  };
  /// Throws `why`, after an abort: what `look` throws in another thread too.
  template <class Error>
  [[noreturn]] void give_up(Error const& why) {
    {
      const std::lock_guard lock(mutex_);
      if (!aborted() && !cause_) cause_ = std::make_exception_ptr(why);
      if (cause_) aborted_.store(true, std::memory_order_release);  // who sees one sees both
    }
    abort();
    throw why;
  }
  [[nodiscard]] std::exception_ptr cause() const noexcept {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  void refuse_aborted(char const* name, error_place const& where) const {
    if (aborted())
      throw peer_error(where, text(name, " is impossible: this rank has left the group"), text("Look at this rank's first error"),
                       rank_);
  }
  [[nodiscard]] ncclResult_t ask() noexcept {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return ncclInvalidArgument;
    ncclResult_t code = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &code);
    return asked != ncclSuccess ? asked : code;
  }
  [[nodiscard]] text last_words() const {
    const std::lock_guard lock(mutex_);
    char const* const words = communicator_ != nullptr ? ncclGetLastError(communicator_) : nullptr;
    return text(std::string_view(words != nullptr ? words : ""));
  }
  /// Waits while NCCL works at a call.
  void settle(ncclResult_t code, char const* call, error_place const& where, double deadline, char const* advice) {
    const double from = steady_seconds();
    for (pause rest; code == ncclInProgress; rest()) {
      code = ask();
      refuse_aborted(call, where);
      if (code != ncclInProgress) break;
      if (steady_seconds() - from > deadline) {
        give_up(deadline_error(where, text(call, " did not end within ", deadline, " s: a rank did not come"),
                               text(std::string_view(advice))));
      }
    }
    if (code != ncclSuccess) give_up(nccl_failed(code, call, where, last_words().view()));
  }
  /// Whether NCCL has nothing to do any more; other ranks of this process may be asked for.
  [[nodiscard]] bool flush() noexcept {
    constexpr double timeout = 10;
    const double from = steady_seconds();
    ncclResult_t code = ncclCommFinalize(communicator_);
    for (pause rest; code == ncclInProgress && steady_seconds() - from < timeout; rest()) code = ask();
    return code == ncclSuccess;
  }

  mutable std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> aborted_ = false;
  std::exception_ptr cause_;  // of the abort, if a call on it was
  bool owned_;
  double deadline_;
  int rank_ = 0, size_ = 1;
  std::shared_ptr<device_order> order_;
  std::optional<bool> joined_;  // by an optimizer, and whether its rounds are the same everywhere
  std::weak_ptr<nccl_communicator> twin_;
};

}  // namespace ACCO_SIMD_NAMESPACE
