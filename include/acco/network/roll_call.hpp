// SPDX-License-Identifier: Apache-2.0
// Who is here: whoever waits for a rank that itself waits for another one, in this operation or in the one before,
// cannot tell from its own messages which of them did not come.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <thread>
#include <vector>

#include "acco/clock.hpp"
#include "acco/network/message_transport.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Of one channel; its thread makes all calls. A rank that has waited for half of the deadline tells all others, and
/// again when it goes on; at the end of the deadline those that do not wait are the ones that did not come. (So is, by
/// mistake, a rank that came in the second half.) Without a call nothing is sent, received or allocated.
template <class Transport>
class roll_call {
 public:
  /// This rank waits, or waits no more.
  void say(Transport& over, std::uint32_t channel, bool waits) {
    const message_label here = label(channel);
    if (others_.empty()) {
      others_.resize(static_cast<std::size_t>(over.size()));
      for (int peer = 0; peer < over.size(); ++peer) {
        if (peer != over.rank()) hear(over, here, peer);
      }
    }
    said& mine = said_.emplace_back();  // stays: others may ask for it much later
    mine.waits = waits ? 1 : 0;
    for (int peer = 0; peer < over.size(); ++peer) {
      try {
        if (peer != over.rank()) mine.messages.push_back(over.send(peer, here, &mine.waits, sizeof mine.waits));
      } catch (delivery_failure const&) {  // it is gone
      }
    }
  }

  /// Reads what others have said. Who has called does so again and again: a word travels when the one before is read.
  /// Where the transport waits, a millisecond for each rank.
  void listen(Transport& over, std::uint32_t channel) {
    for (int peer = 0; peer < static_cast<int>(others_.size()); ++peer) {
      other& its = others_[static_cast<std::size_t>(peer)];
      try {
        while (!its.message.empty() && over.complete(its.message.front(), 0.001) == delivery::done) {
          its.waits = its.arriving;
          its.message.clear();
          hear(over, label(channel), peer);
        }
      } catch (delivery_failure const&) {  // it is gone
      }
    }
  }
  /// By rank: who has not said at last that it waits. Listens for a tenth of a second more, and a round trip.
  [[nodiscard]] std::vector<bool> absent(Transport& over, std::uint32_t channel) {
    const double until = steady_seconds() + 0.1 + over.round_trip();
    do {
      listen(over, channel);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (steady_seconds() < until);
    std::vector<bool> result;
    result.reserve(others_.size());
    for (other const& each : others_) result.push_back(each.waits == 0);
    if (!result.empty()) result[static_cast<std::size_t>(over.rank())] = false;
    return result;
  }

 private:
  struct said {
    std::uint32_t waits = 0;
    std::vector<typename Transport::request> messages;
  };
  struct other {
    std::uint32_t arriving = 0, waits = 0;
    std::vector<typename Transport::request> message;
  };
  static message_label label(std::uint32_t channel) noexcept { return {0xfffffffe, collective::none, 0, channel}; }
  void hear(Transport& over, message_label here, int peer) {
    other& its = others_[static_cast<std::size_t>(peer)];
    try {
      its.message.push_back(over.receive(peer, here, &its.arriving, sizeof its.arriving));
    } catch (delivery_failure const&) {  // it is gone
    }
  }

  std::vector<other> others_;  // by rank
  std::list<said> said_;
};

}  // namespace ACCO_SIMD_NAMESPACE
