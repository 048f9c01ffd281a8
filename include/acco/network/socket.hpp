// SPDX-License-Identifier: Apache-2.0
// TCP sockets for the start-up. No call but look_up blocks beyond the time that it is given; none throws.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acco/clock.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::net {

using clock = std::chrono::steady_clock;

inline clock::time_point after(double seconds) { return steady_after(seconds); }
/// Waits until one of these can be read or written, as it is asked, or is broken. False: `until` has come.
inline bool wait_for(std::span<pollfd> sockets, clock::time_point until) {
  for (;;) {
    const auto left = std::clamp(until - clock::now(), clock::duration(), clock::duration(std::chrono::hours(24)));
    const auto milliseconds = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
    const int n = poll(sockets.data(), static_cast<nfds_t>(sockets.size()), milliseconds);
    if (n > 0 || clock::now() >= until) return n > 0;
  }
}

/// Seconds of the shortest round trip that the kernel has seen on a TCP connection, or of the usual one where it does
/// not tell (before Linux 4.6); 0 where it tells none.
[[nodiscard]] inline double round_trip(int descriptor) noexcept {
  constexpr std::size_t shortest_at = 148;  // tcpi_min_rtt of Linux's struct tcp_info, before which the C library's ends
  std::byte info[256] = {};
  socklen_t length = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, info, &length) != 0) return 0;
  tcp_info usual{};
  std::memcpy(&usual, info, std::min<std::size_t>(length, sizeof usual));
  std::uint32_t shortest = usual.tcpi_rtt;
  if (length >= shortest_at + sizeof shortest) std::memcpy(&shortest, info + shortest_at, sizeof shortest);
  return 1e-6 * std::min(shortest, usual.tcpi_rtt);
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
  ~socket_handle() { close(); }
  void close() noexcept {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] bool ready(short what, clock::time_point until) const {
    pollfd one{descriptor_, what, 0};
    return wait_for({&one, 1}, until);
  }

 private:
  int descriptor_;
};
/// Ends connections in peace: says that nothing more comes, and waits until the others, which have then read it all,
/// say so, too, or are gone; or until nothing has become of it for so many seconds. Where one is closed before, with
/// something unread, what is on its way from it is lost.
inline void hang_up(std::span<socket_handle const> all, double seconds) {
  std::vector<pollfd> open;
  for (socket_handle const& each : all) {
    if (shutdown(each.get(), SHUT_WR) == 0) open.push_back({each.get(), 0, 0});
  }
  std::uint64_t last = 0;
  for (auto until = after(seconds); !open.empty() && clock::now() < until;) {
    if (wait_for(open, std::min(until, after(0.1)))) std::erase_if(open, [](pollfd const& one) { return one.revents != 0; });
    std::uint64_t now = std::uint64_t{open.size()} << 48U;  // connections, and bytes that have not arrived
    for (pollfd const& each : open) {
      int bytes = 0;
      if (ioctl(each.fd, TIOCOUTQ, &bytes) == 0) now += static_cast<std::uint64_t>(bytes);
    }
    if (std::exchange(last, now) != now) until = after(seconds);
  }
}
inline void set(int socket, int level, int option, int value) noexcept {
  setsockopt(socket, level, option, &value, sizeof value);
}

/// An address in digits, and a port; empty where there is none.
struct endpoint {
  std::string host{}, port{};
  [[nodiscard]] bool loopback() const { return host.starts_with("127.") || host.starts_with("::ffff:127.") || host == "::1"; }
  friend bool operator==(endpoint const&, endpoint const&) = default;
};
inline endpoint in_digits(sockaddr const* of, socklen_t length) {
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  (void)getnameinfo(of, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, port};
}
/// This side's end of a connection (getsockname), or the other one (getpeername).
inline endpoint end_of(socket_handle const& of, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage found{};
  socklen_t length = sizeof found;
  auto* const at = reinterpret_cast<sockaddr*>(&found);
  return which(of.get(), at, &length) == 0 ? in_digits(at, length) : endpoint{};
}

/// [fd00::1], as addresses of IPv6 are written before a port, is fd00::1.
inline std::string without_brackets(std::string const& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}
/// All addresses of a host, in the order in which the system wants them tried; or getaddrinfo's code. Waits for a name
/// server.
struct lookup {
  int code;
  std::vector<endpoint> found{};
};
inline lookup look_up(std::string const& host, std::string const& port, int flags = 0) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  lookup result{getaddrinfo(without_brackets(host).c_str(), port.c_str(), &hints, &list)};
  for (addrinfo const* each = result.code == 0 ? list : nullptr; each != nullptr; each = each->ai_next)
    result.found.push_back(in_digits(each->ai_addr, each->ai_addrlen));
  if (result.code == 0) freeaddrinfo(list);
  return result;
}
/// Whether the host is written as an address, in digits; then looking it up asks nobody.
inline bool is_numeric(std::string const& host) { return look_up(host, "0", AI_NUMERICHOST).code == 0; }
/// This host's addresses at the network interface of this name; at all of them where it is empty. Loopback comes last.
inline std::vector<endpoint> own_addresses(std::string const& interface, std::string const& port) {
  std::vector<endpoint> result;
  std::ptrdiff_t others = 0;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  for (ifaddrs const* each = list; each != nullptr; each = each->ifa_next) {
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || (!interface.empty() && interface != each->ifa_name)) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const endpoint at{in_digits(each->ifa_addr, length).host, port};
    if (at.host.starts_with("fe80:")) continue;  // leads nowhere from other hosts
    result.insert(at.loopback() ? result.end() : result.begin() + others++, at);
  }
  freeifaddrs(list);
  return result;
}

/// A socket with which `act` is done, which gives an error's number; no socket, and errno, where there is an error.
template <class Act>
socket_handle opened(endpoint const& at, Act act) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  socket_handle result;
  int code = EADDRNOTAVAIL;
  if (getaddrinfo(at.host.c_str(), at.port.c_str(), &hints, &list) == 0) {
    result = socket_handle(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    code = result ? act(result.get(), *list) : errno;
    freeaddrinfo(list);
  }
  if (code != 0) result.close();
  errno = code;
  return result;
}
/// Listens at one address.
inline socket_handle listen_at(endpoint const& at) {
  return opened(at, [](int it, addrinfo const& where) {
    set(it, SOL_SOCKET, SO_REUSEADDR, 1);  // old connections in TIME_WAIT do no harm
    if (where.ai_family == AF_INET6) set(it, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    return bind(it, where.ai_addr, where.ai_addrlen) == 0 && listen(it, 4096) == 0 ? 0 : errno;
  });
}
/// Connects to one address: ECONNREFUSED where nobody listens, ETIMEDOUT at `until`.
inline socket_handle dial(endpoint const& at, clock::time_point until) {
  socket_handle result = opened(at, [until](int it, addrinfo const& where) {
    set(it, IPPROTO_TCP, TCP_NODELAY, 1);
    int code = connect(it, where.ai_addr, where.ai_addrlen) == 0 ? 0 : errno;
    if (code != EINPROGRESS && code != EINTR) return code;
    pollfd one{it, POLLOUT, 0};
    socklen_t length = sizeof code;
    if (!wait_for({&one, 1}, until)) return ETIMEDOUT;
    return getsockopt(it, SOL_SOCKET, SO_ERROR, &code, &length) == 0 ? code : errno;
  });
  if (result && end_of(result, getsockname) == end_of(result, getpeername)) {  // TCP allows it where nobody listens
    const linger reset{1, 0};  // no TIME_WAIT, which would keep rank 0 from the port
    setsockopt(result.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    result.close();
    errno = ECONNREFUSED;
  }
  return result;
}

}  // namespace ACCO_SIMD_NAMESPACE::net

#include "acco/restore_macros.hpp"
