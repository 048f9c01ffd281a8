// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Seconds on the steady clock of this process, which all its threads share.
[[nodiscard]] inline double steady_seconds() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
/// That time in `seconds`, for waits: now where they are below 0 or not a number, and at most 1e9 s on.
[[nodiscard]] inline std::chrono::steady_clock::time_point steady_after(double seconds) noexcept {
  using clock = std::chrono::steady_clock;
  const double from_now = seconds > 0 ? (seconds < 1e9 ? seconds : 1e9) : 0;
  return clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(from_now));
}

}  // namespace ACCO_NAMESPACE
