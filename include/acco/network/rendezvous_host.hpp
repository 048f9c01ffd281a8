// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of the rendezvous over TCP: one loop that hears everybody at once.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/rendezvous_door.hpp"
#include "acco/network/rendezvous_frame.hpp"
#include "acco/network/socket.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous::detail {

/// Rank 0. Strangers are dropped and counted; what a true rank does wrong ends the start-up for all, who are told.
class tcp_host {
 public:
  /// Blocks until all ranks have joined.
  tcp_host(rank_of me, std::string const& address, std::uint16_t port, tcp_options const& chosen)
      : where_{me.rank, -1, "start-up"},
        ranks_(static_cast<std::size_t>(me.size)),
        address_(address),
        port_(port),
        chosen_(chosen),
        until_(net::after(chosen.deadline)),
        seats_(ranks_, nullptr),
        doors_(open_doors(address, port, chosen.listen, where_, until_)) {
    // Without a name they may be ranks of two jobs that meet here: those that are one too many have half a second to come.
    auto settled = net::clock::time_point::max();
    for (bool over = false; !over;) {
      over = net::clock::now() >= settled;  // whoever has come by now is heard once more
      const std::size_t before = present_;
      turn(settled);
      const auto now = net::clock::now();
      if (present_ + 1 < ranks_) {
        if (now >= until_) fail_missing();
        settled = net::clock::time_point::max();
        over = false;
      } else if (before != present_) {
        settled =
            now + (chosen.run.empty() ? std::min<net::clock::duration>(settling, (until_ - now) / 10) : net::clock::duration{});
      }
    }
    if (chosen.run.empty()) kept_ = kept_port::keep(port, std::move(doors_));
    doors_.clear();
    for (guest& each : guests_) {
      if (each.rank < 0) drop(each);
    }
    guests_.remove_if([](guest const& each) { return each.gone; });
    for (std::size_t rank = ranks_; rank-- > 1;) {  // the address of this host that others see: the lowest such rank's
      const net::endpoint mine = net::near_end(seats_[rank]->line.socket());
      if (mine.length() != 0) (mine.loopback() ? own_address_ : reachable_) = mine.name();
    }
    if (!reachable_.empty()) own_address_ = reachable_;
    std::string body;
    put(body, reachable_);
    const auto shared = std::make_shared<std::string const>(std::move(body));
    for (std::size_t rank = 1; rank < ranks_; ++rank) say(*seats_[rank], frame::assembled, shared);
    assembled_ = true;
  }

  [[nodiscard]] std::string const& own_address() const noexcept { return own_address_; }
  [[nodiscard]] std::shared_ptr<void> const& port() const noexcept { return kept_; }

  [[nodiscard]] contributions exchange(bool in_parts, std::string const& mine) {
    contributions all(ranks_);
    all[0] = mine;
    in_parts_ = in_parts;
    all_ = &all;
    for (std::size_t rank = 1; rank < ranks_; ++rank) take_early(*seats_[rank]);
    while (brought_ + 1 < ranks_) {
      turn();
      if (brought_ + 1 < ranks_ && net::clock::now() >= until_)
        fail_late("bring its address", [](guest const& g) { return !g.brought; });
    }
    contributions mine_of_all = answer(all);
    answering_ = true;
    while (std::any_of(guests_.begin(), guests_.end(), [](guest const& each) { return each.line.sending(); })) {
      turn();
      if (net::clock::now() >= until_) fail_late("take rank 0's answer", [](guest const& g) { return g.line.sending(); });
    }
    all_ = nullptr;
    if (lost_ >= 0)
      throw peer_error(where_, text("rank ", lost_, " left while all ranks were joining"), text("Look at its own output"), lost_);
    return mine_of_all;
  }

 private:
  struct guest {
    explicit guest(net::socket_handle socket) : line(std::move(socket)) {}
    channel line;
    net::clock::time_point since = net::clock::now();
    conversation talk{};
    int rank = -1;  // once it has joined
    bool greeted = false, brought = false, leaving = false, gone = false;
    std::optional<std::string> early{};  // a contribution that came before rank 0's own
  };
  static constexpr std::chrono::milliseconds settling{500};
  static constexpr std::chrono::seconds patience{5};  // for a guest to say who it is

  /// Hears everybody once; waits a quarter of a second at most, and not beyond `until`.
  void turn(net::clock::time_point until = net::clock::time_point::max()) {
    const auto now = net::clock::now();
    const bool admits = now >= closed_until_;
    polled_.clear();
    for (auto const& door : doors_) polled_.push_back({door.get(), static_cast<short>(admits ? POLLIN : 0), 0});
    for (guest const& each : guests_)
      polled_.push_back({each.line.socket().get(), static_cast<short>(each.line.sending() ? POLLIN | POLLOUT : POLLIN), 0});
    auto wake = std::min({until_, until, now + std::chrono::milliseconds(250)});
    if (!admits) wake = std::min(wake, closed_until_);
    const int heard = poll(polled_.data(), static_cast<nfds_t>(polled_.size()), net::milliseconds_until(wake));
    if (heard < 0 && errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // no memory: not at once again
    if (heard > 0) {
      std::size_t at = doors_.size();
      for (auto each = guests_.begin(); at < polled_.size(); ++each, ++at) {
        if (polled_[at].revents != 0 && !each->gone) serve(*each);
      }
      for (std::size_t door = 0; door < doors_.size(); ++door) {
        if (polled_[door].revents != 0) admit(doors_[door]);
      }
    }
    const auto latest = net::clock::now() - patience;
    for (guest& each : guests_) {
      if (each.rank < 0 && !each.gone && each.since < latest) {
        silent_ += each.leaving ? 0 : 1;
        drop(each);
      }
    }
    guests_.remove_if([](guest const& each) { return each.gone; });
  }

  void admit(net::socket_handle const& door) {
    for (int admitted = 0; admitted < 256;) {  // then the others are heard and the clock is looked at
      net::socket_handle socket(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        const int on = 1;
        setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        net::notice_vanished_peer(socket);
        ++admitted;
        guests_.emplace_back(std::move(socket));
        guests_.back().talk.start = start_;
        serve(guests_.back());  // a rank says hello at once
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!make_room()) {
          short_of_descriptors_ = true;
          closed_until_ = net::clock::now() + std::chrono::milliseconds(50);
          return;
        }
      } else if (errno != EINTR && errno != ECONNABORTED) {  // what the network says about a connection that is gone
        ++admitted;
      }
    }
  }
  /// No descriptor is left: whoever has been silent for longest goes.
  bool make_room() {
    const auto longest =
        std::find_if(guests_.begin(), guests_.end(), [](guest const& each) { return each.rank < 0 && !each.gone; });
    if (longest == guests_.end()) return false;
    silent_ += 1;
    drop(*longest);
    return true;
  }

  void serve(guest& each) {
    if (each.line.sending() && !each.line.flush()) return lose(each);
    while (!each.gone) {
      if (each.leaving) {
        if (!each.line.discard()) drop(each);
        return;
      }
      switch (each.line.receive(most(each))) {
        case channel::arrival::nothing: return;
        case channel::arrival::broken: return lose(each);
        case channel::arrival::whole_frame: take(each); break;
        case channel::arrival::foreign: ++foreign_; return lose(each);
        case channel::arrival::other_version:
          ++foreign_;
          if (each.rank >= 0) return lose(each);
          refuse_hello(each, text("rank 0 speaks another version of the start-up's protocol, ", version),
                       text("Start the same program on every rank"));
          break;
      }
    }
  }
  [[nodiscard]] std::size_t most(guest const& each) const noexcept {
    return each.rank >= 0 && assembled_ ? largest_contribution : largest_greeting;
  }

  void take(guest& each) {
    const frame kind = each.line.kind();
    if (kind == frame::hello && !each.greeted) return greet(each);
    if (each.rank < 0) {
      if (kind != frame::join || !each.greeted || each.line.start() != start_) {
        ++foreign_;
        return drop(each);
      }
      if (!proven(each)) {
        ++unproven_;
        return drop(each);
      }
      return seat(each);
    }
    if (kind != frame::bring || each.line.start() != start_ || !assembled_ || each.brought || each.early) return lose(each);
    if (!proven(each)) {
      fail<peer_error>(reason::peer, text("what rank ", each.rank, " brought was changed on its way: its proof is wrong"),
                       text("Look for who is between"), each.rank);
    }
    each.early = std::string(each.line.body());
    if (all_ != nullptr) take_early(each);
  }
  void greet(guest& each) {
    reader in{each.line.body()};
    std::string run = in.bytes();
    const int rank = in.number<int>();
    const int size = in.number<int>();
    const std::string nonce(in.fixed(nonce_size));
    if (!in.good || run.size() > longest_run) {
      ++foreign_;
      return drop(each);
    }
    each.talk.run = std::move(run);
    each.talk.rank = rank;
    each.talk.size = size;
    each.talk.guest_nonce = nonce;
    if (each.talk.run != chosen_.run) {
      ++other_runs_;
      return refuse_hello(
          each,
          text("rank 0 at ", address_, ":", port_, " is of ", run_in_words(chosen_.run), ", and this process is of ",
               run_in_words(each.talk.run)),
          text("Either this process outlived its run, or the ranks were told different names of it (option `run`, "
               "ACCO_RUN_ID, or the launcher's)"));
    }
    each.greeted = true;
    each.talk.host_nonce = draw_nonce();
    say(each, frame::welcome, std::make_shared<std::string const>(each.talk.host_nonce));
  }
  /// A process that has proved to belong to this run.
  void seat(guest& each) {
    const int rank = each.talk.rank;
    text wrong;
    if (each.talk.size != static_cast<int>(ranks_)) {
      wrong.append("it was started with WORLD_SIZE ").append(each.talk.size).append(", rank 0 with ").append(ranks_);
    } else if (rank < 1 || rank >= each.talk.size) {
      wrong.append(rank == 0 ? "there is a rank 0 already" : "there is no such rank");
    } else if (guest* const before = seats_[static_cast<std::size_t>(rank)]; before != nullptr) {
      serve(*before);  // has it gone, and this process takes its place?
      if (!before->gone) wrong.append("a process of rank ").append(rank).append(" has come already");
    }
    if (!wrong.view().empty()) {
      each.leaving = true;
      const text advice("Start every rank once, with the same WORLD_SIZE, and each job at a MASTER_PORT of its own");
      tell(each, reason::mismatch, rank, text("rank 0 refused this rank: ", wrong), advice);
      fail<mismatch_error>(reason::mismatch, text("rank ", rank, " cannot join: ", wrong), advice, rank);
    }
    each.rank = rank;
    seats_[static_cast<std::size_t>(rank)] = &each;
    ++present_;
  }
  void take_early(guest& each) {
    if (!each.early) return;
    reader in{*each.early};
    const bool theirs_in_parts = in.number<std::uint8_t>() != 0;
    if (theirs_in_parts != in_parts_) {
      fail<mismatch_error>(reason::mismatch, text("rank ", each.rank, " brought its address in another form than rank 0"),
                           text("Start the same program on every rank"), each.rank);
    }
    (*all_)[static_cast<std::size_t>(each.rank)] = std::string(in.rest);
    each.early.reset();
    each.brought = true;
    ++brought_;
  }
  /// Tells everybody; returns what is for rank 0.
  contributions answer(contributions const& all) {
    if (!in_parts_) {
      std::string body;
      for (std::string const& each : all) put(body, each);
      const auto shared = std::make_shared<std::string const>(std::move(body));
      for (std::size_t rank = 1; rank < ranks_; ++rank) say(*seats_[rank], frame::answer, shared);
      return all;
    }
    std::vector<reader> readers;
    for (std::string const& each : all) readers.push_back({each});
    contributions mine;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::string body;
      for (std::size_t from = 0; from < ranks_; ++from) {
        std::string part = readers[from].bytes();
        if (!readers[from].good) {
          fail<mismatch_error>(reason::mismatch, text("rank ", from, " brought fewer parts than there are ranks"),
                               text("Start the same program on every rank"), static_cast<int>(from));
        }
        if (rank == 0)
          mine.push_back(std::move(part));
        else
          put(body, part);
      }
      if (rank != 0) say(*seats_[rank], frame::answer, std::make_shared<std::string const>(std::move(body)));
    }
    return mine;
  }

  [[nodiscard]] bool proven(guest const& each) const {
    return same_proof(each.line.proof(), proof_of(chosen_.secret, each.talk, each.line.kind(), each.line.body()));
  }
  /// Whoever cannot be told is noticed when its socket is read.
  void say(guest& each, frame kind, std::shared_ptr<std::string const> const& body) {
    each.line.send(kind, start_, body, proof_of(chosen_.secret, each.talk, kind, *body));
    (void)each.line.flush();
  }
  void tell(guest& each, reason why, int culprit, text const& what, text const& advice) {
    std::string body;
    put(body, static_cast<std::uint32_t>(why));
    put(body, culprit);
    put(body, what.view());
    put(body, advice.view());
    say(each, frame::refusal, std::make_shared<std::string const>(std::move(body)));
  }
  void refuse_hello(guest& each, text const& what, text const& advice) {
    each.leaving = true;  // it closes the connection when it has read this
    tell(each, reason::mismatch, 0, what, advice);
  }
  void drop(guest& each) {
    each.line.close();
    each.gone = true;
  }
  /// A connection ended.
  void lose(guest& each) {
    const int rank = each.rank;
    const bool served = answering_ && !each.line.sending();
    if (rank < 0 && each.greeted && !each.leaving) ++turned_away_;
    drop(each);
    if (rank < 0 || served) return;
    seats_[static_cast<std::size_t>(rank)] = nullptr;
    if (!assembled_) {  // a new process of this rank may come
      --present_;
    } else if (answering_) {  // the others get their answers first
      lost_ = rank;
      each.line = channel(net::socket_handle());
    } else {
      fail<peer_error>(reason::peer, text("rank ", rank, " left while all ranks were joining"), text("Look at its own output"),
                       rank);
    }
  }

  /// Ends the start-up for all who have joined.
  template <class Error>
  [[noreturn]] void fail(reason why, text const& what, text const& advice, int culprit) {
    for (guest& each : guests_) {
      if (each.rank >= 0 && !each.gone) tell(each, why, culprit, what, advice);
    }
    // They hang up when they have read it. Closing before what they still say is read could take the words away from them.
    const auto until = net::after(1);
    const auto listening = [](guest const& each) { return !each.gone && (each.rank >= 0 || each.leaving); };
    while (std::any_of(guests_.begin(), guests_.end(), listening) && net::clock::now() < until) {
      polled_.clear();
      for (guest& each : guests_) {
        if (!listening(each)) continue;
        if (!each.line.flush() || !each.line.discard())
          drop(each);
        else
          polled_.push_back({each.line.socket().get(), static_cast<short>(each.line.sending() ? POLLIN | POLLOUT : POLLIN), 0});
      }
      if (!polled_.empty()) (void)poll(polled_.data(), static_cast<nfds_t>(polled_.size()), net::milliseconds_until(until));
    }
    throw Error(where_, what, advice, culprit);
  }
  [[noreturn]] void fail_missing() {
    auto const [who, first] = some_ranks(static_cast<int>(ranks_),
                                         [&](int rank) { return rank > 0 && seats_[static_cast<std::size_t>(rank)] == nullptr; });
    text advice("Check that it runs and that its MASTER_ADDR, MASTER_PORT and WORLD_SIZE are the same as here");
    const struct {
      int count;
      char const* what;
    } dropped[] = {{foreign_, "did not speak this protocol"},
                   {silent_, "did not say who they are"},
                   {other_runs_, "were of another run"},
                   {unproven_, "did not prove that they know the secret"},
                   {turned_away_, "left when rank 0 had answered (have all ranks the same secret?)"}};
    bool any = false;
    for (auto const& each : dropped) {
      if (each.count == 0) continue;
      advice.append(any ? ", " : ". Connections that were dropped: ").append(each.count).append(" ").append(each.what);
      any = true;
    }
    if (short_of_descriptors_) advice.append(". This process had no file descriptor left for those who came: ulimit -n");
    fail<deadline_error>(reason::deadline,
                         text("rank ", who, " did not come to ", address_, ":", port_, " within ", chosen_.deadline, " s"),
                         advice, first);
  }
  template <class Is>
  [[noreturn]] void fail_late(char const* what, Is is) {
    auto const [who, first] = some_ranks(static_cast<int>(ranks_), [&](int rank) {
      return rank > 0 && seats_[static_cast<std::size_t>(rank)] != nullptr && is(*seats_[static_cast<std::size_t>(rank)]);
    });
    fail<deadline_error>(reason::deadline, text("rank ", who, " joined, and did not ", what, " within ", chosen_.deadline, " s"),
                         text("Look at its own output"), first);
  }

  error_place where_;
  std::size_t ranks_;
  std::string address_;
  std::uint16_t port_;
  tcp_options chosen_;
  std::string start_ = draw_nonce();
  std::shared_ptr<void> kept_;
  net::clock::time_point until_, closed_until_{};
  std::list<guest> guests_;    // the longest here first
  std::vector<guest*> seats_;  // by rank
  std::vector<net::socket_handle> doors_;
  std::vector<pollfd> polled_;
  std::string own_address_, reachable_;
  contributions* all_ = nullptr;
  std::size_t present_ = 0, brought_ = 0;
  int foreign_ = 0, silent_ = 0, other_runs_ = 0, unproven_ = 0, turned_away_ = 0, lost_ = -1;
  bool assembled_ = false, answering_ = false, in_parts_ = false, short_of_descriptors_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous::detail

#include "acco/restore_macros.hpp"
