// SPDX-License-Identifier: Apache-2.0
// One rank's connections to the others: messages that belong together, the deadline of a wait, and the end of it all:
// whoever fails tells the others why.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/clock.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"
#include "acco/function_view.hpp"
#include "acco/network/connections.hpp"
#include "acco/network/message_sum.hpp"
#include "acco/network/message_transport.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One channel over a rank's connections. One thread at a time calls all members but `abort` and `sent`. The first
/// failure is final: it is told to all other ranks, with its cause.
template <class Transport>
class message_channel {
  struct transfer {
    typename Transport::request request;
    int peer;
    bool incoming = true, done = false;
    bool is_sum = false;  // the checksum of its peer's messages
    // where messages have checksums: what comes
    void const* to = nullptr;
    std::size_t bytes = 0;
    std::uint64_t which = 0;
  };

 public:
  /// Messages that belong together, completed in order.
  struct batch {
    std::vector<transfer> transfers;
    std::size_t settled = 0;
    message_sums* sums = nullptr;  // of the operation, where messages have checksums
  };

  message_channel(std::shared_ptr<connections<Transport>> all, std::uint32_t channel)
      : all_(std::move(all)), channel_(channel), heard_from_(static_cast<std::size_t>(all_->size()), 0) {}
  message_channel(message_channel const&) = delete;
  message_channel& operator=(message_channel const&) = delete;

  [[nodiscard]] int rank() const noexcept { return all_->rank(); }
  [[nodiscard]] int size() const noexcept { return all_->size(); }
  [[nodiscard]] std::shared_ptr<connections<Transport>> const& shared() const noexcept { return all_; }
  /// No message is under way, and none will be: another may use the channel.
  void close() noexcept { all_->close(channel_); }
  /// Messages are under way: no other will use it.
  void give_up() noexcept { all_->give_up(); }
  /// What the transport keeps open for its messages.
  [[nodiscard]] std::size_t mail_bytes() const noexcept {
    if constexpr (requires { all_->transport().mail_bytes(channel_); }) return all_->transport().mail_bytes(channel_);
    return 0;
  }
  /// Bytes that were handed to the transport.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_.load(std::memory_order_relaxed); }

  /// The label of the operation of so many pieces that begins now, the same on every rank.
  [[nodiscard]] message_label next_operation(collective operation, std::size_t pieces) noexcept {
    auto& its = all_->at(channel_);
    const std::uint32_t before = its.pieces;
    its.pieces += static_cast<std::uint32_t>(pieces);
    return {its.next_sequence++, operation, 0, channel_, false, before};
  }
  /// For an operation that begins, until it sets `in_use` to false; null: messages have no checksums.
  [[nodiscard]] message_sums* new_sums() { return all_->sum() == nullptr ? nullptr : sums_.unused(size()); }
  /// Room for `messages` of up to `bytes` each, so that starting them allocates nothing.
  void reserve(batch& in, std::size_t messages, std::size_t bytes) const {
    const std::size_t sums = 2 * static_cast<std::size_t>(size());
    in.transfers.reserve(messages * (bytes / Transport::largest_message + 1) + sums);
  }

  /// Starts a message. In parts where it is longer than the transport can carry.
  void receive(batch& into, message_label label, int from, void* to, std::size_t bytes) {
    busy_peer_ = from;
    for (std::size_t at = 0; at < bytes; at += Transport::largest_message) {
      const std::size_t part = std::min(bytes - at, Transport::largest_message);
      std::byte* const its = static_cast<std::byte*>(to) + at;
      into.transfers.push_back({transport().receive(from, label, its, part), from});
      if (into.sums == nullptr) continue;
      into.transfers.back().to = its;
      into.transfers.back().bytes = part;
      into.transfers.back().which = which(label, at);
      into.sums->of(from).comes = true;
    }
  }
  void send(batch& into, message_label label, int to, void const* from, std::size_t bytes) {
    busy_peer_ = to;
    sent_.fetch_add(bytes, std::memory_order_relaxed);
    for (std::size_t at = 0; at < bytes; at += Transport::largest_message) {
      const std::size_t part = std::min(bytes - at, Transport::largest_message);
      std::byte const* const its = static_cast<std::byte const*>(from) + at;
      into.transfers.push_back({transport().send(to, label, its, part), to, false});
      if (into.sums == nullptr) continue;
      into.sums->of(to).sent += mixed(all_->sum()(its, part), which(label, at));
      into.sums->of(to).leaves = true;
    }
  }
  /// Behind its messages the checksum of them all, to and from every rank that there were some for, or of, since this was
  /// last called for the operation.
  void send_sums(batch& into, message_label label) {
    label.is_sum = true;
    for (int peer = 0; into.sums != nullptr && peer < size(); ++peer) {
      auto& its = into.sums->of(peer);
      busy_peer_ = peer;
      if (std::exchange(its.leaves, false))
        into.transfers.push_back({transport().send(peer, label, &its.sent, sizeof its.sent), peer, false});
      if (!std::exchange(its.comes, false)) continue;
      into.transfers.push_back({transport().receive(peer, label, &its.told, sizeof its.told), peer});
      into.transfers.back().is_sum = true;
    }
  }

  /// Whether messages have been completed since this was last asked.
  [[nodiscard]] bool moved() noexcept { return std::exchange(moved_, false); }

  /// Completes the messages of the operation's batch in order: whether none is left. Waits as long as it must, or only
  /// glances at them. The deadline runs, anew for each operation and each message.
  bool settle(host_queue const& queue, batch& of, message_label label, bool glances) {
    const collective operation = label.operation;
    if (label.operation != label_.operation || label.sequence != label_.sequence) {
      label_ = label;
      since_ = 0;
    }
    while (of.settled < of.transfers.size()) {
      transfer const& next = of.transfers[of.settled];
      const delivery how_far = glances ? glance(of) : complete(queue, of, operation, left(queue));
      if (how_far == delivery::done) {
        since_ = 0;
        if (std::exchange(called_, false)) all_->at(channel_).calls.say(transport(), channel_, false);
        moved_ = true;
        if (next.incoming) heard_from_[static_cast<std::size_t>(next.peer)] = label_.sequence + 1;
        if (of.sums != nullptr && next.incoming) look_at(queue, next, of.sums->of(next.peer));
        ++of.settled;
        continue;
      }
      bool half = may_call() && how_far == delivery::expired;
      if (how_far == delivery::pending) {
        const double at = steady_seconds();
        // time in which nobody asked does not count
        since_ = since_ == 0 ? at : since_ + std::max(0.0, at - asked_ - 0.1);
        asked_ = at;
        half = may_call() && at - since_ >= queue.deadline / 2;
        if (!half && at - since_ < queue.deadline) {
          if (at - heard_ >= 0.0005 * size()) {  // every few milliseconds
            heard_ = at;
            look_for_ends(queue, of, operation);
          }
          return false;
        }
      }
      if (!half) throw_expired(queue, of, operation);
      called_ = true;
      since_ = steady_seconds() - queue.deadline / 2;
      all_->at(channel_).calls.say(transport(), channel_, true);
    }
    of.transfers.clear();
    of.settled = 0;
    return true;
  }

  /// Runs part of an operation; translates what goes wrong, and tells the other ranks.
  void guarded(host_queue const& queue, collective operation, function_view<void()> work) {
    if (all_->left()) all_->throw_left(queue.place, name_of(operation));
    try {
      try {
        work();
      } catch (delivery_failure const& failure) {
        if (all_->left()) all_->throw_left(queue.place, name_of(operation));
        if (failure.other_message) {
          throw mismatch_error(
              queue.place, text(name_of(operation), " failed: rank ", busy_peer_, " calls something else: ", failure.reason),
              text("Every rank must make the same calls in the same order: acco::debug finds the first that differs"),
              busy_peer_);
        }
        all_->throw_lost(queue.place, name_of(operation), busy_peer_, failure.reason);
      }
    } catch (error const& e) {
      abort(e.what(), e.peer());
      throw;
    } catch (std::exception const& e) {
      abort(e.what());
      throw;
    }
  }
  /// Tells the other ranks that this one ends, and why; then ends all connections. Any thread; later calls do nothing.
  void abort(std::string_view reason, int blamed = -1) noexcept { all_->abort(reason, blamed); }

 private:
  [[nodiscard]] Transport& transport() noexcept { return all_->transport(); }
  /// Of the messages between two ranks in one operation: its place, in bytes, and number.
  [[nodiscard]] static std::uint64_t which(message_label label, std::size_t at) noexcept {
    return (static_cast<std::uint64_t>(label.piece) << 32U) + at / Transport::largest_message;
  }
  /// What a message adds to the sum of several; `which` tells them apart, but for a broadcast's two of one piece.
  [[nodiscard]] static std::uint64_t mixed(std::uint64_t sum, std::uint64_t which) noexcept {
    sum = (sum ^ (which * 0x9e3779b97f4a7c15U)) * 0xff51afd7ed558ccdU;
    return (sum ^ (sum >> 33U)) * 0xc4ceb9fe1a85ec53U;
  }
  /// At what has come from a rank.
  void look_at(host_queue const& queue, transfer const& next, message_sums::between& its) {
    if (!next.is_sum) {
      its.came += mixed(all_->sum()(next.to, next.bytes), next.which);
    } else if (its.came != its.told) {
      throw peer_error(queue.place,
                       text(name_of(label_.operation), " failed: a message from rank ", next.peer, " is damaged (operation ",
                            label_.sequence, " of channel ", label_.channel, ")"),
                       text("Memory, a network card or a switch flips bits, on that rank's host, on this one or between "
                            "them: look at what they log (ECC, ethtool -S) before either trains on"),
                       next.peer);
    }
  }
  [[noreturn]] void throw_expired(host_queue const& queue, batch& of, collective operation) {
    int first = of.transfers[of.settled].peer;
    std::vector<bool> absent = called_ ? all_->at(channel_).calls.absent(transport(), channel_) : std::vector<bool>();
    // `first` has come, and waits itself
    const bool others = !absent.empty() && !absent[static_cast<std::size_t>(first)];
    if (others) {
      std::vector<bool> silent = absent;  // who has sent something may be through
      for (std::size_t peer = 0; peer < silent.size(); ++peer)
        silent[peer] = silent[peer] && heard_from_[peer] != label_.sequence + 1;
      if (std::find(silent.begin(), silent.end(), true) != silent.end()) absent = silent;
      const auto one = std::find(absent.begin(), absent.end(), true);
      if (one != absent.end()) first = static_cast<int>(one - absent.begin());
    }
    abort(text("rank ", first, " did not come to ", name_of(operation), " within ", queue.deadline, " s").view(), first);
    std::vector<bool> missing = others ? absent : std::vector<bool>(static_cast<std::size_t>(size()), false);
    missing[static_cast<std::size_t>(first)] = true;
    for (std::size_t k = of.settled + 1; k < of.transfers.size() && !others; ++k) {
      transfer& each = of.transfers[k];
      const auto peer = static_cast<std::size_t>(each.peer);
      if (each.incoming && (absent.empty() || absent[peer]) && !each.done && !transport().arrived(each.request))
        missing[peer] = true;
    }
    auto const [who, lowest] = ranks_where(size(), [&](int peer) { return missing[static_cast<std::size_t>(peer)]; });
    throw deadline_error(
        queue.place, text("rank ", who, " did not come to ", name_of(operation), " within ", queue.deadline, " s"),
        text("Check that it is alive, that the network between the ranks carries data, and that it makes the same "
             "calls (acco::debug finds the first that differs); or raise the deadline (options::deadline, or that of split)"),
        lowest);
  }

  /// A rank that has come may keep this one waiting, because it waits itself: all tell so at half of the deadline.
  [[nodiscard]] bool may_call() const noexcept { return size() > 2 && !called_; }
  /// Seconds until the deadline, or its half, of a wait that may have begun with glances.
  [[nodiscard]] double left(host_queue const& queue) const noexcept {
    const double whole = may_call() ? queue.deadline / 2 : queue.deadline;
    return since_ == 0 ? whole : std::max(whole - (steady_seconds() - since_), 0.001);
  }
  /// Completes the batch's next message if it has come, or comes at once.
  delivery glance(batch& of) {
    transfer& next = of.transfers[of.settled];
    busy_peer_ = next.peer;
    if (next.done) return delivery::done;
    const delivery how_far = transport().complete(next.request, 0.001);
    return how_far == delivery::expired ? delivery::pending : how_far;
  }
  /// Completes the batch's next message. A transport that waits does so a slice at a time: some tell nobody that a
  /// message was on its way when its connection broke (Gloo's sends).
  delivery complete(host_queue const& queue, batch& of, collective operation, double seconds) {
    transfer& next = of.transfers[of.settled];
    for (double left = seconds;; left -= slice) {
      busy_peer_ = next.peer;
      if (next.done) return delivery::done;
      const delivery how_far = transport().complete(next.request, std::min(left, slice));
      if (how_far != delivery::expired || left <= slice) return how_far;
      look_for_ends(queue, of, operation);
    }
  }
  /// Throws where another rank has told that it ends, or was lost before all its messages came; one that has ended in
  /// peace was not.
  void look_for_ends(host_queue const& queue, batch& of, collective operation) {
    if (const auto word = all_->hear()) all_->throw_farewell(queue.place, name_of(operation), *word);
    if (called_) all_->at(channel_).calls.listen(transport(), channel_);
    for (std::size_t k = of.settled; k < of.transfers.size(); ++k) {
      transfer& each = of.transfers[k];
      if (each.done || !all_->lost(each.peer)) continue;
      busy_peer_ = each.peer;
      each.done = transport().complete(each.request, slice) == delivery::done;
      if (!each.done) throw delivery_failure{text("it ended with a message on its way")};
    }
  }
  static constexpr double slice = 0.2;  // seconds of a wait, after which the others are looked at
  std::shared_ptr<connections<Transport>> all_;
  std::uint32_t channel_;
  std::atomic<std::uint64_t> sent_ = 0;
  sums_of_operations sums_;
  message_label label_{};                  // of the operation that was last waited for
  std::vector<std::uint32_t> heard_from_;  // by rank: the last operation in which something came, from 1
  bool called_ = false;
  bool moved_ = false;  // messages have been completed since the queue was last told
  double since_ = 0;    // when the wait for another rank began; 0: no wait
  double asked_ = 0;    // when the transport was last asked
  double heard_ = 0;    // when farewells were last looked for
  int busy_peer_ = -1;  // whose message is being worked at
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
