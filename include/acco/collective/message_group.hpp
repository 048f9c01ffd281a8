// SPDX-License-Identifier: Apache-2.0
// One rank's connections to the others: messages that belong together, the deadline of a wait, and the end of it all: whoever
// fails tells the others why.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/collective/message_transport.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"
#include "acco/function_view.hpp"
#include "acco/observe/clock.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

/// The connections of one rank. One thread at a time calls all members but `abandon`. The first failure is final: it is told to
/// all other ranks, with its cause.
template <class Transport>
class message_group {
  struct transfer {
    typename Transport::request request;
    int peer;
    bool incoming = true;
  };

 public:
  /// Messages that belong together, completed in order.
  struct channel {
    std::vector<transfer> transfers;
    std::size_t settled = 0;
  };

  template <class... Arguments>
  explicit message_group(Arguments&&... arguments) : transport_(std::forward<Arguments>(arguments)...) {
    const auto ranks = static_cast<std::size_t>(size());
    farewells_.resize(ranks);
    incoming_farewells_.reserve(ranks);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      incoming_farewells_.push_back(
          {transport_.receive(peer, farewell_label, &farewells_[static_cast<std::size_t>(peer)], sizeof(farewell)), peer});
    }
  }
  message_group(message_group const&) = delete;
  message_group& operator=(message_group const&) = delete;

  [[nodiscard]] int rank() const noexcept { return transport_.rank(); }
  [[nodiscard]] int size() const noexcept { return transport_.size(); }
  [[nodiscard]] Transport& transport() noexcept { return transport_; }

  /// The label of the operation that begins now, the same on every rank; the deadline of its waits begins anew.
  [[nodiscard]] message_label next_operation(collective operation) noexcept {
    since_ = 0;
    return {next_sequence_++, operation, 0};
  }
  /// Room for `messages` of up to `bytes` each, so that starting them allocates nothing.
  void reserve(channel& in, std::size_t messages, std::size_t bytes) const {
    in.transfers.reserve(messages * (bytes / Transport::largest_message + 1));
  }

  /// Calls visit(to, from) for all other ranks, in an order in which no rank is everybody's first.
  template <class Visit>
  void for_peers(Visit&& visit) const {
    for (int step = 1; step < size(); ++step) visit((rank() + step) % size(), (rank() + size() - step) % size());
  }

  /// Starts one message in each direction.
  void start(channel& into, message_label label, int from, int to, void* arriving, void const* leaving, std::size_t bytes) {
    receive(into, label, from, arriving, bytes);
    send(into, label, to, leaving, bytes);
  }
  /// In parts where it is longer than the transport can carry.
  void receive(channel& into, message_label label, int from, void* to, std::size_t bytes) {
    busy_peer_ = from;
    for (std::size_t at = 0; at < bytes; at += Transport::largest_message) {
      const std::size_t part = std::min(bytes - at, Transport::largest_message);
      into.transfers.push_back({transport_.receive(from, label, static_cast<std::byte*>(to) + at, part), from, true});
    }
  }
  void send(channel& into, message_label label, int to, void const* from, std::size_t bytes) {
    busy_peer_ = to;
    for (std::size_t at = 0; at < bytes; at += Transport::largest_message) {
      const std::size_t part = std::min(bytes - at, Transport::largest_message);
      into.transfers.push_back({transport_.send(to, label, static_cast<std::byte const*>(from) + at, part), to, false});
    }
  }

  /// What to tell the queue.
  progress answer(bool done) noexcept {
    const bool moved = std::exchange(moved_, false);
    return done ? progress::done : moved ? progress::advanced : progress::pending;
  }

  /// Completes the channel's messages in order: whether none is left. With `all` the caller needs them and the deadline runs,
  /// else only what is there already is taken.
  bool settle(host_queue const& queue, channel& of, collective operation, bool all) {
    while (of.settled < of.transfers.size()) {
      transfer& next = of.transfers[of.settled];
      busy_peer_ = next.peer;
      if (!all && Transport::waits) return false;
      const delivery how_far = transport_.complete(next.request, queue.deadline);
      if (how_far == delivery::done) {
        since_ = 0;
        moved_ = true;
        ++of.settled;
        continue;
      }
      if (how_far == delivery::pending) {
        if (!all) return false;
        const double at = steady_seconds();
        since_ = since_ == 0 ? at : since_ + std::max(0.0, at - asked_ - 0.1);  // time in which nobody asked does not count
        asked_ = at;
        if (at - since_ < queue.deadline) {
          hear_farewells(queue, operation, at);
          return false;
        }
      }
      throw_expired(queue, of, operation);
    }
    of.transfers.clear();
    of.settled = 0;
    return true;
  }

  /// Runs part of an operation; translates what goes wrong, and tells the other ranks.
  void guarded(host_queue const& queue, collective operation, function_view<void()> work) {
    if (abandoned_) throw_abandoned(queue, operation);
    try {
      try {
        work();
      } catch (delivery_failure const& failure) {
        if (abandoned_) throw_abandoned(queue, operation);
        for (transfer& each : incoming_farewells_) {
          if (each.peer == busy_peer_ && said_farewell(each)) throw_farewell(queue, operation, each.peer);
        }
        abandon(text("it lost the connection to rank ", busy_peer_).view(), busy_peer_);
        throw peer_error(
            queue.place,
            text(name_of(operation), " failed: the connection to rank ", busy_peer_, " is lost (", failure.reason, ")"),
            text("Rank ", busy_peer_, " was killed or ended, or its host or network is down: look at its own output first"),
            busy_peer_);
      }
    } catch (error const& e) {
      abandon(e.what(), e.peer());
      throw;
    } catch (std::exception const& e) {
      abandon(e.what());
      throw;
    }
  }
  /// Tells the other ranks that this one ends, and why; then ends all connections. Any thread; later calls do nothing.
  void abandon(std::string_view reason, int blamed = -1) noexcept {
    if (abandoned_.exchange(true)) return;
    try {
      farewell mine{blamed < 0 ? rank() : blamed, {}};
      const std::size_t length = std::min(reason.size(), sizeof mine.reason - 1);
      std::memcpy(mine.reason, reason.data(), length);
      transport_.leave(farewell_label, &mine, sizeof mine);
    } catch (...) {  // they will learn it from the closed connection, or at their deadline
    }
  }

 private:
  struct farewell {
    std::int32_t blamed = -1;
    char reason[508] = {};
  };
  static constexpr message_label farewell_label{0xffffffff, collective::none, 0};

  [[noreturn]] void throw_expired(host_queue const& queue, channel& of, collective operation) {
    const int first = of.transfers[of.settled].peer;
    abandon(text("rank ", first, " did not come to ", name_of(operation), " within ", queue.deadline, " s").view(), first);
    std::vector<bool> missing(static_cast<std::size_t>(size()), false);
    missing[static_cast<std::size_t>(first)] = true;
    for (std::size_t k = of.settled + 1; k < of.transfers.size(); ++k) {
      transfer& each = of.transfers[k];
      if (each.incoming && !transport_.arrived(each.request)) missing[static_cast<std::size_t>(each.peer)] = true;
    }
    auto const [who, lowest] = ranks_where(size(), [&](int peer) { return missing[static_cast<std::size_t>(peer)]; });
    throw deadline_error(
        queue.place, text("rank ", who, " did not come to ", name_of(operation), " within ", queue.deadline, " s"),
        text("Check that it is alive, that the network between the ranks carries data, and that it makes the same "
             "calls (acco::debug finds the first that differs); or raise options::deadline"),
        lowest);
  }

  /// Whether another rank has told that it ends; looked at every few milliseconds.
  void hear_farewells(host_queue const& queue, collective operation, double at) {
    if (at - heard_ < 0.0005 * size()) return;
    heard_ = at;
    for (transfer& each : incoming_farewells_) {
      if (transport_.complete(each.request, queue.deadline) == delivery::done) throw_farewell(queue, operation, each.peer);
    }
  }
  [[noreturn]] void throw_farewell(host_queue const& queue, collective operation, int from) {
    farewell const& word = farewells_[static_cast<std::size_t>(from)];
    const std::string_view reason(word.reason, strnlen(word.reason, sizeof word.reason));
    const int blamed = word.blamed >= 0 && word.blamed < size() ? word.blamed : from;
    throw peer_error(queue.place,
                     blamed == from ? text(name_of(operation), " is impossible because rank ", from, " failed: ", reason)
                                    : text(name_of(operation), " is impossible: rank ", from, " tells that ", reason),
                     text("Look at rank ", blamed, "'s own error first"), blamed);
  }

  /// Whether the rank whose connection failed has said why.
  bool said_farewell(transfer& from) {
    try {
      return transport_.complete(from.request, 0.1) == delivery::done;
    } catch (delivery_failure const&) {
      return false;
    }
  }
  [[noreturn]] void throw_abandoned(host_queue const& queue, collective operation) const {
    throw peer_error(queue.place, text(name_of(operation), " is impossible because this rank has left the group"),
                     text("Look at this rank's first error"), rank());
  }

  Transport transport_;
  std::uint32_t next_sequence_ = 0;
  bool moved_ = false;  // messages have been completed since the queue was last told
  double since_ = 0;    // when the wait for another rank began; 0: no wait
  double asked_ = 0;    // when the transport was last asked
  double heard_ = 0;    // when farewells were last looked for
  int busy_peer_ = -1;  // whose message is being worked at
  std::atomic<bool> abandoned_ = false;
  std::vector<farewell> farewells_;
  std::vector<transfer> incoming_farewells_;
};

}  // namespace ACCO_NAMESPACE
