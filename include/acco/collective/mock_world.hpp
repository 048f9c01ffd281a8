// SPDX-License-Identifier: Apache-2.0
// A deterministic world of ranks that take turns: transfers complete when a script says so, buffers in flight are poisoned, calls
// and bytes are counted, and faults are injected. mock.hpp has the backend.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/mock_script.hpp"
#include "acco/collective/mock_turns.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

class mock_backend;

/// The world itself: `run` executes one function per rank, and the counters stay readable afterwards.
class mock_world {
 public:
  explicit mock_world(int ranks, mock_options options = {})
      : options_(std::move(options)), ranks_(static_cast<std::size_t>(ranks)), turns_(ranks_.size()) {
    if (ranks < 1) throw usage_error({}, text("a world of ", ranks, " ranks was asked for"), text("Use at least one rank"));
  }

  /// Runs function(mock_backend) on every rank, in turns: rank 0 until it waits or polls, then rank 1, and so on, always in the
  /// same order. A wait that no rank can end is an error that names who is missing. Rethrows like `threads_backend::run`. Once
  /// per world.
  template <class Function>
  void run(Function&& function);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] mock_counters const& counters(int rank) const { return ranks_[static_cast<std::size_t>(rank)].counters; }

 private:
  friend class mock_backend;
  using bytes = std::vector<unsigned char>;
  static constexpr unsigned char poison = 0xff;  // every float, double and bfloat16 of these bytes is a NaN

  struct death {};
  struct post {
    bool here = false;
    collective operation = collective::none;
    std::size_t count = 0, element = 0;
    int root = 0;
    bytes data;  // what the rank brought
  };
  struct exchange {
    std::size_t index;  // the same on every rank: how many collectives came before
    std::vector<post> posts;
    int arrived = 0, done = 0;
  };
  struct rank_state {
    mock_counters counters;
    std::size_t next = 0;  // index of the collective that comes next, or is under way
    bool posted = false, waiting = false, lost = false, dead = false;
    std::size_t polls_left = 0;
    error_place where;  // of the collective under way
    bytes output;       // what an accumulating operation found in its destination
  };

  [[nodiscard]] exchange* find(std::size_t index) {
    for (exchange& each : exchanges_) {
      if (each.index == index) return &each;
    }
    return nullptr;
  }
  [[nodiscard]] rank_state& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void wait(int rank) {
    state(rank).waiting = true;
    if (++fruitless_ > 2 * size()) {
      const rank_state& me = state(rank);
      exchange const* const under_way = find(me.next);
      text who;
      int first = -1;
      for (int peer = 0; under_way != nullptr && peer < size(); ++peer) {
        if (under_way->posts[static_cast<std::size_t>(peer)].here) continue;
        who.append(who.view().empty() ? "" : ", ").append(peer);
        if (first < 0) first = peer;
      }
      const char* operation =
          under_way == nullptr ? "a collective" : name_of(under_way->posts[static_cast<std::size_t>(rank)].operation);
      if (first < 0) {
        fail(rank, "its data were lost");
        throw deadline_error(me.where, text(operation, " never completed: its data were lost"),
                             text("Check the network between the ranks"));
      }
      fail(first, text("it did not come to ", operation).view());
      throw deadline_error(me.where, text("rank ", who, " did not come to ", operation, ", and no rank can go on"),
                           text("Check that it is alive and processes the same rounds"), first);
    }
    turns_.pass(rank);
  }
  void poll(int rank) {
    state(rank).waiting = false;
    fruitless_ = 0;  // the rank computes: that is progress
    turns_.pass(rank);
  }

  void fail(int rank, std::string_view reason) {
    if (failed_rank_ >= 0) return;
    failed_rank_ = rank;
    reason_ = text(reason);
  }

  /// Goes on with a rank's collective; called again and again until it is done. finish(posts) writes the output.
  template <class Finish>
  progress step(int rank, collective operation, std::span<unsigned char> in, std::span<unsigned char> out, bool adds,
                std::size_t element, int root, error_place where, Finish finish) {
    rank_state& me = state(rank);
    where.rank = rank;
    me.where = where;
    if (!me.posted) begin(rank, operation, in, out, adds, element, root, where.round);
    exchange& all = *find(me.next);
    if (all.arrived < size()) {
      if (failed_rank_ >= 0) {
        throw peer_error(where, text(name_of(operation), " is impossible because rank ", failed_rank_, " failed: ", reason_),
                         text("Look at rank ", failed_rank_, "'s own error first"), failed_rank_);
      }
      return progress::pending;
    }
    post const& mine = all.posts[static_cast<std::size_t>(rank)];
    for (int peer = 0; peer < size(); ++peer) {
      post const& other = all.posts[static_cast<std::size_t>(peer)];
      if (other.operation == mine.operation && other.count == mine.count && other.element == mine.element &&
          other.root == mine.root)
        continue;
      throw mismatch_error(where,
                           text("this rank calls ", name_of(operation), " of ", mine.count, " elements, rank ", peer, " calls ",
                                name_of(other.operation), " of ", other.count, " elements"),
                           text("Every rank must make the same calls in the same order"), peer);
    }
    if (me.lost) return progress::pending;
    if (me.polls_left > 0 && !me.waiting) {
      --me.polls_left;
      return progress::pending;
    }
    check_poison(in, where, "input");
    check_poison(out, where, "output");
    std::copy(mine.data.begin(), mine.data.end(), in.begin());
    if (adds) std::copy(me.output.begin(), me.output.end(), out.begin());
    finish(all.posts);
    me.posted = me.waiting = false;
    fruitless_ = 0;
    if (++all.done == size()) {
      std::swap(all, exchanges_.back());
      exchanges_.pop_back();
    }
    ++me.next;
    return progress::done;
  }

  void begin(int rank, collective operation, std::span<unsigned char> in, std::span<unsigned char> out, bool adds,
             std::size_t element, int root, std::int64_t round) {
    rank_state& me = state(rank);
    const mock_event event{rank, operation, me.next, round};
    const mock_fault fault = options_.fault(event);
    if (fault == mock_fault::death) {
      me.dead = true;
      throw death{};
    }
    if (find(me.next) == nullptr) exchanges_.push_back({me.next, std::vector<post>(ranks_.size()), 0, 0});
    exchange& all = *find(me.next);
    const std::size_t count = in.size() / element + (fault == mock_fault::mismatch ? 1 : 0);
    all.posts[static_cast<std::size_t>(rank)] = {true, operation, count, element, root, bytes(in.begin(), in.end())};
    ++all.arrived;
    const std::size_t whole = operation == collective::all_gather ? in.size() * ranks_.size() : in.size();
    ++me.counters.calls[static_cast<std::size_t>(operation)];
    me.counters.bytes[static_cast<std::size_t>(operation)] += bytes_sent(operation, size(), whole);
    if (adds) me.output.assign(out.begin(), out.end());
    std::fill(in.begin(), in.end(), poison);
    std::fill(out.begin(), out.end(), poison);
    me.posted = true;
    me.waiting = false;
    me.lost = fault == mock_fault::loss;
    me.polls_left = options_.delay(event);
    fruitless_ = 0;
  }

  static void check_poison(std::span<unsigned char const> buffer, error_place where, char const* which) {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] == poison) continue;
      throw usage_error(
          where, text("byte ", i, " of the ", which, " of a transfer was written while it was in flight"),
          text("Buffers in flight belong to the round: ask for gradients() and parameters() again after each report"));
    }
  }

  mock_options options_;
  std::vector<rank_state> ranks_;
  std::vector<exchange> exchanges_;  // those under way: very few
  int failed_rank_ = -1;
  text reason_;
  int fruitless_ = 0;  // waits in a row that brought nobody further
  mock_turns turns_;
};

}  // namespace ACCO_NAMESPACE
