// SPDX-License-Identifier: Apache-2.0
// How the ranks of a mock_world take turns, and what they bring each other. acco::compiled has it, as it has
// threads_world.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/impossible.hpp"
#include "acco/collective/joining_thread.hpp"
#include "acco/collective/mock/backend.hpp"
#include "acco/collective/mock/script.hpp"
#include "acco/collective/mock/turns.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/collective/split.hpp"
#include "acco/error.hpp"
#include "acco/function_view.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

struct mock_subworld;

/// Collectives of one optimizer, or of the world's own handles.
struct mock_channel {
  using bytes = std::vector<unsigned char>;
  struct post {
    bool here = false;
    impossible::call call{};
    bytes data;  // what the rank brought
  };
  struct meeting {
    std::size_t index;  // the same on every rank: how many collectives came before
    std::vector<post> posts;
    std::vector<void const*> sources;  // the posts' data
    int arrived = 0, done = 0;
  };
  /// A rank's end of the channel.
  struct end_state {
    std::size_t next = 0;  // index of the collective that comes next, or is under way
    bool posted = false, lost = false;
    std::size_t polls_left = 0;
    char const* left = nullptr;  // how, if it left in peace
    error_place where;           // of the collective under way
    bytes output;                // what an accumulating operation found in its destination
    std::uint64_t sent = 0;
  };

  mock_subworld* of;
  std::vector<end_state> ends;    // by rank in the subworld
  std::vector<meeting> meetings;  // those under way: very few
  int failed_rank = -1;
  text reason;
};

/// All ranks, or those of a part after a split, in their order. The k-th channel that a rank opens is every rank's.
struct mock_subworld {
  std::vector<int> members;  // ranks of the world
  std::vector<std::size_t> opened;
  std::vector<std::unique_ptr<mock_channel>> channels;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
  /// Its rank here, or -1.
  [[nodiscard]] int rank_of(int member) const noexcept {
    const auto found = std::find(members.begin(), members.end(), member);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  }
};

class mock_ranks {
 public:
  mock_ranks(int ranks, mock_options options) : options_(std::move(options)), ranks_(at_least_one(ranks)), turns_(ranks_.size()) {
    std::vector<int> all(ranks_.size());
    std::iota(all.begin(), all.end(), 0);
    subworlds_.push_back(std::make_unique<mock_subworld>(mock_subworld{all, std::vector<std::size_t>(all.size()), {}}));
  }

 private:
  friend class mock_world;
  friend class mock_backend;
  using meeting = mock_channel::meeting;
  using end_state = mock_channel::end_state;
  using post = mock_channel::post;
  static constexpr unsigned char poison = 0xff;  // every float, double and bfloat16 of these bytes is a NaN

  struct death {};
  /// Of a rank of the world.
  struct rank_state {
    mock_counters counters;
    std::size_t events = 0;  // collectives begun, in all channels
    bool waiting = false, dead = false, ended = false, failed = false;
    text reason;
  };

  [[nodiscard]] static std::size_t at_least_one(int ranks) {
    if (ranks < 1) throw usage_error({}, text("a world of ", ranks, " ranks was asked for"), text("Use at least one rank"));
    return static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] static meeting* find(mock_channel& in, std::size_t index) {
    for (meeting& each : in.meetings) {
      if (each.index == index) return &each;
    }
    return nullptr;
  }
  [[nodiscard]] rank_state& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] static end_state& end_of(mock_channel& in, int rank) { return in.ends[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] static int member(mock_channel const& in, int rank) { return in.of->members[static_cast<std::size_t>(rank)]; }

  /// The next channel of a rank of a subworld.
  [[nodiscard]] mock_channel* open(mock_subworld& in, int rank) {
    const std::size_t index = in.opened[static_cast<std::size_t>(rank)]++;
    if (index == in.channels.size()) {
      in.channels.push_back(
          std::make_unique<mock_channel>(mock_channel{&in, std::vector<end_state>(in.members.size()), {}, -1, text()}));
      for (int peer = 0; peer < in.size(); ++peer) {
        rank_state const& theirs = state(member(*in.channels.back(), peer));
        if (theirs.failed) fail(*in.channels.back(), peer, theirs.reason.view());
        if (theirs.ended) end_of(*in.channels.back(), peer).left = "has returned";
      }
    }
    return in.channels[index].get();
  }
  /// Some ranks of a subworld.
  [[nodiscard]] mock_subworld* part(mock_subworld const& of, std::vector<int> members) {
    for (int& each : members) each = of.members[static_cast<std::size_t>(each)];
    for (auto const& each : subworlds_) {
      if (each->members == members) return each.get();
    }
    const std::size_t size = members.size();
    subworlds_.push_back(std::make_unique<mock_subworld>(mock_subworld{std::move(members), std::vector<std::size_t>(size), {}}));
    return subworlds_.back().get();
  }
  template <class Visit>
  void for_channels(int of, Visit&& visit) {
    for (auto const& each : subworlds_) {
      const int rank = each->rank_of(of);
      for (std::size_t k = 0; rank >= 0 && k < each->channels.size(); ++k) visit(*each->channels[k], rank);
    }
  }

  void wait(int rank) {
    state(rank).waiting = true;
    if (++fruitless_ > 2 * size()) {
      for (const bool lost : {true, false}) {
        for_channels(rank, [&](mock_channel& each, int there) { give_up(each, there, lost, fruitless_ > 3 * size()); });
      }
    }
    turns_.pass(rank);
  }
  /// Nobody can go on: throws, where this rank's data were lost in this channel, or where it waits for one that is
  /// gone; or, if nobody does, for `anybody`.
  void give_up(mock_channel& in, int rank, bool lost, bool anybody) {
    end_state const& me = end_of(in, rank);
    meeting const* const under_way = find(in, me.next);
    if (!me.posted || under_way == nullptr || me.lost != lost) return;
    const auto is_missing = [&](int peer) { return !under_way->posts[static_cast<std::size_t>(peer)].here; };
    const auto is_gone = [&](int peer) { return state(member(in, peer)).dead || state(member(in, peer)).ended; };
    const int gone = ranks_where(in.of->size(), [&](int peer) { return is_missing(peer) && is_gone(peer); }).lowest;
    if (!lost && gone < 0 && !anybody) return;  // those who wait for the one that is gone come first
    auto const [who, first] =
        ranks_where(in.of->size(), [&](int peer) { return is_missing(peer) && (gone < 0 || is_gone(peer)); });
    const char* operation = name_of(under_way->posts[static_cast<std::size_t>(rank)].call.operation);
    if (lost) {
      fail(in, rank, "its data were lost");
      throw deadline_error(me.where, text(operation, " never completed: its data were lost"),
                           text("Check the network between the ranks"));
    }
    if (first < 0) return;  // complete: nobody has looked yet
    fail(in, first, text("it did not come to ", operation).view());
    throw deadline_error(me.where, text("rank ", who, " did not come to ", operation, ", and no rank can go on"),
                         text("Check that it is alive and processes the same rounds"), first);
  }
  void poll(int rank) {
    state(rank).waiting = false;
    fruitless_ = 0;  // the rank computes: that is progress
    turns_.pass(rank);
  }

  static void fail(mock_channel& in, int rank, std::string_view reason) {
    if (in.failed_rank >= 0) return;
    in.failed_rank = rank;
    in.reason = text(reason);
  }
  /// A rank's function has ended, with an exception or in peace.
  void end(int rank, bool failed, std::string_view reason = {}) {
    rank_state& me = state(rank);
    me.ended = !me.dead;
    me.failed = failed;
    me.reason = text(reason);
    for_channels(rank, [&](mock_channel& each, int there) {
      if (failed) fail(each, there, reason);
      if (me.ended && end_of(each, there).left == nullptr) end_of(each, there).left = "has returned";
    });
  }

  progress step(mock_channel& in_channel, int rank, collective operation, std::span<unsigned char> in,
                std::span<unsigned char> out, bool adds, std::size_t element, int root, error_place where,
                function_view<void(void const* const*)> finish) {
    end_state& me = end_of(in_channel, rank);
    rank_state& here = state(member(in_channel, rank));
    const int size = in_channel.of->size();
    where.rank = rank;
    me.where = where;
    if (!me.posted) begin(in_channel, rank, operation, in, out, adds, element, root, where);
    meeting* const posted = find(in_channel, me.next);
    if (posted == nullptr) __builtin_unreachable();  // it was there when this rank posted, and stays until all are done
    meeting& all = *posted;
    if (all.arrived < size) {
      if (in_channel.failed_rank >= 0) throw_failure(in_channel, operation, where);
      for (int peer = 0; peer < size; ++peer) {
        char const* const how = end_of(in_channel, peer).left;
        if (how == nullptr || all.posts[static_cast<std::size_t>(peer)].here) continue;
        impossible::throw_departed(where, operation, peer, how,
                                   [&](text const& reason) { fail(in_channel, peer, reason.view()); });
      }
      return progress::pending;
    }
    post const& mine = all.posts[static_cast<std::size_t>(rank)];
    for (int peer = 0; peer < size; ++peer) {
      post const& other = all.posts[static_cast<std::size_t>(peer)];
      if (other.call != mine.call) impossible::throw_mismatch(where, mine.call, peer, other.call);
    }
    if (me.lost) return progress::pending;
    if (me.polls_left > 0 && !here.waiting) {
      --me.polls_left;
      return progress::pending;
    }
    check_poison(in, where, "input");
    check_poison(out, where, "output");
    std::copy(mine.data.begin(), mine.data.end(), in.begin());
    if (adds) std::copy(me.output.begin(), me.output.end(), out.begin());
    finish(all.sources.data());
    me.posted = here.waiting = false;
    fruitless_ = 0;
    if (++all.done == size) {
      std::swap(all, in_channel.meetings.back());
      in_channel.meetings.pop_back();
    }
    ++me.next;
    return progress::done;
  }
  [[noreturn]] static void throw_failure(mock_channel const& in, collective operation, error_place const& where) {
    impossible::throw_failed(where, operation, in.failed_rank, in.reason.view());
  }

  void begin(mock_channel& in_channel, int rank, collective operation, std::span<unsigned char> in, std::span<unsigned char> out,
             bool adds, std::size_t element, int root, error_place where) {
    end_state& me = end_of(in_channel, rank);
    const int world_rank = member(in_channel, rank);
    rank_state& here = state(world_rank);
    const int size = in_channel.of->size();
    if (in_channel.failed_rank >= 0) throw_failure(in_channel, operation, where);
    const mock_event event{world_rank, operation, here.events++, where.round};
    const mock_fault fault = options_.fault(event);
    if (fault == mock_fault::death) {
      here.dead = true;
      throw death{};
    }
    const std::size_t ends = in_channel.ends.size();
    meeting* met = find(in_channel, me.next);
    if (met == nullptr)
      met = &in_channel.meetings.emplace_back(meeting{me.next, std::vector<post>(ends), std::vector<void const*>(ends)});
    meeting& all = *met;
    const std::size_t count = in.size() / element + (fault == mock_fault::mismatch ? 1 : 0);
    post& mine = all.posts[static_cast<std::size_t>(rank)];
    mine = {true, {operation, count, element, root}, {in.begin(), in.end()}};
    all.sources[static_cast<std::size_t>(rank)] = mine.data.data();
    ++all.arrived;
    const std::uint64_t sent = bytes_handed_over(operation, size, in.size(), root == rank);
    me.sent += sent;
    ++here.counters.calls[static_cast<std::size_t>(operation)];
    here.counters.bytes[static_cast<std::size_t>(operation)] += sent;
    if (adds) me.output.assign(out.begin(), out.end());
    std::fill(in.begin(), in.end(), poison);
    std::fill(out.begin(), out.end(), poison);
    me.posted = true;
    here.waiting = false;
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
  std::vector<std::unique_ptr<mock_subworld>> subworlds_;  // the first is the world
  int fruitless_ = 0;                                      // waits in a row that brought nobody further
  mock_turns turns_;
};

ACCO_ONCE mock_world::mock_world(int ranks, mock_options options)
    : ranks_(std::make_shared<mock_ranks>(ranks, std::move(options))) {}
ACCO_ONCE void mock_world::run_each(function_view<void(mock_backend const&)> function) {
  std::vector<mock_backend> handles;
  handles.reserve(ranks_->ranks_.size());
  for (int rank = 0; rank < size(); ++rank) handles.push_back(mock_backend(*ranks_, rank));
  for (mock_backend& handle : handles) handle.home_ = &handle;
  std::exception_ptr cause, consequence;
  {
    std::vector<joining_thread> threads;
    threads.reserve(handles.size());
    for (mock_backend const& handle : handles) {
      threads.emplace_back([&, handle] {
        ranks_->turns_.await(handle.rank_);
        const auto record = [&](std::exception_ptr& where, char const* what) {
          if (!where) where = std::current_exception();
          ranks_->end(handle.rank_, true, what);
        };
        try {
          function(handle);
          ranks_->end(handle.rank_, false);
        } catch (mock_ranks::death const&) {
        } catch (peer_error const& e) {
          record(consequence, e.what());
        } catch (std::exception const& e) {
          record(cause, e.what());
        } catch (...) {
          record(cause, "an exception that is not a std::exception");
        }
        ranks_->fruitless_ = 0;
        ranks_->turns_.end(handle.rank_);
      });
    }
  }
  if (cause || consequence) std::rethrow_exception(cause ? cause : consequence);
}

ACCO_ONCE int mock_world::size() const noexcept { return ranks_->size(); }
ACCO_ONCE mock_counters const& mock_world::counters(int rank) const { return ranks_->state(rank).counters; }

ACCO_ONCE mock_backend::mock_backend(mock_ranks& world, int rank)
    : world_(&world), channel_(world.open(*world.subworlds_.front(), rank)), rank_(rank) {}
ACCO_ONCE int mock_backend::size() const noexcept { return channel_->of->size(); }
ACCO_ONCE mock_counters const& mock_backend::counters() const { return world_->state(world_->member(*channel_, rank_)).counters; }
ACCO_ONCE void mock_backend::all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
  enqueue(queue, collective::all_to_all, in, out, false, 0, [out](mock_backend const& me, sources all) {
    const std::size_t part = out.size() / static_cast<std::size_t>(me.size());
    me.take(all, static_cast<std::size_t>(me.rank_) * part, part, raw(out));
  });
}
ACCO_ONCE void mock_backend::take(sources all, std::size_t offset, std::size_t each, std::span<unsigned char> out) const {
  unsigned char* to = out.data();
  for (int peer = 0; peer < size(); ++peer) to = std::copy_n(static_cast<unsigned char const*>(all[peer]) + offset, each, to);
}
ACCO_ONCE void mock_backend::abort(std::string_view reason) const noexcept {
  if (!world_->state(mock_ranks::member(*channel_, rank_)).dead) mock_ranks::fail(*channel_, rank_, reason);
}
ACCO_ONCE void mock_backend::close() const noexcept { mock_ranks::end_of(*channel_, rank_).left = "has finished, left,"; }
ACCO_ONCE mock_backend mock_backend::duplicate() const {
  mock_backend copy = *this;
  copy.channel_ = world_->open(*channel_->of, rank_);
  return copy;
}
ACCO_ONCE mock_backend mock_backend::split(int color, int key, double deadline) const {
  const split_result mine = agree_on_split(*this, color, key, deadline);
  mock_backend copy = *this;
  copy.channel_ = world_->open(*world_->part(*channel_->of, mine.members), mine.rank);
  copy.rank_ = mine.rank;
  return copy;
}
ACCO_ONCE std::uint64_t mock_backend::bytes_sent() const noexcept { return mock_ranks::end_of(*channel_, rank_).sent; }
ACCO_ONCE queue_driver mock_backend::driver() const {
  return {[](void* context) {
            auto* const me = static_cast<mock_backend*>(context);
            me->world_->wait(me->rank_);
          },
          [](void* context) {
            auto* const me = static_cast<mock_backend*>(context);
            me->world_->poll(me->rank_);
          },
          const_cast<mock_backend*>(home_)};
}
ACCO_ONCE progress mock_backend::step(collective operation, std::span<unsigned char> in, std::span<unsigned char> out, bool adds,
                                      std::size_t element, int root, error_place const& where,
                                      function_view<void(sources)> finish) const {
  return world_->step(*channel_, rank_, operation, in, out, adds, element, root, where, finish);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
