// SPDX-License-Identifier: Apache-2.0
// How long an exchange of gradients and parameters takes on a link.
#pragma once

#include <bit>
#include <cmath>

#include "acco/number/require.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What joins the ranks. An exchange in which each of N ranks sends b (N-1)/N bytes takes, in seconds,
///
///   b (N-1)/N / bytes_per_second * (1 + loss exp(-bytes_per_second / loss_rate))
///     + latency * trips(N) + exchange_seconds
///
/// The first term is the link's. Below some hundred Mbit/s TCP on a shaped link retransmits: its windows are then
/// larger than the queue in front of the shaper. `loss` is the share of bytes that a very slow link sends once more,
/// `loss_rate` the rate at which this has fallen to 1/e of it. A rate that was measured with traffic like the
/// training's has it in it already: give `loss = 0`. The other terms are the same for any number of bytes. The first
/// exchange of a process opens connections, which costs `first_seconds`; its windows are still small, so that it loses
/// less.
///
/// The defaults are fitted to exchanges every 1 and 32 steps on four machines, links shaped to 50 to 5000 Mbit/s, NCCL
/// over TCP; tests/advice/measured.cpp has the data and the fit. They are that network's: measure yours (`acco_plan
/// --measure`).
struct network_link {
  double bytes_per_second = 0;      ///< of a rank that sends while all others do, at a time
  double latency = 0;               ///< seconds from one rank to another
  double exchange_seconds = 0.019;  ///< of each exchange, whatever it carries: to start it, the update
  double first_seconds = 0.44;      ///< of the first exchange besides
  double loss = 0.38;               ///< at rates far below `loss_rate`
  double loss_rate = 166e6 / 8;     ///< bytes a second
  double first_loss = 0.55;         ///< the first exchange's loss, in units of the others'

  /// One-way trips, one after the other, of an exchange of few numbers. 4.2 round trips were seen on two ranks; sums of
  /// counts are passed on in ceil(log2 N) hops (docs/network.md).
  [[nodiscard]] static constexpr int trips(unsigned ranks) noexcept {
    return ranks < 2 ? 0 : 7 + static_cast<int>(std::bit_width(ranks - 1));
  }

  /// Seconds of an exchange of `bytes`, before the factor (N-1)/N.
  [[nodiscard]] double seconds(double bytes, unsigned ranks, bool is_first = false) const {
    if (ranks < 2) return 0;
    const double sent = bytes * (ranks - 1.0) / ranks;
    const double lost = loss * std::exp(-bytes_per_second / loss_rate) * (is_first ? first_loss : 1);
    return sent / bytes_per_second * (1 + lost) + latency * trips(ranks) + exchange_seconds + (is_first ? first_seconds : 0);
  }

  void check() const {
    require_positive("network_link::bytes_per_second", bytes_per_second);
    require_positive("network_link::loss_rate", loss_rate);
    require_not_negative("network_link::latency", latency);
    require_not_negative("network_link::exchange_seconds", exchange_seconds);
    require_not_negative("network_link::first_seconds", first_seconds);
    require_not_negative("network_link::loss", loss);
    require_not_negative("network_link::first_loss", first_loss);
  }
};

/// The link on which an exchange of `bytes` has taken `seconds`, of which fewer bytes do not shorten `fixed_seconds`:
/// `communication_seconds` of a step of `synchronous` (docs/links.md). Of one rank, which sends nothing, none.
[[nodiscard]] inline network_link link_of(double seconds, double bytes, unsigned ranks, double fixed_seconds = 0) {
  require_positive("link_of's ranks", ranks);
  if (ranks == 1) return {};
  require_positive("link_of's seconds", seconds);
  require_positive("link_of's bytes", bytes);
  require_not_negative("link_of's fixed_seconds", fixed_seconds);
  if (fixed_seconds >= seconds)
    throw usage_error({}, text("link_of's fixed_seconds is ", fixed_seconds, ", and seconds, of which it is a part, ", seconds),
                      text("Give the part that fewer bytes do not shorten; 0 where it is not known"));
  return {.bytes_per_second = bytes * (ranks - 1.0) / ranks / (seconds - fixed_seconds),
          .exchange_seconds = fixed_seconds,
          .first_seconds = 0,
          .loss = 0};
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
