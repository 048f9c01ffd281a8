// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Seconds on the steady clock of this process, which all its threads share.
[[nodiscard]] inline double steady_seconds() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ACCO_NAMESPACE
