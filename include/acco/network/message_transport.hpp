// SPDX-License-Identifier: Apache-2.0
// The concept of a transport: messages between two ranks, named by labels.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "acco/collective/redistribution.hpp"
#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Names a message: sender and receiver compute it alike, and a message is received by no other label.
struct message_label {
  std::uint32_t sequence;  ///< the number of the operation, the same on every rank
  collective operation;
  std::uint32_t piece;
  std::uint32_t channel = 0;  ///< whose operation it is: below `message_channels`
  bool is_sum = false;        ///< the checksum of the operation's messages to a rank, behind them
  std::uint32_t before = 0;   ///< pieces of the channel's operations before it, modulo 2^32: whose turn it is
};
inline constexpr std::uint32_t message_channels = 64;

/// How far a message is.
enum class delivery {
  done,
  pending,  ///< ask again: the transport makes progress only when asked
  expired,  ///< the transport waited, and the deadline passed
};

/// What a transport throws when a message cannot be delivered any more.
struct delivery_failure : std::exception {
  explicit delivery_failure(text const& why, bool is_other_message = false) noexcept
      : reason(why), other_message(is_other_message) {}
  [[nodiscard]] char const* what() const noexcept override { return reason.c_str(); }
  text reason;
  bool other_message;  ///< the peer lives, and sent what does not belong here: the ranks make different calls
};

/// The concept of a transport: `rank()`, `size()`, `round_trip()` to the farthest rank in seconds (0: not known), a
/// movable `request`, `send` and `receive` that start a message of up to `largest_message` bytes, `complete(request,
/// seconds)` that tells or waits how far it is, `arrived(request)` after which nothing else need work any more, and
/// `leave(label, from, bytes)` that sends a last message to all, ends the connections and wakes whoever waits in
/// `complete`. `send`, `receive`, `complete` throw `delivery_failure`. One thread a channel, and several channels at
/// once, call all but `leave`. A request that is destroyed forgets its message. Where a transport does not tell the
/// messages of an operation apart, or their checksum, they come in the order in which they are sent.
template <class Transport>
concept message_transport =
    requires(Transport& t, typename Transport::request& r, void const* from, void* to, std::size_t bytes, message_label label) {
      { t.rank() } -> std::convertible_to<int>;
      { t.size() } -> std::convertible_to<int>;
      { t.round_trip() } -> std::convertible_to<double>;
      { t.send(0, label, from, bytes) } -> std::same_as<typename Transport::request>;
      { t.receive(0, label, to, bytes) } -> std::same_as<typename Transport::request>;
      { t.complete(r, 1.0) } -> std::same_as<delivery>;
      { t.arrived(r) } -> std::same_as<bool>;
      t.leave(label, from, bytes);
      { Transport::largest_message } -> std::convertible_to<std::size_t>;
    };

}  // namespace ACCO_SIMD_NAMESPACE
