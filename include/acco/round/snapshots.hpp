// SPDX-License-Identifier: Apache-2.0
// Copies of this rank's part of the state in memory, to go back to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "acco/function_view.hpp"
#include "acco/layout/partition.hpp"
#include "acco/round/state_keeper.hpp"
#include "acco/round/state_staging.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Owns them. The trainer's thread calls all members; all ranks do alike, so they have the same ones.
template <class Storage>
class state_snapshots {
 public:
  using staging = state_staging<Storage>;

  /// `count` of them, one of which is the next to be; make() gives each.
  template <class Make>
  state_snapshots(std::size_t count, Make&& make) {
    for (std::size_t k = 0; k < count; ++k) kept_.push_back(make());
  }

  /// Where a new one goes. It is none until `taken`, which lets the oldest go where no other place is left for the next.
  [[nodiscard]] staging* next() noexcept { return kept_[valid_].get(); }
  void taken() noexcept {
    if (++valid_ < kept_.size()) return;
    std::rotate(kept_.begin(), kept_.begin() + 1, kept_.end());
    --valid_;
  }

  /// The newest that has committed at most so many updates; or null.
  [[nodiscard]] staging const* newest(std::uint64_t steps) const noexcept {
    for (std::size_t k = valid_; k-- > 0;) {
      if (kept_[k]->numbers.steps() <= steps) return kept_[k].get();
    }
    return nullptr;
  }
  [[nodiscard]] staging const* oldest() const noexcept { return valid_ == 0 ? nullptr : kept_[0].get(); }
  /// Those after this one are of a time that did not happen.
  void drop_after(staging const* kept) noexcept {
    while (valid_ > 0 && kept_[valid_ - 1].get() != kept) --valid_;
  }
  /// Those of this round, and later ones, may hold wrong parameters.
  void drop_since(std::uint64_t round) noexcept {
    while (valid_ > 0 && kept_[valid_ - 1]->numbers.run.round >= round) --valid_;
  }

 private:
  std::vector<std::unique_ptr<staging>> kept_;  // the first `valid_` are snapshots, the oldest first
  std::size_t valid_ = 0;
};

/// A state that comes back from such a copy. What is frozen is what it is now: `read_frozen(tensor, to)` gives it.
class snapshot_source final : public state_source {
 public:
  /// Both must outlive it.
  snapshot_source(state_view const& copy, function_view<void(std::size_t, std::byte*)> read_frozen)
      : copy_(copy), frozen_(read_frozen) {}

  [[nodiscard]] run_numbers const& numbers() const noexcept override { return *copy_.numbers; }
  [[nodiscard]] bool has(std::size_t array) const noexcept override {
    if (array == copy_.shape.shown()) return copy_.shows;
    if (array == copy_.shape.arriving()) return copy_.arrives;
    return true;
  }
  void expect(std::size_t, std::size_t, std::size_t) override {}
  void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) override {
    const std::size_t size = size_of(copy_.shape.type(array));
    copy_.shares.for_shares(copy_.rank, [&](std::size_t offset, std::size_t begin, std::size_t n) {
      if (first >= begin && first < begin + n)
        std::memcpy(to, copy_.arrays[array] + (offset + first - begin) * size, count * size);
    });
  }
  void read_frozen(std::size_t tensor, std::byte* to) override { frozen_(tensor, to); }

 private:
  state_view copy_;
  function_view<void(std::size_t, std::byte*)> frozen_;
};

}  // namespace ACCO_SIMD_NAMESPACE
