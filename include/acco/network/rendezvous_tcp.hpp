// SPDX-License-Identifier: Apache-2.0
// Rank 0 listens where the launcher's environment says; the others come to it. What they say: rendezvous_frame.hpp; what is
// authenticated and what is not: docs/security.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_frame.hpp"
#include "acco/network/rendezvous_guest.hpp"
#include "acco/network/rendezvous_host.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous {

/// One start-up over TCP: first all ranks come together, then they exchange what they bring, once. Between the two a rank knows
/// by which address the others reach it. Collective; from the constructor's beginning to the exchange's end at most
/// chosen.deadline seconds.
///
/// A process that dies before all have come leaves its place to a new process of its rank. One that dies later, two processes of
/// one rank, or different numbers of ranks, end the start-up on all ranks that have come, with the same cause. Strangers, and
/// processes of other runs, end nothing.
///
/// Throws `deadline_error` that names who is missing, `usage_error` (the port is in use, the host unknown, a secret missing),
/// `mismatch_error` (two processes of one rank, different numbers of ranks, another run), `peer_error` (a rank left).
/// Not thread-safe; the thread that constructs it makes all the calls.
class tcp_rendezvous {
 public:
  /// Rank 0 listens at `port`; all others dial address:port, which leads to rank 0's host. Blocks until all have come.
  tcp_rendezvous(rank_of me, std::string const& address, std::uint16_t port, tcp_options const& chosen = {}) : me_(me) {
    const error_place where{me.rank, -1, "start-up"};
    if (me.rank < 0 || me.rank >= me.size)
      throw usage_error(where, text("there is no rank ", me.rank, " of ", me.size), text("Ranks are numbered from 0"));
    if (chosen.run.size() > detail::longest_run)
      throw usage_error(where, text("the run's name has ", chosen.run.size(), " bytes"),
                        text("Give it at most ", detail::longest_run));
    if (me.size == 1) return;
    if (me.rank == 0) {
      host_.emplace(me, address, port, chosen);
    } else {
      guest_.emplace(me, address, port, chosen);
    }
  }

  /// The address of this host, in digits, by which the other ranks reach it: the one that connects it with rank 0. A loopback
  /// address only if every rank is on this host.
  [[nodiscard]] std::string own_address() const {
    return host_ ? host_->own_address() : guest_ ? guest_->own_address() : "127.0.0.1";
  }

  /// On rank 0 of a start without a name: its port, which is closed, and nobody else's on this host as long as this is held, so
  /// that no other job's ranks meet there and mix with those of this one that come late. This process may start there again.
  [[nodiscard]] std::shared_ptr<void> port() const { return host_ ? host_->port() : nullptr; }

  /// Everybody gets what everybody brings, by rank.
  [[nodiscard]] contributions exchange(std::string const& mine) { return exchange(false, mine); }

  /// Each rank brings a part for each rank, and gets what everybody brought for it, by rank: rank 0 then sends n^2 parts in all,
  /// and not n^3. What stays at home (its own part) may be empty.
  [[nodiscard]] contributions exchange_parts(contributions const& mine) {
    if (mine.size() != static_cast<std::size_t>(me_.size)) {
      throw usage_error({me_.rank, -1, "start-up"}, text("this rank brings ", mine.size(), " parts for ", me_.size, " ranks"),
                        text("Bring one for each rank"));
    }
    if (me_.size == 1) return mine;
    std::string body;
    for (std::string const& each : mine) detail::put(body, each);
    return exchange(true, body);
  }

 private:
  contributions exchange(bool in_parts, std::string const& mine) {
    return host_ ? host_->exchange(in_parts, mine) : guest_ ? guest_->exchange(in_parts, mine) : contributions{mine};
  }

  rank_of me_;
  std::optional<detail::tcp_host> host_;
  std::optional<detail::tcp_guest> guest_;
};

/// For those who know what they bring before the others have come: all of tcp_rendezvous in one call.
inline contributions over_tcp(rank_of me, std::string const& address, std::uint16_t port, std::string const& mine,
                              tcp_options const& chosen = {}) {
  return tcp_rendezvous(me, address, port, chosen).exchange(mine);
}

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous
