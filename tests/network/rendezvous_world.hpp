// SPDX-License-Identifier: Apache-2.0
// What tests of the start-up share: ranks as threads, raw connections of strangers, ports that nobody uses.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <acco/network/launch_environment.hpp>
#include <acco/network/rendezvous_tcp.hpp>

#include "network/free_port.hpp"
#include "support/patience.hpp"

namespace start_up {

using acco::rank_of;
using acco::rendezvous::contributions;
using acco::rendezvous::tcp_options;
namespace frames = acco::rendezvous::detail;

/// Seconds for what comes, however busy the machine is.
inline double enough() { return 60 * patience(); }

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// What each rank got, or was told.
struct outcome {
  contributions got{};
  std::string error{};
  std::string type{};  // of the error
  int peer = -2;
};
template <class Work>
outcome told(Work&& work) {
  outcome result;
  const auto keep = [&](char const* type, acco::error const& e) {
    result.error = e.what();
    result.type = type;
    result.peer = e.peer();
  };
  try {
    result.got = work();
  } catch (acco::usage_error const& e) {
    keep("usage", e);
  } catch (acco::mismatch_error const& e) {
    keep("mismatch", e);
  } catch (acco::peer_error const& e) {
    keep("peer", e);
  } catch (acco::deadline_error const& e) {
    keep("deadline", e);
  }
  return result;
}
inline std::vector<outcome> all_ranks(std::vector<rank_of> const& ranks, std::function<contributions(rank_of)> const& meet) {
  std::vector<outcome> results(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] { results[i] = told([&] { return meet(ranks[i]); }); });
  }
  return results;
}

inline acco::net::endpoint local(std::uint16_t port, char const* host = "127.0.0.1") { return {host, std::to_string(port)}; }
/// Somebody else's program that listens.
struct listener {
  explicit listener(std::uint16_t wanted = 0) : socket(acco::net::listen_at(local(wanted))) {
    REQUIRE(socket);
    port = static_cast<std::uint16_t>(std::stoi(acco::net::end_of(socket, getsockname).port));
  }
  [[nodiscard]] frames::line next() const {
    REQUIRE(socket.ready(POLLIN, acco::net::after(enough())));
    return {acco::net::socket_handle(accept(socket.get(), nullptr, nullptr))};
  }
  acco::net::socket_handle socket;
  std::uint16_t port = 0;
};

/// A raw connection to rank 0, which may still have to begin to listen.
inline frames::line dial(std::uint16_t port) {
  const auto until = acco::net::after(enough());
  for (;;) {
    frames::line found{acco::net::dial(local(port), until)};
    if (found.socket || acco::net::clock::now() > until) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}
inline void say(frames::line const& to, std::string_view bytes) {
  (void)!::send(to.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}
inline std::string message(std::string const& kind, std::string const& fields, std::string const& proof = {}) {
  return frames::pack({"acco4", kind, proof, fields}) + "\n";
}
inline std::string hello(std::string const& run, int rank, int size) {
  return frames::pack({run, std::to_string(rank), std::to_string(size), std::string(16, 'n')});
}
/// Reads one frame; false when the connection ended first.
inline bool hear(frames::line& from) { return from.await(1U << 20U, acco::net::after(enough())) == frames::line::state::whole; }
/// A process that has been greeted, has said hello, and has brought nothing for each.
inline frames::line joined(std::uint16_t port, std::string const& run, int rank, int size) {
  frames::line line = dial(port);
  REQUIRE(hear(line));
  say(line, message("hello", hello(run, rank, size)));
  say(line, message("bring", frames::pack(contributions(static_cast<std::size_t>(size)))));
  return line;
}

inline auto tcp(std::uint16_t port, tcp_options const& chosen, std::string const& host = "127.0.0.1") {
  return [=](rank_of me) {
    return acco::rendezvous::tcp_rendezvous(me, host, port, chosen).bring("I am " + std::to_string(me.rank));
  };
}
inline contributions names(int ranks) {
  contributions result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back("I am " + std::to_string(rank));
  return result;
}

/// As many descriptors as this process may have, while this lives; their number.
struct many_descriptors {
  many_descriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
    getrlimit(RLIMIT_NOFILE, &more);
    limit = more.rlim_cur;
  }
  many_descriptors(many_descriptors const&) = delete;
  many_descriptors& operator=(many_descriptors const&) = delete;
  ~many_descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  rlim_t limit = 0;

 private:
  rlimit before_{};
};

}  // namespace start_up
