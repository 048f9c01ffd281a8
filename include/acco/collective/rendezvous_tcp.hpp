// SPDX-License-Identifier: Apache-2.0
// Rank 0 listens where the launcher's environment says; the others come to it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acco/collective/launch_environment.hpp"
#include "acco/collective/ranks_where.hpp"
#include "acco/collective/rendezvous.hpp"
#include "acco/error.hpp"

namespace ACCO_NAMESPACE::rendezvous {

namespace detail {
inline constexpr std::size_t largest = std::size_t{1} << 20U;  // of a message

inline int milliseconds_until(clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1 << 30));
}
class socket_handle {
 public:
  explicit socket_handle(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  socket_handle(socket_handle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  socket_handle& operator=(socket_handle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  socket_handle(socket_handle const&) = delete;
  socket_handle& operator=(socket_handle const&) = delete;
  ~socket_handle() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }

  /// Sends or receives everything before `until`; false when the connection broke or time ran out.
  [[nodiscard]] bool write(std::string_view bytes, clock::time_point until) const {
    while (!bytes.empty()) {
      if (!ready(POLLOUT, until)) return false;
      const ssize_t n = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  [[nodiscard]] bool read(char* to, std::size_t bytes, clock::time_point until) const {
    while (bytes != 0) {
      if (!ready(POLLIN, until)) return false;
      const ssize_t n = ::recv(descriptor_, to, bytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (n > 0) {
        to += n;
        bytes -= static_cast<std::size_t>(n);
      }
    }
    return true;
  }
  [[nodiscard]] bool ready(short what, clock::time_point until) const {
    for (;;) {
      pollfd one{descriptor_, what, 0};
      const int n = poll(&one, 1, milliseconds_until(until));
      if (n > 0) return true;
      if (n == 0 || errno != EINTR) return false;
    }
  }

 private:
  int descriptor_;
};

struct resolved {
  sockaddr_storage address{};
  socklen_t length = 0;
};
/// Looks a host up; throws when it is unknown.
inline resolved resolve(std::string const& host, std::uint16_t port, error_place where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int code = getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  if (code != 0 || found == nullptr) {
    throw usage_error(where, text("the host '", host, "' of MASTER_ADDR is unknown: ", gai_strerror(code)),
                      text("Give rank 0's host name or address, the same on every rank"));
  }
  resolved result;
  std::memcpy(&result.address, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

/// One framed message over a connection.
inline bool write_frame(socket_handle const& to, std::string const& body, clock::time_point until) {
  std::string frame;
  put(frame, protocol);
  put(frame, body);
  return to.write(frame, until);
}
inline std::optional<std::string> read_frame(socket_handle const& from, clock::time_point until) {
  char head[sizeof(std::uint32_t) + sizeof(std::uint64_t)];
  if (!from.read(head, sizeof head, until)) return std::nullopt;
  reader in{{head, sizeof head}};
  const auto magic = in.number<std::uint32_t>();
  const auto size = in.number<std::uint64_t>();
  if (magic != protocol || size > largest) return std::nullopt;
  std::string body(size, '\0');
  if (!from.read(body.data(), body.size(), until)) return std::nullopt;
  return body;
}
}  // namespace detail

/// The address by which this host reaches `host`: what other ranks can connect to. Sends nothing.
inline std::string address_towards(std::string const& host, std::uint16_t port, error_place where) {
  const detail::resolved to = detail::resolve(host, port, where);
  const detail::socket_handle probe(socket(to.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage mine{};
  socklen_t length = sizeof mine;
  char words[NI_MAXHOST] = {};
  if (!probe || connect(probe.get(), reinterpret_cast<sockaddr const*>(&to.address), to.length) != 0 ||
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&mine), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr const*>(&mine), length, words, sizeof words, nullptr, 0, NI_NUMERICHOST) != 0) {
    throw usage_error(where, text("this host has no network path to '", host, "': ", std::strerror(errno)),
                      text("Check MASTER_ADDR and this host's network"));
  }
  return words;
}

/// Rank 0 listens at address:port until everybody has come, and then tells all to everybody. Blocks for at most `deadline`
/// seconds; throws `deadline_error` that names who is missing, `usage_error` (the port is in use, the host unknown),
/// `mismatch_error` (two processes of one rank, different numbers of ranks).
inline contributions over_tcp(rank_of me, std::string const& address, std::uint16_t port, std::string const& mine,
                              double deadline) {
  using namespace detail;
  const error_place where{me.rank, -1, "start-up"};
  const auto until = after(deadline);
  const auto ranks = static_cast<std::size_t>(me.size);
  contributions all(ranks);
  std::vector<bool> came(ranks, false);
  const resolved at = resolve(address, port, where);
  std::string body;

  if (me.rank != 0) {
    put(body, me.rank);
    put(body, me.size);
    put(body, mine);
    int last = 0;
    bool spoke = false;
    while (clock::now() < until) {
      const socket_handle to(socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!to)
        throw usage_error(where, text("no socket can be opened: ", std::strerror(errno)),
                          text("Check the limits of this process"));
      int code = connect(to.get(), reinterpret_cast<sockaddr const*>(&at.address), at.length) == 0 ? 0 : errno;
      if (code == EINPROGRESS) {
        socklen_t length = sizeof code;
        if (!to.ready(POLLOUT, std::min(until, after(5)))) {
          code = ETIMEDOUT;
        } else {
          getsockopt(to.get(), SOL_SOCKET, SO_ERROR, &code, &length);
        }
      }
      last = code;
      if (code == 0) {
        if (!write_frame(to, body, until)) {
          spoke = true;
        } else if (const auto answer = read_frame(to, until)) {
          reader in{*answer};
          const std::string refusal = in.bytes();
          if (!refusal.empty())
            throw mismatch_error(where, text("rank 0 refused this rank: ", refusal),
                                 text("Start every rank once, with the same WORLD_SIZE"), 0);
          for (std::string& each : all) each = in.bytes();
          if (in.good) return all;
          spoke = true;
        } else {
          spoke = true;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw deadline_error(where,
                         spoke ? text("what listens at ", address, ":", port, " did not answer as rank 0 within ", deadline, " s")
                               : text("rank 0 could not be reached at ", address, ":", port, " within ", deadline, " s (",
                                      std::strerror(last), ")"),
                         spoke ? text("Rank 0 may wait for other ranks, or another program uses this port: look at rank 0's "
                                      "output, or choose another MASTER_PORT")
                               : text("Check that rank 0 runs, that MASTER_ADDR and MASTER_PORT are those of rank 0's host, and "
                                      "that no firewall is between"),
                         0);
  }

  const socket_handle door(socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(door.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage any{};  // every address of this host, in case MASTER_ADDR is a name for one of them
  any.ss_family = at.address.ss_family;
  if (any.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&any)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&any)->sin_port = htons(port);
  }
  if (!door || bind(door.get(), reinterpret_cast<sockaddr const*>(&any), at.length) != 0 || listen(door.get(), 1024) != 0) {
    const int code = errno;
    throw usage_error(where, text("rank 0 cannot listen at port ", port, ": ", std::strerror(code)),
                      code == EADDRINUSE ? text("Another program uses it (an earlier run that still lives, or a launcher's own "
                                                "store): choose another MASTER_PORT")
                                         : text("Choose a port that this user may listen at"));
  }
  std::vector<socket_handle> peers(ranks);
  all[0] = mine;
  came[0] = true;
  for (std::size_t present = 1; present < ranks;) {
    if (!door.ready(POLLIN, until)) {
      auto const [who, first] = ranks_where(me.size, [&](int rank) { return !came[static_cast<std::size_t>(rank)]; });
      throw deadline_error(where, text("rank ", who, " did not come to ", address, ":", port, " within ", deadline, " s"),
                           text("Check that it runs and that its MASTER_ADDR, MASTER_PORT and WORLD_SIZE are the same as here"),
                           first);
    }
    socket_handle guest(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest) continue;
    const auto said = read_frame(guest, std::min(until, after(5)));  // who says nothing sensible is no rank
    if (!said) continue;
    reader in{*said};
    const int rank = in.number<int>();
    const int size = in.number<int>();
    const std::string theirs = in.bytes();
    if (!in.good) continue;
    text refusal;
    if (size != me.size)
      refusal.append("it was started with WORLD_SIZE ").append(size).append(", rank 0 with ").append(me.size);
    else if (rank < 1 || rank >= size)
      refusal.append("there is no rank ").append(rank).append(" of ").append(size);
    else if (came[static_cast<std::size_t>(rank)])
      refusal.append("a process of rank ").append(rank).append(" has come already");
    if (!refusal.view().empty()) {
      std::string no;
      put(no, std::string(refusal.view()));
      (void)write_frame(guest, no, std::min(until, after(5)));
      throw mismatch_error(where, text("rank ", rank, " cannot join: ", refusal),
                           text("Start every rank once, with the same WORLD_SIZE"), rank);
    }
    all[static_cast<std::size_t>(rank)] = theirs;
    came[static_cast<std::size_t>(rank)] = true;
    peers[static_cast<std::size_t>(rank)] = std::move(guest);
    ++present;
  }
  put(body, std::string());
  for (std::string const& each : all) put(body, each);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    if (!write_frame(peers[rank], body, until)) {
      throw peer_error(where, text("rank ", rank, " left while all ranks were joining"), text("Look at its own output"),
                       static_cast<int>(rank));
    }
  }
  return all;
}

}  // namespace ACCO_NAMESPACE::rendezvous
