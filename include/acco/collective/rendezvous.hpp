// SPDX-License-Identifier: Apache-2.0
// How processes that were started one by one find each other: over TCP, with the environment that launchers set, or through a
// directory that all hosts see. Each brings a few bytes (an address) and gets everybody's. Used once, at start-up.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acco/error.hpp"

namespace ACCO_NAMESPACE {

/// Which rank this process is, of how many.
struct rank_of {
  int rank = 0;
  int size = 1;
};

/// The environment that launchers set, under the names of torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
struct launch_environment : rank_of {
  std::string address;
  std::uint16_t port = 0;

  /// Reads it. Throws `usage_error` that names what is missing or no number.
  [[nodiscard]] static launch_environment read() {
    launch_environment found;
    found.size = number("WORLD_SIZE", 1, 1 << 20);
    found.rank = number("RANK", 0, found.size - 1);
    found.address = word("MASTER_ADDR");
    found.port = static_cast<std::uint16_t>(number("MASTER_PORT", 1, 65535));
    return found;
  }

 private:
  static std::string word(char const* name) {
    char const* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') {
      throw usage_error(
          {}, text("the environment variable ", name, " is not set"),
          text("Set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every process, or start with a launcher that does"));
    }
    return value;
  }
  static int number(char const* name, int least, int most) {
    const std::string value = word(name);
    int read = 0;
    auto const [end, code] = std::from_chars(value.data(), value.data() + value.size(), read);
    if (code != std::errc() || end != value.data() + value.size() || read < least || read > most) {
      throw usage_error({}, text("the environment variable ", name, " is '", value, "'"),
                        text("It must be a number from ", least, " to ", most));
    }
    return read;
  }
};

namespace rendezvous {

/// What each rank brings, by rank.
using contributions = std::vector<std::string>;

namespace detail {
using clock = std::chrono::steady_clock;

inline constexpr std::uint32_t protocol = 0x61636331;  // "acc1"
inline constexpr std::size_t largest = std::size_t{1} << 20U;

inline clock::time_point after(double seconds) {
  return clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e9)));
}
inline int milliseconds_until(clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1 << 30));
}
/// "1, 2 and 7" of those that have not come, and the first of them.
inline std::pair<text, int> missing(contributions const& got, std::vector<bool> const& came) {
  text who;
  int first = -1;
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    if (came[rank]) continue;
    if (first < 0) first = static_cast<int>(rank);
    who.append(who.view().empty() ? "" : ", ").append(rank);
  }
  return {who, first};
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

template <class Number>
void put(std::string& into, Number number) {
  into.append(reinterpret_cast<char const*>(&number), sizeof number);
}
inline void put(std::string& into, std::string const& bytes) {
  put(into, static_cast<std::uint64_t>(bytes.size()));
  into.append(bytes);
}
/// Takes numbers and strings back; `good` turns false when the bytes do not suffice.
struct reader {
  std::string_view rest;
  bool good = true;
  template <class Number>
  Number number() {
    Number value{};
    if (rest.size() < sizeof value) {
      good = false;
      return value;
    }
    std::memcpy(&value, rest.data(), sizeof value);
    rest.remove_prefix(sizeof value);
    return value;
  }
  std::string bytes() {
    const auto size = number<std::uint64_t>();
    if (!good || size > rest.size()) {
      good = false;
      return {};
    }
    std::string result(rest.substr(0, size));
    rest.remove_prefix(size);
    return result;
  }
};

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
      auto const [who, first] = missing(all, came);
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

/// Through files in `directory`, which all ranks see, under the name `run`. Files that an earlier run left behind, even of the
/// same name, are recognised: nobody goes on before rank 0 has seen everybody's answer to a number drawn for this run.
inline contributions through_files(rank_of me, std::filesystem::path const& directory, std::string const& run,
                                   std::string const& mine, double deadline) {
  using namespace detail;
  namespace fs = std::filesystem;
  const error_place where{me.rank, -1, "start-up"};
  const auto until = after(deadline);
  const auto ranks = static_cast<std::size_t>(me.size);
  std::error_code failed;
  fs::create_directories(directory, failed);
  const auto file = [&](std::string_view what, std::size_t rank) {
    return directory / std::string(run).append(".").append(what).append(".").append(std::to_string(rank));
  };
  std::random_device entropy;
  const std::uint64_t nonce = std::uint64_t{entropy()} << 32U | entropy();

  const auto write = [&](fs::path const& path, std::string const& body) {  // appears whole or not at all
    const fs::path draft = fs::path(path).concat("." + std::to_string(nonce));
    {
      std::ofstream out(draft, std::ios::binary);
      out << body;
      out.flush();
      if (!out) {
        throw usage_error(where, text("cannot write ", std::string_view(draft.native())),
                          text("Give a directory that every rank can write to"));
      }
    }
    fs::rename(draft, path);
  };
  const auto read = [&](fs::path const& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::vector<bool> here(ranks, false);
  const auto nap = [&](char const* what) {
    if (clock::now() > until) {
      here[static_cast<std::size_t>(me.rank)] = true;
      auto const [who, first] = missing(contributions(ranks), here);
      throw deadline_error(
          where,
          text("rank ", who, " did not ", what, " in ", std::string_view(directory.native()), " under the name '", run,
               "' within ", deadline, " s"),
          text("Check that it runs, sees the same directory, and was given the same run identifier and number of ranks"), first);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };

  std::string member;
  put(member, protocol);
  put(member, me.size);
  put(member, nonce);
  put(member, mine);
  write(file("member", static_cast<std::size_t>(me.rank)), member);

  contributions all(ranks);
  if (me.rank == 0) {
    std::vector<std::uint64_t> nonces(ranks, 0);
    std::uint64_t roster_number = nonce;
    for (;;) {
      bool changed = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::string body = read(file("member", rank));
        reader in{body};
        const bool ours = in.number<std::uint32_t>() == protocol;
        const int size = in.number<int>();
        const auto number = in.number<std::uint64_t>();
        std::string theirs = in.bytes();
        if (!in.good || !ours || number == nonces[rank]) continue;
        if (size != me.size) continue;  // of another run; if it is alive it will say so itself
        nonces[rank] = number;
        all[rank] = std::move(theirs);
        here[rank] = true;
        changed = true;
      }
      const bool complete = std::find(here.begin(), here.end(), false) == here.end();
      if (complete && changed) {
        std::string roster;
        put(roster, protocol);
        put(roster, ++roster_number);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          put(roster, nonces[rank]);
          put(roster, all[rank]);
        }
        write(file("roster", 0), roster);
      }
      if (complete) {
        std::vector<bool> agreed(ranks, false);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const std::string body = read(file("seen", rank));
          reader in{body};
          agreed[rank] =
              rank == 0 || (in.number<std::uint64_t>() == roster_number && in.number<std::uint64_t>() == nonces[rank] && in.good);
        }
        if (std::find(agreed.begin(), agreed.end(), false) == agreed.end()) break;
        if (clock::now() > until) here = agreed;  // a file was there, of a process that is not
      }
      nap("join");
    }
    std::string go;
    put(go, roster_number);
    write(file("go", 0), go);
  } else {
    std::uint64_t answered = 0;
    here.assign(ranks, true);
    here[0] = false;
    for (;;) {
      const std::string body = read(file("roster", 0));
      reader in{body};
      const bool ours = in.number<std::uint32_t>() == protocol;
      const auto number = in.number<std::uint64_t>();
      bool mentions_me = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        mentions_me = in.number<std::uint64_t>() == nonce ? true : mentions_me;
        all[rank] = in.bytes();
      }
      if (ours && in.good && mentions_me) {
        if (answered != number) {
          std::string seen;
          put(seen, number);
          put(seen, nonce);
          write(file("seen", static_cast<std::size_t>(me.rank)), seen);
          answered = number;
        }
        const std::string word = read(file("go", 0));
        reader decision{word};
        if (decision.number<std::uint64_t>() == number && decision.good) break;
      }
      nap("gather all ranks");
    }
  }
  fs::remove(file("member", static_cast<std::size_t>(me.rank)), failed);
  fs::remove(file("seen", static_cast<std::size_t>(me.rank)), failed);
  return all;
}

}  // namespace rendezvous

}  // namespace ACCO_NAMESPACE
