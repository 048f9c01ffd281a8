// SPDX-License-Identifier: Apache-2.0
// Rank 0's side of the start-up.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "acco/collective/ranks_where.hpp"
#include "acco/error.hpp"
#include "acco/network/rendezvous.hpp"
#include "acco/network/socket.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous::detail {

using doors = std::vector<net::socket_handle>;

/// Rank 0's doors: where `listen` says; else at all addresses of this host if none is given, at one that is given in
/// digits, which means the same on every host, and for a name, which may mean another address there than here,
/// everywhere.
inline doors open_doors(std::string const& address, std::string const& port, start_up const& with) {
  const std::string listen = net::without_brackets(with.chosen.listen), only = listen.empty() ? address : listen;
  std::vector<net::endpoint> wanted{{"0.0.0.0", port}, {"::", port}};
  if (net::is_numeric(only) || only == "localhost") {
    wanted = net::look_up(only, port).found;
  } else if (only.empty() || !listen.empty()) {
    wanted = net::own_addresses(listen, port);
  }
  // A rank of this host that dialled before anybody listened may hold the port as its own for an instant.
  for (const auto timeout = std::min(with.until, net::after(1));; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    doors open;
    int code = EADDRNOTAVAIL;
    for (net::endpoint const& each : wanted) {
      if (net::socket_handle listener = net::listen_at(each)) {
        open.push_back(std::move(listener));
      } else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) {
        code = errno;
      }
    }
    if (!open.empty() && code == EADDRNOTAVAIL) return open;
    if (code == EADDRINUSE && net::clock::now() < timeout) continue;
    throw usage_error(
        with.where,
        text("rank 0 cannot listen at ", only.empty() ? "any address" : only, ", port ", port, ": ", std::strerror(code)),
        text("If another program has the port (another job, an earlier run, a second process with RANK=0, a launcher's "
             "own store): end all ranks of this job, of which some may have met the other one's, and choose another "
             "MASTER_PORT"));
  }
}

/// Rank 0: one loop hears everybody at once. Strangers are dropped and counted. What a true rank does wrong ends the
/// start-up for all, who are told.
class tcp_host : start_up {
 public:
  tcp_host(start_up with, std::string const& address, std::string const& port)
      : start_up(std::move(with)), doors_(open_doors(address, port, *this)) {}
  /// For a file: this start's number, and where this rank listens.
  [[nodiscard]] std::string whereabouts() const {
    contributions words{start_};
    for (net::socket_handle const& each : doors_) {
      net::endpoint const at = net::end_of(each, getsockname);
      words.insert(words.end(), {at.host, at.port});
    }
    return pack(words);
  }

  /// Blocks until all ranks have come.
  [[nodiscard]] contributions deliver(contributions const& mine) {
    while (turn(), std::count_if(clients_.begin(), clients_.end(), has_come) + 1 < me.size) {
      if (net::clock::now() >= until) fail_missing();
    }
    doors_.clear();
    return answer(mine);
  }

 private:
  static bool has_come(line const& each) { return each.rank > 0 && each.kind == "bring"; }
  /// Everybody gets what is for it.
  contributions answer(contributions const& mine) {
    std::erase_if(clients_, [](line const& each) { return each.rank < 0; });
    std::sort(clients_.begin(), clients_.end(), [](line const& a, line const& b) { return a.rank < b.rank; });
    std::vector<contributions> brought{mine};
    for (line const& each : clients_) brought.push_back(unpack(each.fields, ranks));
    const auto brought_for = [&](int rank) {
      contributions result;
      for (contributions& each : brought) result.push_back(std::move(each[static_cast<std::size_t>(rank)]));
      return result;
    };
    for (line const& each : clients_)  // who has died is missed by all later
      (void)each.say(chosen.secret, "answer", pack(brought_for(each.rank)), until);
    clients_.clear();
    return brought_for(0);
  }

  /// Hears everybody once.
  void turn() {
    std::vector<pollfd> polled;
    polled.reserve(clients_.size() + doors_.size());
    for (line const& each : clients_) polled.push_back({each.socket.get(), POLLIN, 0});
    for (net::socket_handle const& each : doors_) polled.push_back({each.get(), POLLIN, 0});
    (void)net::wait_for(polled, std::min(until, net::after(0.25)));
    const auto now = net::clock::now();
    const std::size_t before = clients_.size();
    for (std::size_t i = 0; i < before; ++i) {
      if (polled[i].revents != 0) {
        hear(clients_[i]);
      } else if (clients_[i].rank < 0 && clients_[i].since < now - std::chrono::seconds(5)) {
        drop(clients_[i], "did not say who they are");
      }
    }
    for (std::size_t i = 0; i < doors_.size(); ++i) {
      if (polled[before + i].revents != 0) admit(doors_[i]);
    }
    std::erase_if(clients_, [](line const& each) { return !each.socket; });
  }
  void admit(net::socket_handle const& listener) {
    for (int admitted = 0; admitted < 256; ++admitted) {  // then the others are heard and the clock is looked at
      line each{net::socket_handle(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)), net::clock::now()};
      if (each.socket) {
        net::set(each.socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
        each.talk = pack({start_, draw_nonce()});
        if (each.say({}, "greeting", each.talk, {})) clients_.push_back(std::move(each));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        const auto silent = [](line const& one) { return one.rank < 0 && one.socket; };
        const auto longest = std::find_if(clients_.begin(), clients_.end(), silent);
        short_of_descriptors_ = true;
        if (longest == clients_.end()) return std::this_thread::sleep_for(std::chrono::milliseconds(20));
        drop(*longest, "did not say who they are");  // it makes room
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
    }
  }
  void hear(line& each) {
    if (each.rank == gone) return discard(each);
    while (each.socket && each.rank != gone) {
      const auto came = each.hear(has_come(each) ? 0 : each.rank > 0 ? most : most_of_strangers);  // it has said all
      if (came == line::state::waits) return;
      if (each.rank < 0) {
        greeted(each, came);
      } else if (came != line::state::whole || each.kind != "bring" || !each.proven(chosen.secret)) {
        leave(each);
      } else if (unpack(each.fields, ranks).empty()) {
        cannot_join(each, text("it does not bring as many parts as there are ranks"));
      }
    }
  }
  /// Somebody has said who it is, or something else.
  void greeted(line& each, line::state came) {
    if (came == line::state::ended) return drop(each, "did not say who they are");
    const contributions said = came == line::state::whole && each.kind == "hello" ? unpack(each.fields, 4) : contributions();
    const int rank = said.empty() ? -1 : whole_number(said[1]), size = said.empty() ? -1 : whole_number(said[2]);
    if (rank < 0 || size < 0) return drop(each, "did not speak this protocol");
    const bool proven = each.proven(chosen.secret);
    each.talk += " " + each.fields;
    if (said[0] != chosen.run) {
      tell(each, text("rank 0 at ", place, " is of ", in_words(chosen.run), ", and this process is of ", in_words(said[0])),
           text("Either this process outlived its run, or the ranks were told different names of it (option `run`, ACCO_RUN_ID, "
                "or the launcher's)"));
      return drop(each, "were of another run", true);
    }
    if (proven) return seat(each, rank, size);
    tell(each, text("rank 0 at ", place, " knows another secret than this process, or one of them knows none"),
         text("Give every rank the same secret (option `secret`), or none"));
    drop(each, "did not prove that they know the secret", true);
  }
  /// A process that has proved to belong to this run.
  void seat(line& each, int rank, int size) {
    const auto other =
        std::find_if(clients_.begin(), clients_.end(), [&](line const& one) { return rank > 0 && one.rank == rank; });
    if (other != clients_.end() && other->socket.ready(POLLIN, {})) leave(*other);
    each.rank = rank;
    if (size != me.size) cannot_join(each, text("it was started with WORLD_SIZE ", size, ", rank 0 with ", me.size));
    if (rank == 0) cannot_join(each, text("there is a rank 0 already"));
    if (rank >= size) cannot_join(each, text("there is no such rank"));
    if (other != clients_.end() && other->socket) cannot_join(each, text("a process of this rank has come already"));
  }
  [[noreturn]] void cannot_join(line const& which, text const& why) {
    fail<mismatch_error>('m', text("rank ", which.rank, " cannot join: ", why),
                         text("Start every rank once, with the same WORLD_SIZE, and each job at a MASTER_PORT of its own"),
                         which.rank);
  }
  static void leave(line& each) {  // a new process of its rank may come
    each.socket.close();
    each.rank = -1;
  }
  /// Who was `told` something is heard to its end: a socket that is closed over unread bytes takes back what it has
  /// sent.
  void drop(line& each, std::string_view why, bool told = false) {
    if (each.rank != gone) ++dropped_[why];
    told ? let_go(each) : each.socket.close();
  }
  static void let_go(line& each) {
    ::shutdown(each.socket.get(), SHUT_WR);
    each.rank = gone;
  }
  static void discard(line& each) {
    char some[4096];
    for (int parts = 0; parts < 16; ++parts) {  // then the others have their turn
      const ssize_t n = ::recv(each.socket.get(), some, sizeof some, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n == 0 || (n < 0 && errno != EINTR)) return each.socket.close();
    }
  }
  void tell(line const& to, text const& what, text const& advice, int culprit = 0, char type = 'm') const {
    (void)to.say(chosen.secret, "refusal",
                 pack({std::string(1, type), std::to_string(culprit), std::string(what.view()), std::string(advice.view())}), {});
  }
  /// Ends the start-up for all who have joined.
  template <class Error>
  [[noreturn]] void fail(char type, text const& what, text const& advice, int culprit) {
    for (line& each : clients_) {
      if (each.rank != -1 && each.rank != gone) tell(each, what, advice, culprit, type);
      let_go(each);
    }
    doors_.clear();
    for (const auto timeout = net::after(1); !clients_.empty() && net::clock::now() < timeout;) {
      std::vector<pollfd> polled;
      polled.reserve(clients_.size());
      for (line const& each : clients_) polled.push_back({each.socket.get(), POLLIN, 0});
      (void)net::wait_for(polled, timeout);
      for (line& each : clients_) discard(each);
      std::erase_if(clients_, [](line const& each) { return !each.socket; });
    }
    clients_.clear();
    throw Error(where, what, advice, culprit);
  }
  static std::string in_words(std::string const& run) {
    return run.empty() ? "a run without a name" : "run '" + printable(run, 64) + "'";
  }
  [[noreturn]] void fail_missing() {
    int missing = 0;
    auto who = ranks_where(me.size, [&](int rank) {
      const auto is_it = [&](line const& each) { return each.rank == rank; };
      return rank > 0 && std::none_of(clients_.begin(), clients_.end(), is_it) && ++missing <= 12;
    });
    if (missing > 12) who.words.append(" and ").append(missing - 12).append(" more");
    text advice("Check that it runs and that its MASTER_ADDR, MASTER_PORT and WORLD_SIZE are the same as here");
    for (char const* before = ". Connections that were dropped: "; auto const& [why, times] : dropped_) {
      advice.append(before).append(times).append(" ").append(why);
      before = ", ";
    }
    if (short_of_descriptors_) advice.append(". This process had no file descriptor left for those who came: ulimit -n");
    fail<deadline_error>('d', text("rank ", who.words, " did not come to ", place, " within ", chosen.deadline, " s"), advice,
                         who.lowest);
  }

  static constexpr int gone = std::numeric_limits<int>::min();  // the rank of who was refused

  doors doors_;
  std::string start_ = draw_nonce();
  std::vector<line> clients_;  // the longest here first; in the end by rank
  std::map<std::string_view, int> dropped_;
  bool short_of_descriptors_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous::detail

#include "acco/restore_macros.hpp"
