// SPDX-License-Identifier: Apache-2.0
// Whether this process is a copy: fork() copies the memory of a training, and none of the threads that it needs.
#pragma once

#include <pthread.h>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Counts the forks between a process and the first that has called it: 0 in that one, one more in each child's child.
/// Thread-safe.
[[nodiscard]] ACCO_VISIBLE inline unsigned forks() noexcept {
  static unsigned count = 0;  // by the compiler's builtins: <atomic> costs more than all that includes this
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { __atomic_fetch_add(&count, 1U, __ATOMIC_RELAXED); });
  return __atomic_load_n(&count, __ATOMIC_RELAXED);
}

}  // namespace ACCO_NAMESPACE
