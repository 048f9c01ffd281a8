// SPDX-License-Identifier: Apache-2.0
// The clock of a trainer that computes in its own thread. cuda/clock.hpp has the same for one that enqueues.
#pragma once

#include <cstddef>

#include "acco/clock.hpp"
#include "acco/observe/round_report.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What the clock tells of the trainer's computation when a round lands.
struct computation_times {
  time_interval computed;  ///< a part's computation, told once
  double exposed = 0;      ///< seconds that the computation has lost to the engine and that no round has told yet
};

/// Between `resume` and `arrive` the trainer computes, but for interruptions; between `arrive` and `resume`, a
/// boundary, the engine has the thread. The trainer's thread calls all members.
class host_clock {
 public:
  /// The trainer computes from now on; what was before belongs to no round.
  void begin() noexcept {
    resumed_ = steady_seconds();
    exposed_ = 0;
  }
  /// A part has been computed: so many micro-batches.
  void arrive(std::size_t micro_batches) noexcept {
    told_ = steady_seconds();
    computed_ = {resumed_, told_};
    if (micro_batches != 0) micro_batch_ = computed_.seconds() / static_cast<double>(micro_batches);
  }
  /// A round starts, and carries what was computed.
  void start() const noexcept {}
  /// A round has landed. `computed` is what was computed before this boundary, behind the round.
  [[nodiscard]] computation_times land() noexcept {
    tell();
    const computation_times times{computed_, exposed_};
    exposed_ = 0;
    computed_.begin = computed_.end;  // told once, also when several rounds end at one boundary
    return times;
  }
  void resume() noexcept {
    tell();
    resumed_ = told_;
  }
  /// The engine has the thread in the middle of a part, for a question of the trainer's; until `go_on`.
  void interrupt() noexcept { told_ = steady_seconds(); }
  void go_on() noexcept {
    const double from = told_;
    tell();
    resumed_ += told_ - from;
  }
  /// Seconds of a micro-batch, in the part that was computed last; 0 when there was none.
  [[nodiscard]] double micro_batch_seconds() const noexcept { return micro_batch_; }

 private:
  void tell() noexcept {
    const double now = steady_seconds();
    exposed_ += now - told_;
    told_ = now;
  }

  double resumed_ = 0, told_ = 0;
  time_interval computed_;
  double exposed_ = 0, micro_batch_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE
