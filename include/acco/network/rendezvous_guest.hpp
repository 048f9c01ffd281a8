// SPDX-License-Identifier: Apache-2.0
// The side of every rank but 0 in the rendezvous over TCP.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <netdb.h>
#include <poll.h>

#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_frame.hpp"
#include "acco/network/socket.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous::detail {

/// Dials every address of rank 0's host in turn, again and again, until rank 0 welcomes it.
class tcp_guest {
 public:
  /// Blocks until all ranks have joined.
  tcp_guest(rank_of me, std::string const& address, std::uint16_t port, tcp_options const& chosen)
      : where_{me.rank, -1, "start-up"},
        me_(me),
        at_(text(address, ":", port).view()),
        chosen_(chosen),
        until_(net::after(chosen.deadline)) {
    auto nap = std::chrono::milliseconds(50);
    net::lookup host;
    for (net::clock::time_point stale{};;) {
      if (net::clock::now() >= stale) {  // a name may lead elsewhere after a while, or begin to lead anywhere
        net::lookup now = net::look_up(address, port, until_);
        if (now.code == 0 || host.found.empty()) host = std::move(now);
        stale = net::after(host.found.empty() ? 0 : 5);
      }
      for (net::endpoint const& each : host.found) {
        net::opened found = net::dial(each, std::min(until_, net::after(host.found.size() > 1 ? 2 : 5)));
        if (found.code == EMFILE || found.code == ENFILE)
          throw usage_error(where_, text("no socket can be opened: ", std::strerror(found.code)),
                            text("Check the limits of this process (ulimit -n)"));
        if (found.code != 0) {
          note(trouble::unreachable, std::strerror(found.code));
        } else if (join(std::move(found.socket))) {
          return;
        }
      }
      std::this_thread::sleep_until(std::min(until_, net::clock::now() + nap));
      if (net::clock::now() >= until_) {
        if (!host.found.empty()) fail();
        throw usage_error(
            where_,
            text("the host '", address, "' of MASTER_ADDR is unknown after ", chosen.deadline, " s: ", gai_strerror(host.code)),
            text("Give rank 0's host name or address, the same on every rank"));
      }
      nap = std::min(2 * nap, std::chrono::milliseconds(400));
    }
  }

  [[nodiscard]] std::string const& own_address() const noexcept { return own_address_; }

  [[nodiscard]] contributions exchange(bool in_parts, std::string const& mine) {
    std::string body;
    put(body, static_cast<std::uint8_t>(in_parts));
    body.append(mine);
    if (body.size() > largest_contribution)
      throw usage_error(where_, text("this rank brings ", body.size(), " bytes to the start-up"),
                        text("At most ", largest_contribution, " bytes can be brought"));
    say(frame::bring, std::move(body));
    const outcome heard = hear(static_cast<std::size_t>(me_.size) * (largest_contribution + 8), until_);
    if (heard == outcome::late)
      throw deadline_error(where_,
                           text("rank 0 at ", at_, " did not gather what all ranks bring within ", chosen_.deadline, " s"),
                           text("Look at its output"), 0);
    if (heard == outcome::whole_frame && !proven())
      throw peer_error(where_, text("what rank 0 said was changed on its way: its proof is wrong"),
                       text("Look for who is between"), 0);
    if (heard == outcome::whole_frame && line_.kind() == frame::refusal) refused();
    if (heard == outcome::whole_frame && line_.kind() == frame::answer) {
      reader in{line_.body()};
      contributions all(static_cast<std::size_t>(me_.size));
      for (std::string& each : all) each = in.bytes();
      line_ = channel(net::socket_handle());
      if (in.good) return all;
    }
    throw peer_error(where_, text("rank 0 left while all ranks were joining"), text("Look at its own output"), 0);
  }

 private:
  enum class outcome { whole_frame, late, broken, foreign, other_version };
  /// Why there is no rank 0 yet, from what says little to what says more.
  enum class trouble { unreachable, foreign, unproven, left };

  /// Talks until all ranks have joined; false: this is not rank 0, or it went away.
  bool join(net::socket_handle socket) {
    const net::endpoint mine = net::near_end(socket);
    talk_ = {chosen_.run, me_.rank, me_.size, draw_nonce()};
    line_ = channel(std::move(socket));
    std::string hello;
    put(hello, talk_.run);
    put(hello, talk_.rank);
    put(hello, talk_.size);
    hello.append(talk_.guest_nonce);
    line_.send(frame::hello, talk_.start, std::make_shared<std::string const>(std::move(hello)), {});
    switch (hear(largest_greeting, std::min(until_, net::after(10)))) {
      case outcome::whole_frame: break;
      case outcome::other_version:
        throw mismatch_error(where_, text("what listens at ", at_, " speaks another version of the start-up's protocol"),
                             text("Start the same program on every rank"), 0);
      default: return note(trouble::foreign);
    }
    talk_.start = line_.start();
    if (line_.kind() == frame::refusal) {
      if (proven()) refused();
      reader in{line_.body()};
      in.fixed(8);
      return note(trouble::unproven, "; it says: " + printable(in.bytes()));
    }
    if (line_.kind() != frame::welcome || line_.body().size() != nonce_size) return note(trouble::foreign);
    talk_.host_nonce = std::string(line_.body());
    if (!chosen_.secret && !line_.proof().empty()) {
      throw usage_error(where_, text("rank 0 at ", at_, " asks for proof of a shared secret, and this rank was given none"),
                        text("Give every rank the same secret (option `secret`)"));
    }
    if (!proven()) return note(trouble::unproven);
    if (!joined_.empty() && joined_ != talk_.start) {
      throw mismatch_error(where_,
                           text("this rank has joined a start at ", at_,
                                ", which ended, and finds another one there: another job "
                                "uses this port, or rank 0 was started again"),
                           text("Start all ranks again, each job with another MASTER_PORT"), 0);
    }
    joined_ = talk_.start;
    say(frame::join, {});
    switch (hear(largest_greeting, until_)) {
      case outcome::whole_frame: break;
      case outcome::late:
        throw deadline_error(where_, text("rank 0 at ", at_, " waited for other ranks longer than ", chosen_.deadline, " s"),
                             text("Look at rank 0's output for who is missing"), 0);
      default: return note(trouble::left);
    }
    if (!proven()) return note(trouble::unproven);
    if (line_.kind() == frame::refusal) refused();
    if (line_.kind() != frame::assembled) return note(trouble::foreign);
    reader in{line_.body()};
    const std::string reachable = in.bytes();
    own_address_ = mine.loopback() && !reachable.empty() ? reachable : mine.name();
    return true;
  }

  void say(frame kind, std::string body) {
    std::string proof = proof_of(chosen_.secret, talk_, kind, body);
    line_.send(kind, talk_.start, std::make_shared<std::string const>(std::move(body)), std::move(proof));
  }
  /// Sends what is to be sent, and waits for a frame.
  [[nodiscard]] outcome hear(std::size_t most, net::clock::time_point until) {
    for (bool sends = true;;) {
      sends = sends && line_.sending() && line_.flush() && line_.sending();  // where that fails, a refusal may still be read
      switch (line_.receive(most)) {
        case channel::arrival::whole_frame: return outcome::whole_frame;
        case channel::arrival::broken: return outcome::broken;
        case channel::arrival::foreign: return outcome::foreign;
        case channel::arrival::other_version: return outcome::other_version;
        case channel::arrival::nothing: break;
      }
      if (!line_.socket().ready(static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), until)) return outcome::late;
      if (net::clock::now() >= until) return outcome::late;
    }
  }
  [[nodiscard]] bool proven() const {
    if (line_.start() != talk_.start) return false;
    return !chosen_.secret || same_proof(line_.proof(), proof_of(chosen_.secret, talk_, line_.kind(), line_.body()));
  }
  /// Rank 0 has ended this rank's start-up, and says why.
  [[noreturn]] void refused() {
    reader in{line_.body()};
    const auto why = static_cast<reason>(in.number<std::uint32_t>());
    const int culprit = in.number<int>();
    const std::string what = printable(in.bytes(), 700), advice = printable(in.bytes(), 700);
    line_ = channel(net::socket_handle());
    if (why == reason::peer) throw peer_error(where_, text(what), text(advice), culprit);
    if (why == reason::deadline) throw deadline_error(where_, text(what), text(advice), culprit);
    throw mismatch_error(where_, text(what), text(advice), culprit);
  }

  bool note(trouble what, std::string words = {}) {
    line_ = channel(net::socket_handle());
    if (what >= trouble_) words_ = std::move(words);
    trouble_ = std::max(trouble_, what);
    return false;
  }
  [[noreturn]] void fail() {
    const text within(" within ", chosen_.deadline, " s");
    switch (trouble_) {
      case trouble::foreign:
        throw deadline_error(
            where_, text("what listens at ", at_, " did not answer as rank 0", within),
            text("Another program uses this port, or rank 0 hangs: look at rank 0's output, or choose another MASTER_PORT"), 0);
      case trouble::unproven:
        throw deadline_error(where_,
                             text("what listens at ", at_, " did not prove", within, " that it knows this run's secret", words_),
                             text("Give every rank the same secret (option `secret`); or another run, or a stranger, uses this "
                                  "port: choose another MASTER_PORT"),
                             0);
      case trouble::left:
        throw deadline_error(where_, text("rank 0 at ", at_, " left before all ranks had come, and did not come back", within),
                             text("Look at its own output"), 0);
      case trouble::unreachable: break;
    }
    throw deadline_error(where_, text("rank 0 could not be reached at ", at_, within, " (", words_, ")"),
                         text("Check that rank 0 runs, that MASTER_ADDR and MASTER_PORT are those of rank 0's host, and that no "
                              "firewall is between"),
                         0);
  }

  error_place where_;
  rank_of me_;
  std::string at_;
  tcp_options chosen_;
  net::clock::time_point until_;
  conversation talk_;
  channel line_{net::socket_handle()};
  std::string own_address_, words_, joined_;
  trouble trouble_ = trouble::unreachable;
};

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous::detail

#include "acco/restore_macros.hpp"
