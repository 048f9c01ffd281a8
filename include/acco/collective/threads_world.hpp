// SPDX-License-Identifier: Apache-2.0
// How ranks as threads start, find each other, and end. acco::compiled has it: who links that does not see this header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/joining_thread.hpp"
#include "acco/collective/meeting_point.hpp"
#include "acco/collective/split.hpp"
#include "acco/collective/threads.hpp"
#include "acco/error.hpp"
#include "acco/function_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The ranks of one process, and the channels over which they meet: a meeting point each. The k-th channel that a rank
/// opens is the k-th of every rank. A failure concerns its channel; a rank that ends leaves them all.
class threads_world : public std::enable_shared_from_this<threads_world> {
 public:
  explicit threads_world(int ranks) : opened_(static_cast<std::size_t>(ranks), 0), left_(opened_.size()) {}

  [[nodiscard]] std::shared_ptr<meeting_point> open(int rank) {
    const std::lock_guard lock(mutex_);
    const std::size_t index = opened_[static_cast<std::size_t>(rank)]++ - first_awaited_;
    if (index == awaited_.size()) {
      auto fresh = std::make_shared<meeting_point>(static_cast<int>(opened_.size()));
      for (std::size_t peer = 0; peer < left_.size(); ++peer) {
        if (left_[peer].failed) fresh->fail(static_cast<int>(peer), left_[peer].reason.view());
        if (left_[peer].ended) fresh->leave(static_cast<int>(peer), has_returned);
      }
      awaited_.push_back({std::move(fresh), 0});
    }
    const std::shared_ptr<meeting_point> point = awaited_[index].point;
    if (++awaited_[index].takers == opened_.size()) {  // the first of them: each rank opens them in their order
      std::erase_if(taken_, [](auto const& each) { return each.expired(); });
      taken_.push_back(point);  // whoever uses it owns it
      awaited_.erase(awaited_.begin());
      ++first_awaited_;
    }
    return point;
  }
  /// The world of some of this world's ranks, which have agreed on it over a channel; each of them takes it once before
  /// any of them agrees there on the next.
  [[nodiscard]] std::shared_ptr<threads_world> part(std::shared_ptr<meeting_point> const& over, std::vector<int> const& members) {
    const std::lock_guard lock(mutex_);
    auto mine = std::find_if(parts_.begin(), parts_.end(), [&](split_world const& each) {
      return each.waiting != nullptr && each.over == over && each.members == members;
    });
    if (mine == parts_.end()) {
      std::erase_if(parts_, [](split_world const& each) { return each.world.expired(); });
      auto fresh = std::make_shared<threads_world>(static_cast<int>(members.size()));
      for (std::size_t there = 0; there < members.size(); ++there) {
        departure const& how = left_[static_cast<std::size_t>(members[there])];
        if (how.failed) fresh->fail(static_cast<int>(there), how.reason.view());
        if (how.ended) fresh->leave(static_cast<int>(there));
      }
      mine = parts_.insert(parts_.end(), {over, members, fresh, fresh, 0});
    }
    const std::shared_ptr<threads_world> world = mine->waiting;
    if (++mine->takers == members.size()) {  // whoever uses it owns it
      mine->waiting = nullptr;
      mine->over = nullptr;
      world->whole_ = shared_from_this();  // not before: that would be a ring
    }
    return world;
  }
  /// A rank's function has ended: in peace, or with an exception.
  void leave(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)].ended = true;
    for_open([&](meeting_point& each) { each.leave(rank, has_returned); });
    for_parts(rank, [](threads_world& each, int there) { each.leave(there); });
  }
  void fail(int rank, std::string_view reason) noexcept {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = {true, true, text(reason)};
    for_open([&](meeting_point& each) { each.fail(rank, reason); });
    for_parts(rank, [&](threads_world& each, int there) { each.fail(there, reason); });
  }

 private:
  static constexpr char const* has_returned = "has returned";
  struct channel {
    std::shared_ptr<meeting_point> point;
    std::size_t takers;
  };
  struct split_world {
    std::shared_ptr<meeting_point> over;
    std::vector<int> members;
    std::shared_ptr<threads_world> waiting;  // for members that have not taken it yet
    std::weak_ptr<threads_world> world;
    std::size_t takers;
  };
  struct departure {
    bool ended = false, failed = false;
    text reason;
  };
  template <class Visit>
  void for_open(Visit&& visit) const noexcept {
    for (channel const& each : awaited_) visit(*each.point);
    for (auto const& each : taken_) {
      if (const auto point = each.lock()) visit(*point);
    }
  }

  /// Visits the worlds of which a rank is a member, with its rank there.
  template <class Visit>
  void for_parts(int rank, Visit&& visit) const {
    for (split_world const& each : parts_) {
      const auto found = std::find(each.members.begin(), each.members.end(), rank);
      if (found == each.members.end()) continue;
      if (const auto part = each.world.lock()) visit(*part, static_cast<int>(found - each.members.begin()));
    }
  }

  std::mutex mutex_;
  std::vector<channel> awaited_;  // some ranks have not opened them yet
  std::size_t first_awaited_ = 0;
  // those that are still used, and since the last one perhaps some more
  std::vector<std::weak_ptr<meeting_point>> taken_;
  std::vector<split_world> parts_;
  std::shared_ptr<threads_world> whole_;  // of a part: from there it hears who has ended
  std::vector<std::size_t> opened_;       // by rank
  std::vector<departure> left_;
};

ACCO_ONCE threads_backend::threads_backend(std::shared_ptr<threads_world> all, int rank)
    : world_(std::move(all)), point_(world_->open(rank)), rank_(rank) {}

ACCO_ONCE std::vector<threads_backend> threads_backend::world(int ranks) {
  constexpr int most = 65536;
  if (ranks < 1 || ranks > most)
    throw usage_error({}, text("a world of ", ranks, " ranks was asked for"), text("Use 1 to ", most, " ranks"));
  const auto all = std::make_shared<threads_world>(ranks);
  std::vector<threads_backend> handles;
  handles.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) handles.push_back(threads_backend(all, rank));
  return handles;
}

ACCO_ONCE threads_backend threads_backend::duplicate() const { return {world_, rank_}; }

ACCO_ONCE threads_backend threads_backend::split(int color, int key, double deadline) const {
  const split_result mine = agree_on_split(*this, color, key, deadline);
  return {world_->part(point_, mine.members), mine.rank};
}

ACCO_ONCE void threads_backend::run_each(int ranks, function_view<void(threads_backend const&)> function) {
  const std::vector<threads_backend> handles = world(ranks);
  std::mutex mutex;
  std::exception_ptr cause, consequence;
  const auto trains = [&](threads_backend const& handle) {
    const auto record = [&](std::exception_ptr& where, char const* what) {
      const std::lock_guard lock(mutex);
      if (!where) where = std::current_exception();
      handle.world_->fail(handle.rank_, what);
    };
    try {
      function(handle);
      handle.world_->leave(handle.rank_);
    } catch (peer_error const& e) {
      record(consequence, e.what());
    } catch (std::exception const& e) {
      record(cause, e.what());
    } catch (...) {
      record(cause, "an exception that is not a std::exception");
    }
  };
  {
    std::vector<joining_thread> threads;
    threads.reserve(handles.size());
    try {
      for (threads_backend const& handle : handles) threads.emplace_back(trains, handle);
      // no thread, or no memory: those that were started are not to wait for the others
    } catch (std::exception const& e) {
      const auto first = static_cast<int>(threads.size());
      const std::lock_guard lock(mutex);
      try {
        throw usage_error({.rank = first, .round = -1, .phase = "start-up"},
                          text("its thread cannot be started: ", std::string_view(e.what())),
                          text("Use fewer ranks: this system has no room for ", ranks, " threads"));
      } catch (usage_error const& failed) {
        if (!cause) cause = std::current_exception();
        for (int rank = first; rank < ranks; ++rank) handles.front().world_->fail(rank, failed.what());
      }
    }
  }
  if (cause) std::rethrow_exception(cause);
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
