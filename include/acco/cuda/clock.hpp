// SPDX-License-Identifier: Apache-2.0
// The clock of a trainer that enqueues its computation on a stream: events in that stream tell when it computed. Where
// the host is meanwhile says nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <cuda_runtime_api.h>

#include "acco/clock.hpp"
#include "acco/cuda/runtime.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/storage/host_clock.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Times on the GPU's clock, written as `steady_seconds()`: one event, the anchor, has both. Allocates nothing after
/// construction and waits for nothing.
///
/// At a boundary the host is ahead: what it has just enqueued behind a round is not computed yet when the round lands.
/// So a landing tells the computation of the part that the round *carried*, which is over, and exposes what the stream
/// has lost by then: the rest is told by the next landing.
class cuda_clock {
 public:
  explicit cuda_clock(cudaStream_t computation) : computation_(computation) {}

  /// As host_clock: the trainer's thread calls them; `land` after the host has waited for the round.
  void begin() {
    boundaries_ = resumed_at_ = told_ = started_at_ = carried_ = 0;
    paused_ = {};
    exposed_open_ = 0;
    resumed_[0].record(computation_);
  }
  void arrive(std::size_t micro_batches) {
    cuda_event& here = at(reached_, ++boundaries_);
    at(micro_batches_, boundaries_) = micro_batches;
    here.record(computation_);
    computing_ = &here;
  }
  /// The stream has nothing to do from here until `go_on`, which the host calls when it has waited for the stream.
  void interrupt() { interrupted_.record(computation_); }
  void go_on() {
    if (interrupted_.passed()) at(paused_, boundaries_ + 1) += std::max(0.0, steady_seconds() - time_of(interrupted_));
  }
  void start() noexcept { carried_ = std::exchange(started_at_, boundaries_) == boundaries_ ? 0 : boundaries_; }
  [[nodiscard]] computation_times land() {
    computation_times times;
    if (carried_ != 0) {  // not the second round that starts at one boundary
      const double paused = at(paused_, carried_);
      times.computed = {time_of(at(resumed_, carried_ - 1)) + paused, time_of(at(reached_, carried_))};
      times.exposed += paused;
      if (at(micro_batches_, carried_) != 0)
        micro_batch_ = times.computed.seconds() / static_cast<double>(at(micro_batches_, carried_));
    } else {
      times.computed = {anchor_time_, anchor_time_};
    }
    for (; told_ < resumed_at_ && at(resumed_, told_ + 1).passed(); ++told_)
      times.exposed += std::max(0.0, between(at(reached_, told_ + 1), at(resumed_, told_ + 1)) - std::exchange(exposed_open_, 0));
    // else nothing has waited for it
    if (told_ == resumed_at_ && told_ < boundaries_ && at(reached_, boundaries_).passed()) {
      const double open = std::max(exposed_open_, between(at(reached_, boundaries_), anchor_));
      times.exposed += open - std::exchange(exposed_open_, open);
    }
    return times;
  }
  void resume() {
    resumed_at_ = boundaries_;
    at(paused_, boundaries_ + 1) = 0;
    at(resumed_, boundaries_).record(computation_);
  }
  /// Of the last part whose end is known, so of the one before the part that ends here.
  [[nodiscard]] double micro_batch_seconds() const noexcept { return micro_batch_; }

  /// What the trainer has enqueued so far ends with this event, which the queue's tasks wait for.
  void ends_with(cuda_event const& event) noexcept { computing_ = &event; }
  /// Whether the stream is still at what was enqueued before the last boundary. Never blocks.
  [[nodiscard]] bool computing() {
    if (computing_ != nullptr && computing_->passed()) computing_ = nullptr;
    return computing_ != nullptr;
  }

  /// A micro-batch ends here in the stream.
  void pass() { passed_[++passes_ % passed_.size()].record(computation_); }
  /// Whether the stream has come to the last micro-batch: the one before has ended. Never blocks.
  [[nodiscard]] bool at_last_micro_batch() const { return passed_[(passes_ + 1) % passed_.size()].passed(); }

  /// When a past event was passed.
  [[nodiscard]] double time_of(cuda_event const& event) const { return anchor_time_ + between(anchor_, event); }
  /// Takes the event of a time that is known, for one that is old.
  void anchor(cuda_event& event, double time) noexcept {
    std::swap(anchor_, event);
    anchor_time_ = time;
  }
  /// Seconds from one past event to another, negative if that came first.
  [[nodiscard]] static double between(cuda_event const& from, cuda_event const& to) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  // Boundaries count from 1; 0 is `begin`. A landing looks two back, and finds the one before passed.
  template <class T>
  [[nodiscard]] static T& at(std::array<T, 4>& ring, std::size_t boundary) noexcept {
    return ring[boundary % ring.size()];
  }

  cudaStream_t computation_;
  cuda_event anchor_{true};
  double anchor_time_ = 0;
  std::array<cuda_event, 4> reached_{cuda_event(true), cuda_event(true), cuda_event(true), cuda_event(true)};
  std::array<cuda_event, 4> resumed_{cuda_event(true), cuda_event(true), cuda_event(true), cuda_event(true)};
  std::array<std::size_t, 4> micro_batches_{};
  std::array<double, 4> paused_{};  // seconds in the middle of the part that ends at a boundary
  cuda_event interrupted_{true};
  std::size_t boundaries_ = 0, resumed_at_ = 0;  // the last that was reached, and left
  std::size_t told_ = 0;                         // up to here all is told
  double exposed_open_ = 0;                      // of the boundary behind it, as told so far
  std::size_t started_at_ = 0, carried_ = 0;     // where the last round started; the part that it carried, 0: none
  double micro_batch_ = 0;
  cuda_event const* computing_ = nullptr;
  std::array<cuda_event, 2> passed_;
  std::size_t passes_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
