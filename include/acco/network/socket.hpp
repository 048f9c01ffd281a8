// SPDX-License-Identifier: Apache-2.0
// TCP sockets for the start-up: names and addresses, listening, dialling. No call blocks beyond the time that it is given, and
// none throws for what the network does: codes are those of errno (of getaddrinfo for names).
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::net {

using clock = std::chrono::steady_clock;

inline clock::time_point after(double seconds) {
  return clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e9)));
}
/// For poll: rounded up, so that nobody wakes just before the time and asks again at once.
inline int milliseconds_until(clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1 << 30));
}

/// Owns a socket.
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
  ~socket_handle() { close(); }

  void close() noexcept {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }

  /// Waits until it can be read (POLLIN) or written (POLLOUT), or is broken; false: not before `until`.
  [[nodiscard]] bool ready(short what, clock::time_point until) const {
    for (;;) {
      pollfd one{descriptor_, what, 0};
      const int n = poll(&one, 1, milliseconds_until(until));
      if (n > 0) return true;
      if (n == 0 ? clock::now() >= until : errno != EINTR) return false;
    }
  }

 private:
  int descriptor_;
};

/// An IPv4 or IPv6 address with a port.
class endpoint {
 public:
  endpoint() = default;
  endpoint(sockaddr const* from, socklen_t length) : length_(std::min(length, static_cast<socklen_t>(sizeof address_))) {
    std::memcpy(&address_, from, length_);
  }
  /// Every address of a family: where to listen for all comers.
  static endpoint any(sa_family_t family, std::uint16_t port) {
    endpoint result;
    result.address_.ss_family = family;
    result.length_ = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    result.set_port(port);
    return result;
  }
  [[nodiscard]] sockaddr const* get() const noexcept { return reinterpret_cast<sockaddr const*>(&address_); }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }
  [[nodiscard]] sa_family_t family() const noexcept { return address_.ss_family; }
  [[nodiscard]] bool loopback() const noexcept {
    if (family() == AF_INET) return ntohl(four().sin_addr.s_addr) >> 24U == 127;
    return family() == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&six().sin6_addr) ||
                                    (IN6_IS_ADDR_V4MAPPED(&six().sin6_addr) && six().sin6_addr.s6_addr[12] == 127));
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return ntohs(family() == AF_INET6 ? six().sin6_port : four().sin_port); }
  void set_port(std::uint16_t port) noexcept {
    if (family() == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(address_).sin6_port = htons(port);
    } else {
      reinterpret_cast<sockaddr_in&>(address_).sin_port = htons(port);
    }
  }
  /// The address in digits, without the port.
  [[nodiscard]] std::string name() const {
    char words[NI_MAXHOST] = {};
    if (getnameinfo(get(), length_, words, sizeof words, nullptr, 0, NI_NUMERICHOST) != 0) return {};
    return words;
  }
  [[nodiscard]] friend bool operator==(endpoint const& a, endpoint const& b) {
    if (a.family() != b.family() || a.port() != b.port()) return false;
    return a.family() == AF_INET6 ? std::memcmp(&a.six().sin6_addr, &b.six().sin6_addr, sizeof(in6_addr)) == 0
                                  : a.four().sin_addr.s_addr == b.four().sin_addr.s_addr;
  }

 private:
  [[nodiscard]] sockaddr_in const& four() const noexcept { return reinterpret_cast<sockaddr_in const&>(address_); }
  [[nodiscard]] sockaddr_in6 const& six() const noexcept { return reinterpret_cast<sockaddr_in6 const&>(address_); }
  sockaddr_storage address_{};
  socklen_t length_ = 0;
};

/// This side's end of a connection, and the other one.
inline endpoint near_end(socket_handle const& of) {
  sockaddr_storage found{};
  socklen_t length = sizeof found;
  if (getsockname(of.get(), reinterpret_cast<sockaddr*>(&found), &length) != 0) return {};
  return {reinterpret_cast<sockaddr const*>(&found), length};
}
inline endpoint far_end(socket_handle const& of) {
  sockaddr_storage found{};
  socklen_t length = sizeof found;
  if (getpeername(of.get(), reinterpret_cast<sockaddr*>(&found), &length) != 0) return {};
  return {reinterpret_cast<sockaddr const*>(&found), length};
}

/// All addresses of a host, in the order in which the system wants them tried.
struct lookup {
  int code = EAI_AGAIN;  ///< of getaddrinfo; EAI_AGAIN, too, when there was no answer in time
  std::vector<endpoint> found{};
};
/// [fd00::1], as addresses of IPv6 are written before a port, is fd00::1.
inline std::string without_brackets(std::string const& host) {
  const bool has = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has ? host.substr(1, host.size() - 2) : host;
}
inline lookup look_up_now(std::string const& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  lookup result;
  result.code = getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &hints, &list);
  if (result.code != 0) return result;
  for (addrinfo const* each = list; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET || each->ai_family == AF_INET6) result.found.emplace_back(each->ai_addr, each->ai_addrlen);
  }
  freeaddrinfo(list);
  if (result.found.empty()) result.code = EAI_NONAME;
  return result;
}
/// Whether the host is written as an address, in digits; then looking it up asks nobody.
inline bool is_numeric(std::string const& host) { return look_up_now(host, 0, AI_NUMERICHOST).code == 0; }

/// Looks a host up. getaddrinfo cannot be interrupted: a name is asked for by a thread that is left behind if it is late.
inline lookup look_up(std::string const& host, std::uint16_t port, clock::time_point until) {
  lookup at_once = look_up_now(host, port, AI_NUMERICHOST);
  if (at_once.code == 0) return at_once;
  struct question {
    std::mutex mutex;
    std::condition_variable answered;
    bool done = false;
    lookup answer;
  };
  const auto shared = std::make_shared<question>();
  std::thread([shared, host, port] {
    lookup found = look_up_now(host, port, 0);
    const std::lock_guard lock(shared->mutex);
    shared->answer = std::move(found);
    shared->done = true;
    shared->answered.notify_one();
  }).detach();
  std::unique_lock lock(shared->mutex);
  shared->answered.wait_until(lock, until, [&] { return shared->done; });
  return shared->done ? std::move(shared->answer) : lookup{};
}

/// The addresses of a network interface of this host, and the names of all interfaces that have one.
struct interfaces {
  std::vector<endpoint> found{};
  std::string names{};
};
inline interfaces interfaces_called(std::string const& name, std::uint16_t port) {
  interfaces result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  std::string last;
  for (ifaddrs const* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const sa_family_t family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (each->ifa_name != last && (", " + result.names + ",").find(", " + std::string(each->ifa_name) + ",") == std::string::npos)
      result.names.append(result.names.empty() ? "" : ", ").append(last = each->ifa_name);
    if (name != each->ifa_name) continue;
    result.found.emplace_back(each->ifa_addr, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    result.found.back().set_port(port);
  }
  freeifaddrs(list);
  return result;
}

/// Tells hosts apart, and containers of one host that have their own network: two processes with the same words reach each other
/// by loopback addresses.
inline std::string this_host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  std::string result(name);
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string word;
  if (boot >> word) result.append(" ").append(word);
  char network[64] = {};
  if (readlink("/proc/self/ns/net", network, sizeof network - 1) > 0) result.append(" ").append(network);
  return result;
}

/// A socket, or why there is none.
struct opened {
  socket_handle socket{};
  int code = 0;
};

/// Listens at one address.
inline opened listen_at(endpoint const& where) {
  opened result{socket_handle(socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  const int on = 1;
  if (result.socket) {
    setsockopt(result.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // old connections in TIME_WAIT do no harm
    if (where.family() == AF_INET6) setsockopt(result.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (!result.socket || bind(result.socket.get(), where.get(), where.length()) != 0 || listen(result.socket.get(), 4096) != 0) {
    result.code = errno;
    result.socket.close();
  }
  return result;
}

/// The other side may vanish without a word (its host lost power): then reading fails, 20 s later.
inline void notice_vanished_peer(socket_handle const& of) {
  const int on = 1, idle = 5, interval = 5, probes = 3;
  setsockopt(of.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(of.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(of.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(of.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/// Whether a socket is connected with itself: TCP allows it where nobody listens at a port of the range from which connections
/// take their own port.
inline bool is_self_connection(socket_handle const& of) {
  const endpoint near = near_end(of);
  return near.length() != 0 && near == far_end(of);
}

/// Connects to one address. ECONNREFUSED where nobody listens; ETIMEDOUT at `until`.
inline opened dial(endpoint const& where, clock::time_point until) {
  opened result{socket_handle(socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!result.socket) {
    result.code = errno;
    return result;
  }
  if (connect(result.socket.get(), where.get(), where.length()) != 0) result.code = errno;
  if (result.code == EINPROGRESS || result.code == EINTR) {
    socklen_t length = sizeof result.code;
    if (!result.socket.ready(POLLOUT, until)) {
      result.code = ETIMEDOUT;
    } else if (getsockopt(result.socket.get(), SOL_SOCKET, SO_ERROR, &result.code, &length) != 0) {
      result.code = errno;
    }
  }
  if (result.code == 0 && is_self_connection(result.socket)) {
    const linger reset{1, 0};  // no TIME_WAIT, which would keep rank 0 from the port
    setsockopt(result.socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    result.code = ECONNREFUSED;
  }
  if (result.code != 0) {
    result.socket.close();
  } else {
    const int on = 1;
    setsockopt(result.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    notice_vanished_peer(result.socket);
  }
  return result;
}

}  // namespace ACCO_SIMD_NAMESPACE::net

#include "acco/restore_macros.hpp"
