// SPDX-License-Identifier: Apache-2.0
// One order for the collectives of all communicators on a GPU: kernels that wait for other ranks must not wait for each
// other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

#include "acco/cuda/runtime.hpp"
#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A GPU's, in this process. What is issued through it runs on the GPU in the order of tickets, whichever streams it is
/// for, and whichever threads issue it. A trainer's thread takes a ticket when it calls a collective. So the order is
/// the same on all ranks where the trainers call their optimizers in the same order, and no part of a step is longer on
/// one rank than on another. Any thread.
class device_order {
 public:
  /// Of the calling thread's GPU.
  [[nodiscard]] static std::shared_ptr<device_order> of_this_device() {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<device_order>> all;
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    const std::lock_guard lock(mutex);
    std::shared_ptr<device_order> found = all[device].lock();
    if (!found) all[device] = found = std::make_shared<device_order>();
    return found;
  }

  /// The next place in the order. It must be given back, by whatever comes of what it was taken for: others wait for
  /// that.
  [[nodiscard]] std::uint64_t take() {
    const std::lock_guard lock(mutex_);
    if (taken_ - turn_ == back_.size()) make_room();
    return taken_++;
  }
  void give_back(std::uint64_t ticket) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (ticket < turn_) return;
      back_[ticket % back_.size()] = true;
      for (; turn_ != taken_ && back_[turn_ % back_.size()]; ++turn_) back_[turn_ % back_.size()] = false;
    }
    changed_.notify_all();
  }
  /// Waits until all tickets before this one are back; false if `given_up` was set meanwhile (and `wake` called). It
  /// has no deadline: another optimizer's part may still be computed, and nobody is late. Who waits for the round sets
  /// `given_up` at its deadline.
  [[nodiscard]] bool comes(std::uint64_t ticket, std::atomic<bool> const& given_up) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == ticket || given_up.load(std::memory_order_acquire); });
    return turn_ == ticket;
  }
  /// Those who wait look whether they have been given up.
  void wake() noexcept {
    {
      const std::lock_guard lock(mutex_);
    }  // who has looked sleeps by now
    changed_.notify_all();
  }

  /// `call` enqueues on `stream` what belongs to `who`: it runs after what others have issued before. Whoever has the
  /// turn calls it, so one thread at a time.
  template <class Call>
  void issue(void const* who, cudaStream_t stream, Call&& call) {
    if (last_ != nullptr && last_ != who) end_.hold(stream);
    call();
    end_.record(stream);
    last_ = who;
  }

  /// An optimizer that will issue through it joins the others; `same_everywhere`: its rounds start after as many
  /// micro-batches on every rank. Throws `usage_error` where the ranks' orders could differ, alike on all ranks; then
  /// it has not joined.
  void join(bool same_everywhere, error_place where) {
    const std::lock_guard lock(mutex_);
    if (optimizers_ != 0 && (!same_everywhere || elastic_ != 0)) {
      throw usage_error(
          where,
          text("several optimizers use NCCL on one GPU, and the order of their collectives could differ from rank to rank"),
          text("Give all of them fixed_pace or auto_pace"));
    }
    ++optimizers_;
    elastic_ += same_everywhere ? 0 : 1;
  }
  void leave(bool same_everywhere) noexcept {
    const std::lock_guard lock(mutex_);
    --optimizers_;
    elastic_ -= same_everywhere ? 0 : 1;
  }

 private:
  void make_room() {
    std::vector<bool> larger(2 * back_.size());
    for (std::uint64_t each = turn_; each != taken_; ++each) larger[each % larger.size()] = back_[each % back_.size()];
    back_.swap(larger);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t taken_ = 0, turn_ = 0;  // the ticket that is taken next; the first that is not back
  // by ticket: more than rounds in flight have collectives
  std::vector<bool> back_ = std::vector<bool>(std::size_t{1} << 15U);
  cuda_event end_;
  void const* last_ = nullptr;
  std::size_t optimizers_ = 0, elastic_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE
