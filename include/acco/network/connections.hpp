// SPDX-License-Identifier: Apache-2.0
// The connections of one rank to all others, shared by its channels; and who has left.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/error.hpp"
#include "acco/network/message_sum.hpp"
#include "acco/network/message_transport.hpp"
#include "acco/network/roll_call.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A failure of one channel ends them all: its messages may still be under way. The first one is final: it is told to
/// all other ranks, with its cause. Any thread.
template <class Transport>
class connections {
 public:
  /// What a rank that left has said.
  struct farewell_heard {
    int from, blamed;
    text reason;
  };

  template <class... Arguments>
  explicit connections(Arguments&&... arguments) : transport_(std::forward<Arguments>(arguments)...) {
    const auto ranks = static_cast<std::size_t>(size());
    farewells_.resize(ranks);
    incoming_.reserve(ranks);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      try {
        incoming_.push_back(
            {transport_.receive(peer, farewell_label, &farewells_[static_cast<std::size_t>(peer)], sizeof(farewell)), peer});
      } catch (delivery_failure const& failure) {  // it was connected, and has ended
        throw lost_error({rank(), -1, "start-up"}, "start-up", peer, failure.reason);
      }
    }
  }
  connections(connections const&) = delete;
  connections& operator=(connections const&) = delete;
  ~connections() {  // the others hear of it before messages are given up
    if (std::uncaught_exceptions() > 0) abort("an exception left its training loop");
  }

  [[nodiscard]] int rank() const noexcept { return transport_.rank(); }
  [[nodiscard]] int size() const noexcept { return transport_.size(); }
  [[nodiscard]] Transport& transport() noexcept { return transport_; }
  /// Of every message of an operation; null: of none. The same on every rank, chosen before anything travels.
  [[nodiscard]] message_sum sum() const noexcept { return sum_; }
  void set_sum(message_sum by) noexcept { sum_ = by; }

  /// What lives as long as the connections. Who takes a channel again goes on where the one before ended, so that no
  /// message is taken for another's. Its user's thread calls it.
  struct channel {
    std::uint32_t next_sequence = 0, pieces = 0;
    roll_call<Transport> calls;
    bool used = false;
  };
  /// By channel: the number of its next operation, or `in_use`.
  using channel_states = std::array<std::uint32_t, message_channels>;
  static constexpr std::uint32_t in_use = 0xffffffff;

  /// Whether every channel has been used: then `open` needs all ranks' `states()`.
  [[nodiscard]] bool reopens() const {
    const std::lock_guard lock(mutex_);
    return opened_ == message_channels;
  }
  [[nodiscard]] channel_states states() const {
    const std::lock_guard lock(mutex_);
    channel_states result;
    for (std::size_t k = 0; k < result.size(); ++k) result[k] = channels_[k].used ? in_use : channels_[k].next_sequence;
    return result;
  }
  /// The number of a new channel, the same on every rank: the k-th that a rank opens is the k-th of every rank. One
  /// that was used comes back when it is closed on all ranks, after as many operations.
  [[nodiscard]] std::uint32_t open(std::span<channel_states const> of_ranks = {}) {
    const std::lock_guard lock(mutex_);
    const auto is_free = [&](std::uint32_t k) {
      const auto closed = [&](channel_states const& of) { return of[k] != in_use && of[k] == of_ranks.front()[k]; };
      return !of_ranks.empty() && std::all_of(of_ranks.begin(), of_ranks.end(), closed);
    };
    std::uint32_t mine = 0;
    if (opened_ < message_channels) {
      mine = opened_++;
    } else {
      while (mine < message_channels && !is_free(mine)) ++mine;
    }
    if (mine == message_channels) {
      throw usage_error(
          {.rank = rank()}, text("all ", message_channels, " channels over the same connections are in use"),
          text("The backend has one, and each optimizer and duplicate() that lives on some rank: destroy those that "
               "are done, on every rank, or make a new backend"));
    }
    channels_[mine].used = true;
    return mine;
  }
  [[nodiscard]] channel& at(std::uint32_t number) noexcept { return channels_[number]; }
  /// Some channel ends with messages under way.
  void give_up() noexcept {
    if constexpr (requires { transport_.give_up(); }) transport_.give_up();
  }
  /// It has no message under way.
  void close(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    channels_[number].used = false;
  }

  /// Whether this rank has left.
  [[nodiscard]] bool left() const noexcept { return left_.load(std::memory_order_acquire); }
  /// Why.
  [[nodiscard]] text reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  /// What another rank that left has said, if one has. Waits for none.
  [[nodiscard]] std::optional<farewell_heard> hear() {
    const std::lock_guard lock(mutex_);
    for (incoming& each : incoming_) {
      if (has_said(each, 0)) return heard(each);
    }
    return std::nullopt;
  }
  /// The same of a rank whose connection is lost; waits a tenth of a second for it.
  [[nodiscard]] std::optional<farewell_heard> hear(int from) {
    const std::lock_guard lock(mutex_);
    incoming& its = of(from);
    return has_said(its, 0.1) ? std::optional(heard(its)) : std::nullopt;
  }
  /// Whether the connection to a rank was lost when it was last heard.
  [[nodiscard]] bool lost(int peer) {
    const std::lock_guard lock(mutex_);
    return of(peer).lost;
  }

  /// Tells the other ranks that this one ends, and why; then ends all connections. Later calls do nothing.
  void abort(std::string_view reason, int blamed = -1) noexcept {
    try {
      {
        const std::lock_guard lock(mutex_);
        if (left()) return;
        reason_ = text(reason);
        left_.store(true, std::memory_order_release);
      }
      farewell mine{blamed < 0 ? rank() : blamed, {}};
      const std::size_t length = std::min(reason.size(), sizeof mine.reason - 1);
      reason.copy(mine.reason, length);
      transport_.leave(farewell_label, &mine, sizeof mine);
    } catch (...) {  // they will learn it from the closed connection, or at their deadline
    }
  }

  /// Where this rank has left, another one has told that it ends, or one of which needed(peer) is true was lost:
  /// leaves, and throws `peer_error` from the call of that name.
  template <class Needed>
  void require(error_place const& at, std::string_view call, Needed&& needed) {
    if (left()) throw_left(at, call);
    try {
      if (const auto word = hear()) throw_farewell(at, call, *word);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank() && needed(peer) && lost(peer)) throw_lost(at, call, peer, text("while ranks were to be connected"));
      }
    } catch (peer_error const& e) {
      abort(e.what(), e.peer());
      throw;
    }
  }
  [[noreturn]] void throw_lost(error_place const& at, std::string_view call, int peer, text const& reason) {
    if (const auto word = hear(peer)) throw_farewell(at, call, *word);
    abort(text("it lost the connection to rank ", peer).view(), peer);
    throw lost_error(at, call, peer, reason);
  }
  [[noreturn]] static void throw_farewell(error_place const& at, std::string_view call, farewell_heard const& word) {
    throw peer_error(at,
                     word.blamed == word.from ? text(call, " is impossible because rank ", word.from, " failed: ", word.reason)
                                              : text(call, " is impossible: rank ", word.from, " tells that ", word.reason),
                     word.blamed == at.rank ? text("That is this rank: look at what kept it, or at what it called")
                                            : text("Look at rank ", word.blamed, "'s own error first"),
                     word.blamed);
  }
  [[noreturn]] void throw_left(error_place const& at, std::string_view call) const {
    throw peer_error(at, text(call, " is impossible because this rank has left the group (", reason(), ")"),
                     text("Look at this rank's first error. These connections cannot be used again: make a new backend"), rank());
  }

 private:
  struct farewell {
    std::int32_t blamed = -1;
    char reason[508] = {};
  };
  struct incoming {
    typename Transport::request request;
    int peer;
    bool heard = false, lost = false;
  };
  static peer_error lost_error(error_place const& at, std::string_view call, int peer, text const& reason) noexcept {
    return peer_error(at, text(call, " failed: the connection to rank ", peer, " is lost (", reason, ")"),
                      text("Rank ", peer, " was killed or ended, or its host or network is down: look at its own output first"),
                      peer);
  }
  static constexpr message_label farewell_label{0xffffffff, collective::none, 0, 0};

  [[nodiscard]] incoming& of(int peer) noexcept { return incoming_[static_cast<std::size_t>(peer < rank() ? peer : peer - 1)]; }
  bool has_said(incoming& from, double seconds) {
    try {
      return from.heard || (!from.lost && transport_.complete(from.request, seconds) == delivery::done);
    } catch (delivery_failure const&) {
      from.lost = true;
      return false;
    }
  }
  farewell_heard heard(incoming& from) {
    from.heard = true;
    farewell const& word = farewells_[static_cast<std::size_t>(from.peer)];
    const std::string_view reason(word.reason, strnlen(word.reason, sizeof word.reason));
    return {from.peer, word.blamed >= 0 && word.blamed < size() ? word.blamed : from.peer, text(reason)};
  }

  std::vector<farewell> farewells_;  // they arrive as long as the transport lives
  Transport transport_;
  message_sum sum_ = nullptr;
  mutable std::mutex mutex_;
  std::uint32_t opened_ = 0;
  std::array<channel, message_channels> channels_;
  std::atomic<bool> left_ = false;
  text reason_;
  std::vector<incoming> incoming_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
