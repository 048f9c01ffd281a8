// SPDX-License-Identifier: Apache-2.0
// How many steps a worker makes from one exchange to the next where its speed decides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// All workers come to the next exchange at the same time: a worker of v steps a second makes v T steps, at least one,
/// where T makes those of M workers M times `nominal` in sum. In arXiv 2401.09135 the fastest worker makes
/// `nominal`. Pure: seconds are given, on any clock of this worker's.
class steps_by_speed {
 public:
  explicit constexpr steps_by_speed(unsigned nominal) noexcept : nominal_(nominal), steps_(nominal) {}

  /// From one exchange to the next.
  [[nodiscard]] constexpr unsigned steps() const noexcept { return steps_; }
  /// Of a step, by what has been measured last and before; 0: nothing has.
  [[nodiscard]] constexpr double seconds() const noexcept { return seconds_; }

  /// The worker trains from now on.
  constexpr void begin(double now) noexcept {
    began_ = now;
    made_ = 0;
  }
  constexpr void made_step() noexcept { ++made_; }
  /// It comes to an exchange. Its speed: steps a second; 0: not known.
  [[nodiscard]] constexpr double arrive(double now) noexcept {
    if (made_ != 0 && now > began_) {
      const double measured = (now - began_) / static_cast<double>(made_);
      seconds_ = seconds_ == 0 ? measured : (seconds_ + measured) / 2;
    }
    return seconds_ == 0 ? 0 : 1 / seconds_;
  }
  /// So many workers make `all` steps a second together; 0: not known, and nothing changes.
  void decide(double all, double workers) noexcept {
    if (all <= 0 || seconds_ == 0) return;
    const double most = std::min(std::max(workers, 1.0) * nominal_, 4e9);
    steps_ = static_cast<unsigned>(std::clamp(std::round(most / (all * seconds_)), 1.0, most));
  }
  /// What was kept.
  constexpr void set(unsigned steps, double seconds) noexcept {
    steps_ = steps;
    seconds_ = seconds;
  }
  /// All ranks of a worker take what its first one has decided, by broadcast(bytes).
  template <class Broadcast>
  void agree(Broadcast&& broadcast) {
    double decided[] = {static_cast<double>(steps_), seconds_};
    broadcast(std::span(reinterpret_cast<char*>(decided), sizeof(decided)));
    set(static_cast<unsigned>(decided[0]), decided[1]);
  }

 private:
  unsigned nominal_, steps_;
  std::uint64_t made_ = 0;  // since `begin`
  double began_ = 0, seconds_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
