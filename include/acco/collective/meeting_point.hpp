// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one process wait for each other.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "acco/clock.hpp"
#include "acco/collective/impossible.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where the ranks of one process meet: each brings a `post` (what it calls, and where its data lie), and goes on when
/// all have come. The first failure is final: from then on every wait throws, and names the rank that failed. Whoever
/// waits for a rank that has left is told at once.
class meeting_point {
 public:
  struct post {
    collective operation = collective::none;
    std::size_t count = 0;    ///< elements of the whole
    std::size_t element = 0;  ///< bytes each
    int root = 0;
    void const* data = nullptr;
    void* ready = nullptr;  ///< of a queue that orders other memory: when the data
                            ///< may be read, when this rank has read the others'
    void* read = nullptr;
    [[nodiscard]] impossible::call call() const noexcept { return {operation, count, element, root}; }
  };

  explicit meeting_point(int ranks);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(posts_.size()); }
  [[nodiscard]] post const& of(int rank) const noexcept { return posts_[static_cast<std::size_t>(rank)]; }

  /// Brings this rank's post and waits for the others'; throws `mismatch_error` if they call something else.
  void arrive(int rank, post mine, error_place where, double deadline);

  /// Waits until every rank is done reading the others' data: whoever has arrived will depart, whatever fails
  /// meanwhile, so that no rank frees a buffer that another one reads. One that has failed is waited for as long as it
  /// takes (`run_out`).
  void depart(error_place where, double deadline);
  /// A rank that has arrived has failed: the others hear of it, and wait until what it has begun has run out, which
  /// needs none of them; then `has_run_out`, in front of its last `depart`.
  void run_out(int rank, std::string_view reason) noexcept {
    {
      const std::lock_guard lock(mutex_);
      ++running_out_;
    }
    fail(rank, reason);
    changed_.notify_all();
  }
  void has_run_out() noexcept {
    {
      const std::lock_guard lock(mutex_);
      --running_out_;
    }
    changed_.notify_all();
  }

  /// Records that a rank failed; wakes everyone. Only the first record counts.
  void fail(int rank, std::string_view reason) noexcept;
  /// A rank leaves in peace; `how` is a literal: "has returned". Whoever waits for it from now on is told so.
  void leave(int rank, char const* how) noexcept;

  /// The others have read what a rank brought.
  void count(int rank) noexcept;
  [[nodiscard]] std::uint64_t sent(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    return sent_[static_cast<std::size_t>(rank)];
  }

 private:
  void wait_for_all(int rank, post const& brought, error_place where, double deadline);
  [[noreturn]] void throw_failure(error_place const& where, collective operation) const {
    if (gone_ != nullptr) impossible::throw_departed(where, operation, failed_rank_, gone_, [](text const&) {});
    impossible::throw_failed(where, operation, failed_rank_, reason_.view());
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<post> posts_;
  std::vector<bool> came_;
  std::vector<char const*> left_;
  std::vector<std::uint64_t> sent_;
  std::uint64_t generation_ = 0, departures_ = 0;
  int arrived_ = 0, departed_ = 0, running_out_ = 0;
  int failed_rank_ = -1;
  char const* gone_ = nullptr;  // how that rank left, if it did so in peace
  text reason_;
};

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE meeting_point::meeting_point(int ranks)
    : posts_(static_cast<std::size_t>(ranks)),
      came_(static_cast<std::size_t>(ranks), false),
      left_(static_cast<std::size_t>(ranks), nullptr),
      sent_(static_cast<std::size_t>(ranks), 0) {}
ACCO_ONCE void meeting_point::arrive(int rank, post mine, error_place where, double deadline) {
  where.rank = rank;
  wait_for_all(rank, mine, where, deadline);
  for (int peer = 0; peer < size(); ++peer) {
    post const& other = of(peer);
    if (other.call() == mine.call()) continue;
    fail(rank, "the ranks called different operations");
    impossible::throw_mismatch(where, mine.call(), peer, other.call());
  }
}
ACCO_ONCE void meeting_point::depart(error_place where, double deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = departures_;
  if (++departed_ == size()) {
    departed_ = 0;
    ++departures_;
    lock.unlock();
    changed_.notify_all();
    return;
  }
  const auto gone = [&] { return departures_ != mine; };
  for (auto until = steady_after(deadline); !gone(); until = steady_after(deadline)) {
    if (running_out_ != 0) {
      changed_.wait(lock, [&] { return gone() || running_out_ == 0; });
    } else if (!changed_.wait_until(lock, until, [&] { return gone() || running_out_ != 0; })) {
      throw deadline_error(where, text("a rank has come to a collective and did not end it within ", deadline, " s"),
                           text("Its thread was stopped in the middle of a copy: look at it with a debugger"));
    }
  }
}
ACCO_ONCE void meeting_point::fail(int rank, std::string_view reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failed_rank_ >= 0) return;
    failed_rank_ = rank;
    reason_ = text(reason);
  }
  changed_.notify_all();
}
ACCO_ONCE void meeting_point::leave(int rank, char const* how) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (left_[static_cast<std::size_t>(rank)] == nullptr) left_[static_cast<std::size_t>(rank)] = how;
  }
  changed_.notify_all();
}
ACCO_ONCE void meeting_point::count(int rank) noexcept {
  post const& mine = of(rank);
  const std::lock_guard lock(mutex_);
  sent_[static_cast<std::size_t>(rank)] +=
      bytes_handed_over(mine.operation, size(), mine.count * mine.element, mine.root == rank);
}
ACCO_ONCE void meeting_point::wait_for_all(int rank, post const& brought, error_place where, double deadline) {
  const collective operation = brought.operation;
  std::unique_lock lock(mutex_);
  if (failed_rank_ >= 0) throw_failure(where, operation);
  const std::uint64_t mine = generation_;
  posts_[static_cast<std::size_t>(rank)] = brought;
  came_[static_cast<std::size_t>(rank)] = true;
  if (++arrived_ == size()) {
    arrived_ = 0;
    std::fill(came_.begin(), came_.end(), false);
    ++generation_;
    lock.unlock();
    changed_.notify_all();
    return;
  }
  const auto until = steady_after(deadline);
  for (;;) {
    if (generation_ != mine) return;  // complete: a later failure does not concern this wait
    if (failed_rank_ >= 0) throw_failure(where, operation);
    for (int peer = 0; peer < size(); ++peer) {
      char const* const how = left_[static_cast<std::size_t>(peer)];
      if (how == nullptr || came_[static_cast<std::size_t>(peer)]) continue;
      impossible::throw_departed(where, operation, peer, how, [&](text const& reason) {
        failed_rank_ = peer;
        gone_ = how;
        reason_ = reason;
        lock.unlock();
        changed_.notify_all();
      });
    }
    if (changed_.wait_until(lock, until) == std::cv_status::timeout && generation_ == mine && failed_rank_ < 0) {
      auto const [who, missing] = ranks_where(size(), [&](int peer) { return !came_[static_cast<std::size_t>(peer)]; });
      failed_rank_ = missing;
      reason_ = text("it did not come to ", name_of(operation), " within ", deadline, " s");
      lock.unlock();
      changed_.notify_all();
      throw deadline_error(where, text("rank ", who, " did not come to ", name_of(operation), " within ", deadline, " s"),
                           text("Check that it is alive and processes the same rounds, or raise the deadline "
                                "(options::deadline, or that of split)"),
                           missing);
    }
  }
}
#endif

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
