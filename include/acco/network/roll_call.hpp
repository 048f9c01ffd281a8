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

/// Of one channel; its thread makes all calls. A rank that has waited for half of the deadline tells all others how
/// many operations it has begun; at the end of the deadline those that have said nothing since they were last heard of
/// are the ones that did not come. (So is, by mistake, a rank that came in the second half.) Without a call nothing is
/// sent, received or allocated.
template <class Transport>
class roll_call {
 public:
  /// This rank waits.
  void answer(Transport& over, std::uint32_t channel, std::uint32_t begun) {
    const message_label here = label(channel);
    if (others_.empty()) {
      others_.resize(static_cast<std::size_t>(over.size()));
      for (int peer = 0; peer < over.size(); ++peer) {
        if (peer != over.rank()) hear(over, here, peer);
      }
    }
    said& mine = said_.emplace_back();  // stays: others may ask for it much later
    mine.begun = begun;
    for (int peer = 0; peer < over.size(); ++peer) {
      try {
        if (peer != over.rank()) mine.messages.push_back(over.send(peer, here, &mine.begun, sizeof mine.begun));
      } catch (delivery_failure const&) {  // it is gone
      }
    }
  }

  /// By rank: who has not said that it waits since it had begun as many operations as this rank has `heard` of. Waits a
  /// tenth of a second for words that are on their way, or a long link's round trip, and where the transport waits, a
  /// millisecond more for each rank.
  [[nodiscard]] std::vector<bool> absent(Transport& over, std::uint32_t channel, std::vector<std::uint32_t> const& heard) {
    std::vector<bool> result(others_.size(), true);
    bool some = false;
    const double until = steady_seconds() + 0.1 + over.round_trip();
    do {
      some = false;
      for (int peer = 0; peer < static_cast<int>(others_.size()); ++peer) {
        const bool lacking =
            result[static_cast<std::size_t>(peer)] && lacks(over, channel, heard[static_cast<std::size_t>(peer)], peer);
        result[static_cast<std::size_t>(peer)] = lacking;
        some = some || lacking;
      }
      if (some) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (some && steady_seconds() < until);
    return result;
  }

 private:
  struct said {
    std::uint32_t begun = 0;
    std::vector<typename Transport::request> messages;
  };
  struct other {
    std::uint32_t begun = 0, latest = 0;  // operations: what arrives, and what has arrived
    std::vector<typename Transport::request> message;
  };
  bool lacks(Transport& over, std::uint32_t channel, std::uint32_t heard, int peer) {
    if (peer == over.rank()) return false;
    other& its = others_[static_cast<std::size_t>(peer)];
    const auto silent = [&] { return its.latest == 0 || its.latest < heard; };
    try {
      while (silent() && !its.message.empty() && over.complete(its.message.front(), 0.001) == delivery::done) {
        its.latest = its.begun;
        its.message.clear();
        hear(over, label(channel), peer);
      }
    } catch (delivery_failure const&) {  // it is gone
    }
    return silent();
  }
  static message_label label(std::uint32_t channel) noexcept { return {0xfffffffe, collective::none, 0, channel}; }
  void hear(Transport& over, message_label here, int peer) {
    other& its = others_[static_cast<std::size_t>(peer)];
    try {
      its.message.push_back(over.receive(peer, here, &its.begun, sizeof its.begun));
    } catch (delivery_failure const&) {  // it is gone
    }
  }

  std::vector<other> others_;  // by rank
  std::list<said> said_;
};

}  // namespace ACCO_SIMD_NAMESPACE
