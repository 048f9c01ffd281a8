// SPDX-License-Identifier: Apache-2.0
// How the host waits for what it has to ask again and again.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "acco/clock.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Called between two looks: at first returns at once, then after naps that grow to a fifth of a millisecond.
class pause {
 public:
  void operator()() {
    constexpr double impatient = 50e-6;
    constexpr std::chrono::microseconds longest{200};
    if (steady_seconds() - from_ < impatient) return;
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 2, longest);
  }

 private:
  double from_ = steady_seconds();
  std::chrono::microseconds nap_{5};
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
