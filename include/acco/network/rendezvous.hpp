// SPDX-License-Identifier: Apache-2.0
// How processes that were started one by one find each other: each brings a few bytes (an address) for each other one.
// Used once, at start-up. This header: what they say, byte by byte. Who says it: rendezvous_tcp.hpp. What is
// authenticated: docs/security.md.
//
// A message is a line: "acco4", a kind, a proof, and fields that are packed into one. Packed fields have a space
// between them; in a field a space is \s, the end of a line \n, and \ is \\. The proof is empty without a secret, else
// the code of
//   "acco4", kind, packed fields of the greeting and of the hello (not in a hello), packed fields of this message
// so that it shows knowledge of the secret, belongs to this conversation (nonces), and covers what is said.
// clang-format off
//   kind      said by   fields
//   greeting  rank 0    16 bytes that are drawn for this start, 16 that are drawn for this conversation; no proof
//   hello     client     name of the run, rank, number of ranks, 16 bytes that are drawn
//   bring     client     what it brings for each rank; follows at once
//   answer    rank 0    what each rank brought for the client; said when all have come
//   refusal   rank 0    type of the error, rank that caused it, what, advice; instead of an answer
// clang-format on
#pragma once

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "acco/error.hpp"
#include "acco/network/launch_environment.hpp"
#include "acco/network/socket.hpp"
#include "acco/number/require.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous {

/// What each rank brings, by rank.
using contributions = std::vector<std::string>;

/// A message authentication code under a secret that all ranks of a run share: the same message and secret give the
/// same code, and nobody makes one without the secret. `shared_secret` (shared_secret.hpp) is one. Called by the thread
/// that starts up.
using authenticator = std::function<std::string(std::string_view message)>;

/// How ranks come together.
struct tcp_options {
  double deadline = 600;   ///< seconds from the beginning to the end of the start-up
  std::string run{};       ///< names this run, the same on all its ranks: who was told another name is no rank of it
  authenticator secret{};  ///< all ranks have it or none; who cannot prove that it knows the secret is no rank either
  std::string listen{};    ///< network interface ("eth0") or address at which
                           ///< rank 0 listens; default: MASTER_ADDR if that is
                           ///< an address of rank 0's host in digits or "localhost", else all
};

/// Those of a backend's options that are of the start-up.
template <class Options>
[[nodiscard]] tcp_options start_of(Options const& chosen) {
  return {.deadline = chosen.deadline, .run = chosen.run, .secret = chosen.secret, .listen = chosen.listen};
}

namespace detail {

inline std::string pack(contributions const& fields) {
  std::string result;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i != 0) result.push_back(' ');
    for (const char c : fields[i]) {
      if (c == ' ' || c == '\n' || c == '\\') result.push_back('\\');
      result.push_back(c == ' ' ? 's' : c == '\n' ? 'n' : c);
    }
  }
  return result;
}
/// Empty where these are not `count` fields.
inline contributions unpack(std::string_view from, std::size_t count) {
  contributions result(1);
  for (std::size_t i = 0; i < from.size() && result.size() <= count; ++i) {
    const bool escaped = from[i] == '\\' && i + 1 < from.size();
    const char c = from[escaped ? ++i : i];
    if (c == ' ' && !escaped) {
      result.emplace_back();
    } else {
      result.back().push_back(escaped && c == 's' ? ' ' : escaped && c == 'n' ? '\n' : c);
    }
  }
  return result.size() == count ? result : contributions();
}
/// A whole number from 0 on, and nothing else; -1 where it is none.
inline int whole_number(std::string_view digits) {
  int read = 0;
  auto const [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), read);
  return code == std::errc() && end == digits.data() + digits.size() && digits.front() != '-' ? read : -1;
}
inline std::string draw_nonce() {
  std::random_device entropy;
  std::string result;
  while (result.size() < 16) result.push_back(static_cast<char>(entropy() & 255U));
  return result;
}
/// Words of somebody else for our messages: no control characters, and not too many.
inline std::string printable(std::string_view words, std::size_t most) {
  std::string result(words.substr(0, most));
  for (char& c : result) c = c >= ' ' && c <= '~' ? c : '?';
  return words.size() > most ? result + "..." : result;
}

/// One end of a connection.
struct line {
  enum class state { waits, whole, ended, foreign };
  static constexpr std::string_view magic = "acco4 ";

  net::socket_handle socket{};
  net::clock::time_point since{};               // when it was made
  std::string talk{};                           // what every proof covers: fields of the greeting, then of the hello
  std::string in{}, kind{}, proof{}, fields{};  // what has come of a message; what the last one was
  std::size_t searched = 0;                     // bytes of `in` that have no end of a line
  int rank = -1;                                // who is at the other end, if that is a rank

  [[nodiscard]] std::string prove(authenticator const& secret, std::string const& is, std::string const& what) const {
    return secret ? secret(pack({"acco4", is, talk, what})) : "";
  }
  /// Whether the other side knows the secret, and said this. Codes of codes are compared: the time tells nothing about
  /// them.
  [[nodiscard]] bool proven(authenticator const& secret) const {
    return secret ? secret(proof) == secret(prove(secret, kind, fields)) : proof.empty();
  }
  /// False: the connection is broken, or `until` has come.
  bool say(authenticator const& secret, std::string const& is, std::string const& what, net::clock::time_point until) const {
    const std::string bytes = pack({"acco4", is, prove(secret, is, what), what}) + "\n";
    for (std::string_view left = bytes; !left.empty();) {
      const ssize_t n = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        left.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno != EINTR && ((errno != EAGAIN && errno != EWOULDBLOCK) || !socket.ready(POLLOUT, until))) {
        return false;
      }
    }
    return true;
  }
  /// Reads what has come, at most to the end of a line, of at most `most` bytes, and at most 64 KiB a call: others have
  /// their turn, and somebody looks at the clock.
  state hear(std::size_t most) {
    std::size_t end = 0;
    char some[4096];
    for (int parts = 0; (end = in.find('\n', searched)) == std::string::npos || end > most; ++parts) {
      searched = in.size();
      if (in.size() > most || !in.starts_with(magic.substr(0, in.size()))) return state::foreign;
      if (parts == 16) return state::waits;
      const ssize_t n = ::recv(socket.get(), some, sizeof some, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return state::waits;
      if (n <= 0) return state::ended;
      in.append(some, static_cast<std::size_t>(n));
    }
    contributions said = unpack(std::string_view(in).substr(0, end), 4);
    in.erase(0, end + 1);
    searched = 0;
    if (said.empty() || said[0] != "acco4") return state::foreign;
    kind = std::move(said[1]);
    proof = std::move(said[2]);
    fields = std::move(said[3]);
    return state::whole;
  }
  /// The same; waits for it until `until`.
  state await(std::size_t most, net::clock::time_point until) {
    for (;;) {
      const state now = hear(most);
      if (now != state::waits || net::clock::now() >= until || !socket.ready(POLLIN, until)) return now;
    }
  }
};

/// The fields of a hello.
inline std::string hello_of(std::string const& run, int rank, int size, std::string const& nonce) {
  return pack({run, std::to_string(rank), std::to_string(size), nonce});
}

/// One start-up, as one rank sees it.
struct start_up {
  rank_of me;
  std::string place;  // where rank 0 is, in words
  tcp_options chosen;
  net::clock::time_point until = net::after(chosen.deadline);
  error_place where{me.rank, -1, "start-up"};
  std::size_t ranks = static_cast<std::size_t>(me.size);
  std::size_t most = 8192 * ranks;  // bytes of a message
  static constexpr std::size_t most_of_strangers = 4096;

  /// Throws `usage_error` where rank 0 would take every hello of this run for a stranger's, or nobody can come.
  void require_possible() const {
    if (me.rank < 0 || me.rank >= me.size)
      throw usage_error(where, text("there is no rank ", me.rank, " of ", me.size), text("Ranks are numbered from 0"));
    require_positive("the start-up's deadline", chosen.deadline, where);
    const std::string longest(16, '\\'), proof(chosen.secret ? 2 * chosen.secret("").size() : 0, ' ');
    if (pack({"acco4", "hello", proof, hello_of(chosen.run, me.size, me.size, longest)}).size() > most_of_strangers)
      throw usage_error(where, text("the run's name is too long: it has ", chosen.run.size(), " bytes"),
                        text("Give a shorter one (option `run`, ACCO_RUN_ID, or the launcher's): 900 bytes are not too many"));
  }
};

}  // namespace detail
}  // namespace ACCO_SIMD_NAMESPACE::rendezvous

#include "acco/restore_macros.hpp"
