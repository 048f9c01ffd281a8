// SPDX-License-Identifier: Apache-2.0
// Short messages that do not wait for their receiver's word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "acco/error.hpp"
#include "acco/network/message_transport.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What arrives from one rank over one channel. Gloo sends when the receiver has asked, half a round trip late; here
/// receives are open before anybody asks for their messages, which come in the order in which they are sent. One
/// thread at a time.
class gloo_mailbox {
 public:
  static constexpr std::size_t open = 16;  // messages that leave at once; a further one waits for room
  /// In front of a message: its name, and how long it is.
  struct header {
    std::uint64_t slot, bytes;
  };
  [[nodiscard]] static constexpr std::size_t room(std::size_t longest) noexcept { return sizeof(header) + longest; }
  /// Bytes of a mailbox for messages of up to `longest`.
  [[nodiscard]] static constexpr std::size_t memory(std::size_t longest) noexcept { return open * room(longest); }

  gloo_mailbox(gloo::Context& over, int peer, std::uint64_t slot, std::size_t longest)
      : peer_(peer), slot_(slot), longest_(longest), rooms_(std::make_unique<std::byte[]>(memory(longest))) {
    for (std::size_t k = 0; k < open; ++k) {
      buffers_.push_back(over.createUnboundBuffer(place(k), room(longest)));
      try {
        buffers_.back()->recv(peer_, slot_);
      } catch (std::exception const&) {  // it may have ended behind a message that the first room has
        if (k == 0) throw;
      }
    }
  }

  /// The number of the message that is asked for next.
  [[nodiscard]] std::uint64_t ask() noexcept { return asked_++; }
  /// Where it arrives. Messages are taken in order.
  [[nodiscard]] gloo::transport::UnboundBuffer& buffer(std::uint64_t message) noexcept { return *buffers_[message % open]; }
  /// It has arrived: takes it, and opens its room to another one.
  void take(std::uint64_t message, std::uint64_t slot, void* to, std::size_t bytes) {
    header found{};
    std::memcpy(&found, place(message % open), sizeof found);
    if (found.slot != slot || found.bytes != bytes) throw delivery_failure{text("another message came"), true};
    std::memcpy(to, place(message % open) + sizeof found, bytes);
    try {
      buffer(message).recv(peer_, slot_);
    } catch (std::exception const&) {  // it has ended behind this message; who waits for more looks for ends
    }
  }
  /// A message as it travels.
  [[nodiscard]] static std::unique_ptr<std::byte[]> written(std::uint64_t slot, void const* from, std::size_t bytes) {
    auto result = std::make_unique<std::byte[]>(room(bytes));
    const header front{slot, bytes};
    std::memcpy(result.get(), &front, sizeof front);
    std::memcpy(result.get() + sizeof front, from, bytes);
    return result;
  }

 private:
  [[nodiscard]] std::byte* place(std::size_t k) noexcept { return rooms_.get() + k * room(longest_); }

  int peer_;
  std::uint64_t slot_;
  std::size_t longest_;
  std::unique_ptr<std::byte[]> rooms_;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers_;  // they let go of the rooms first
  std::uint64_t asked_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
