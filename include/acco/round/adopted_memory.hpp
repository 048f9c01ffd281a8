// SPDX-License-Identifier: Apache-2.0
// The trainers' own arrays that optimizers of this process work in: none twice at a time. (Files that are compiled for
// other processors have a list of their own.)
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "acco/forks.hpp"
#include "acco/round/training_engine.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What one optimizer has adopted. While it trains nobody else may adopt it; it is free between `finish` and the next
/// micro-batch, after an error, and when the optimizer has ended. One thread at a time; different ones may be in
/// different threads: ranks are.
class adopted_memory {
 public:
  adopted_memory() = default;
  adopted_memory(adopted_memory const&) = delete;
  adopted_memory& operator=(adopted_memory const&) = delete;
  ~adopted_memory() { rest(); }

  /// Adds a range; an empty one is nothing. Only what is `trained` is taken from other optimizers: these may share
  /// what is frozen. Where it shares a byte with what this one has, or with what another trains, this one has nothing
  /// any more.
  [[nodiscard]] memory_shared_with claim(void const* memory, std::size_t bytes, bool trained) {
    if (memory == nullptr || bytes == 0) return memory_shared_with::nobody;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory), end = begin + bytes;
    memory_shared_with found = memory_shared_with::itself;
    try {
      if (add(mine_, {begin, end, trained, nullptr})) {
        found = !trained || take(begin, end) ? memory_shared_with::nobody : memory_shared_with::another;
        claimed_ = true;
      }
    } catch (...) {
      forget();
      throw;
    }
    if (found != memory_shared_with::nobody) forget();
    return found;
  }
  /// Whether another optimizer trains some of this memory now.
  [[nodiscard]] bool trained_elsewhere(void const* memory, std::size_t bytes) const {
    if (memory == nullptr || bytes == 0 || mine_.empty()) return false;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    process& here = of_process();
    const std::lock_guard lock(here.mutex);
    const auto found = first_behind(here.all, begin);
    return found != here.all.end() && found->begin < begin + bytes && found->owner != this;
  }
  /// Lets others have it, until `resume`.
  void rest() noexcept {
    if (!claimed_) return;
    claimed_ = false;
    try {
      process& here = of_process();
      const std::lock_guard lock(here.mutex);
      std::erase_if(here.all, [this](range const& each) { return each.owner == this; });
    } catch (...) {  // a forked process without memory for a list, which would be empty
    }
  }
  /// Takes it back; false where another optimizer has it now.
  [[nodiscard]] bool resume() {
    if (claimed_ || mine_.empty()) return true;
    claimed_ = true;
    for (range const& each : mine_) {
      if (each.trained && !take(each.begin, each.end)) {
        rest();
        return false;
      }
    }
    return true;
  }

 private:
  struct range {
    std::uintptr_t begin, end;
    bool trained;
    adopted_memory const* owner;
  };
  using ranges = std::vector<range>;  // in order; none overlaps another
  struct process {
    explicit process(unsigned of) : generation(of) {}
    unsigned generation;  // of forks
    std::mutex mutex;
    ranges all;
  };

  /// The first range that ends behind an address.
  [[nodiscard]] static ranges::const_iterator first_behind(ranges const& all, std::uintptr_t address) noexcept {
    return std::upper_bound(all.begin(), all.end(), address, [](std::uintptr_t a, range const& each) { return a < each.end; });
  }
  /// False where it overlaps another.
  [[nodiscard]] static bool add(ranges& all, range const& fresh) {
    const auto at = first_behind(all, fresh.begin);
    if (at != all.end() && at->begin < fresh.end) return false;
    all.insert(at, fresh);
    return true;
  }
  [[nodiscard]] bool take(std::uintptr_t begin, std::uintptr_t end) {
    process& here = of_process();
    const std::lock_guard lock(here.mutex);
    return add(here.all, {begin, end, true, this});
  }
  void forget() noexcept {
    rest();
    mine_.clear();
  }
  /// Never destroyed, because optimizers may be static; a forked process, whose memory is a copy, has one of its own.
  static process& of_process() {
    static std::atomic<process*> latest = nullptr;
    const unsigned generation = forks();
    process* found = latest.load(std::memory_order_acquire);
    while (found == nullptr || found->generation != generation) {
      auto made = std::make_unique<process>(generation);
      if (latest.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) found = made.release();
    }
    return *found;
  }

  ranges mine_;
  bool claimed_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE
