// SPDX-License-Identifier: Apache-2.0
// Whether this process is a copy: fork() copies the memory of a training, and none of the threads that it needs.
#pragma once

#include <atomic>

#include <pthread.h>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Counts the forks between a process and the first that has called it: 0 in that one, one more in each child's child.
/// Thread-safe.
[[nodiscard]] inline unsigned forks() noexcept {
  static std::atomic<unsigned> count{0};
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1); });
  return count.load(std::memory_order_relaxed);
}

}  // namespace ACCO_NAMESPACE
