// SPDX-License-Identifier: Apache-2.0
// The trainers' own arrays that optimizers of this process work in: none twice. (Files that are compiled for other processors
// have a list of their own.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "acco/round/training_engine.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What one optimizer has adopted; given back when it ends. Thread-safe: ranks may be threads.
class adopted_memory {
 public:
  adopted_memory() = default;
  adopted_memory(adopted_memory const&) = delete;
  adopted_memory& operator=(adopted_memory const&) = delete;
  ~adopted_memory() { give_back(); }

  /// Adds a stretch; an empty one is nothing. Where it shares a byte with one that has been claimed, everything of this optimizer
  /// is given back.
  [[nodiscard]] memory_shared_with claim(void const* memory, std::size_t bytes) {
    if (memory == nullptr || bytes == 0) return memory_shared_with::nobody;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory), end = begin + bytes;
    memory_shared_with found = memory_shared_with::nobody;
    {
      process& all = of_process();
      const std::lock_guard lock(all.mutex);
      auto const behind = all.stretches.lower_bound(begin);
      adopted_memory const* with = nullptr;
      if (behind != all.stretches.end() && behind->first < end) with = behind->second.owner;
      if (behind != all.stretches.begin()) {
        if (auto const before = std::prev(behind); before->second.end > begin) with = before->second.owner;
      }
      if (with == nullptr) {
        mine_.push_back(begin);
        try {
          all.stretches.emplace_hint(behind, begin, stretch{end, this});
        } catch (...) {
          mine_.pop_back();
          throw;
        }
      } else {
        found = with == this ? memory_shared_with::itself : memory_shared_with::another;
      }
    }
    if (found != memory_shared_with::nobody) give_back();
    return found;
  }

 private:
  struct stretch {
    std::uintptr_t end;
    adopted_memory const* owner;
  };
  struct process {
    std::mutex mutex;
    std::map<std::uintptr_t, stretch> stretches;  // by their begin
  };
  /// Never destroyed: optimizers may be static.
  static process& of_process() {
    static auto* const one = new process;
    return *one;
  }
  void give_back() noexcept {
    if (mine_.empty()) return;
    process& all = of_process();
    const std::lock_guard lock(all.mutex);
    for (const std::uintptr_t begin : mine_) all.stretches.erase(begin);
    mine_.clear();
  }

  std::vector<std::uintptr_t> mine_;
};

}  // namespace ACCO_SIMD_NAMESPACE
