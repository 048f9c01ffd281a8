// SPDX-License-Identifier: Apache-2.0
// Threads that take turns: one runs at a time, always in the same order, so every run of a test is the same.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Turns of `count` threads; thread 0 has the first. Between `await` and `pass` or `end` a thread has everything to
/// itself.
class mock_turns {
 public:
  explicit mock_turns(std::size_t count) : ended_(count, false) {}

  void await(int of) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == of; });
  }
  /// The next thread's turn; returns at the caller's own next one.
  void pass(int from) {
    give(from, false);
    await(from);
  }
  /// The caller takes no more turns.
  void end(int from) { give(from, true); }

 private:
  void give(int from, bool ends) {
    {
      const std::lock_guard lock(mutex_);
      const auto count = static_cast<int>(ended_.size());
      if (ends) ended_[static_cast<std::size_t>(from)] = true;
      for (int step = 1; step <= count; ++step) {
        const int next = (from + step) % count;
        if (ended_[static_cast<std::size_t>(next)]) continue;
        turn_ = next;
        break;
      }
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  std::vector<bool> ended_;
};

}  // namespace ACCO_SIMD_NAMESPACE
