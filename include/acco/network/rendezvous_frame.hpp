// SPDX-License-Identifier: Apache-2.0
// What rank 0 and the others say to each other over TCP, byte by byte.
//
// Numbers have their lowest byte first; `bytes` are a length (8 bytes) and that many bytes. A frame is
//
//   at   size
//    0      4   "acco"
//    4      2   version of the protocol: 3
//    6      2   kind
//    8      8   size of the body, b
//   16      4   size of the proof, p; 0 without a secret
//   20     16   rank 0's nonce of this start; zeros in a hello
//   36      b   body
//   36+b    p   proof
//
// clang-format off
//   kind          said by   body
//   1 hello       guest     run: bytes, rank: 4, size: 4, guest's nonce: 16          no proof
//   2 welcome     rank 0    rank 0's nonce of this conversation: 16
//   3 join        guest     -                                                       from now on it counts as that rank
//   4 assembled   rank 0    host: bytes, how other hosts reach rank 0's               when all have joined
//   5 bring       guest     form: 1 (0: whole, 1: in parts), what the guest contributes, as it is; in parts: `bytes` for each rank
//   6 answer      rank 0    `bytes` from each rank, in their order: its contribution, or the part of it for this guest
//   7 refusal     rank 0    reason: 4, rank that caused it: 4, what: bytes, advice: bytes; at any time, and the last frame
// clang-format on
//
// Each kind is said at most once in a conversation. The proof is a message authentication code, under the shared secret, of
//
//   "acco rendezvous", version: 2, kind: 2, run: bytes, rank: 4, size: 4, guest's nonce: 16, rank 0's nonce: 16 (zeros in a
//   refusal of a hello), rank 0's nonce of this start: 16, body
//
// so that it shows knowledge of the secret, belongs to this conversation (nonces), and covers what is said. Who has joined one
// start joins no other: two jobs without a name that meet at one port do not change their ranks.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include <sys/socket.h>

#include "acco/network/rendezvous.hpp"
#include "acco/network/socket.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous::detail {

inline constexpr std::string_view magic = "acco";
inline constexpr std::uint16_t version = 3;
inline constexpr std::size_t nonce_size = 16, start_at = 20, header_size = start_at + nonce_size, largest_proof = 256;
inline constexpr std::size_t longest_run = 256;                              // of a run's identifier
inline constexpr std::size_t largest_greeting = 4096;                        // body of all that is neither bring nor answer
inline constexpr std::size_t largest_contribution = std::size_t{64} << 20U;  // of one rank; the answer holds one from each

enum class frame : std::uint16_t { hello = 1, welcome, join, assembled, bring, answer, refusal };
enum class reason : std::uint32_t { mismatch = 1, peer, deadline };

/// What identifies a conversation.
struct conversation {
  std::string run;
  int rank = -1, size = 0;
  static std::string zeros() { return std::string(nonce_size, '\0'); }
  std::string guest_nonce = zeros(), host_nonce = zeros(), start = zeros();
};
inline std::string draw_nonce() {
  std::random_device entropy;
  std::string result;
  while (result.size() < nonce_size) put(result, static_cast<std::uint32_t>(entropy()));
  return result;
}
inline std::string proof_of(authenticator const& secret, conversation const& in, frame kind, std::string_view body) {
  if (!secret) return {};
  std::string message("acco rendezvous");
  put(message, version);
  put(message, static_cast<std::uint16_t>(kind));
  put(message, in.run);
  put(message, in.rank);
  put(message, in.size);
  message.append(in.guest_nonce).append(in.host_nonce).append(in.start).append(body);
  return secret(message);
}
/// Compares in a time that does not tell where the first difference is.
inline bool same_proof(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char volatile differences = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differences = static_cast<unsigned char>(differences | (a[i] ^ b[i]));
  return differences == 0;
}

/// Frames in both directions over one socket; nothing here waits.
class channel {
 public:
  enum class arrival { nothing, whole_frame, broken, foreign, other_version };

  explicit channel(net::socket_handle socket) : socket_(std::move(socket)) {}
  [[nodiscard]] net::socket_handle const& socket() const noexcept { return socket_; }
  void close() noexcept { socket_.close(); }

  /// Puts a frame behind those that wait to be sent. A body may be shared by many channels.
  void send(frame kind, std::string_view start, std::shared_ptr<std::string const> body, std::string proof) {
    std::string header(magic);
    put(header, version);
    put(header, static_cast<std::uint16_t>(kind));
    put(header, static_cast<std::uint64_t>(body->size()));
    put(header, static_cast<std::uint32_t>(proof.size()));
    header.append(start);
    out_.push_back(std::make_shared<std::string const>(std::move(header)));
    if (!body->empty()) out_.push_back(std::move(body));
    if (!proof.empty()) out_.push_back(std::make_shared<std::string const>(std::move(proof)));
  }
  [[nodiscard]] bool sending() const noexcept { return !out_.empty(); }
  /// Sends what the network takes now; false: the connection is broken.
  [[nodiscard]] bool flush() {
    while (!out_.empty()) {
      const std::string_view rest = std::string_view(*out_.front()).substr(sent_);
      const ssize_t n = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      sent_ += static_cast<std::size_t>(n);
      if (sent_ < out_.front()->size()) return true;
      out_.pop_front();
      sent_ = 0;
    }
    return true;
  }

  /// Reads what has come, at most to the end of one frame, whose body may have `most` bytes. Memory is taken for bytes that have
  /// come, not for those that a header promises.
  [[nodiscard]] arrival receive(std::size_t most) {
    if (whole_) in_.clear();
    whole_ = false;
    std::size_t budget = std::size_t{1} << 20U;  // others want to be heard, too
    for (;;) {
      std::size_t end = header_size;
      if (in_.size() >= header_size) {
        end += body_size_ + proof_size_;
        if (in_.size() == end) {
          whole_ = true;
          return arrival::whole_frame;
        }
      }
      if (budget == 0) return arrival::nothing;
      const std::size_t before = in_.size(), asked = std::min({end - before, budget, std::size_t{1} << 16U});
      in_.resize(before + asked);
      const ssize_t n = ::recv(socket_.get(), in_.data() + before, asked, MSG_DONTWAIT);
      in_.resize(before + (n > 0 ? static_cast<std::size_t>(n) : 0));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return arrival::nothing;
      if (n <= 0) return arrival::broken;
      budget -= static_cast<std::size_t>(n);
      if (before >= header_size) continue;
      const std::string_view start = magic.substr(0, in_.size());
      if (std::string_view(in_).substr(0, start.size()) != start) return arrival::foreign;
      if (in_.size() < header_size) continue;
      reader header{std::string_view(in_).substr(magic.size())};
      const auto spoken = header.number<std::uint16_t>();
      kind_ = static_cast<frame>(header.number<std::uint16_t>());
      const auto body = header.number<std::uint64_t>();
      const auto proof = header.number<std::uint32_t>();
      if (spoken != version) return arrival::other_version;
      if (body > most || proof > largest_proof) return arrival::foreign;
      body_size_ = static_cast<std::size_t>(body);
      proof_size_ = proof;
    }
  }
  /// Reads what has come for nobody; false: the connection has ended.
  [[nodiscard]] bool discard() {
    char some[4096];
    for (int times = 0; times < 16; ++times) {
      const ssize_t n = ::recv(socket_.get(), some, sizeof some, MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
      if (n <= 0) return false;
    }
    return true;
  }
  /// Of the whole frame, until the next call of receive.
  [[nodiscard]] frame kind() const noexcept { return kind_; }
  [[nodiscard]] std::string_view start() const noexcept { return std::string_view(in_).substr(start_at, nonce_size); }
  [[nodiscard]] std::string_view body() const noexcept { return std::string_view(in_).substr(header_size, body_size_); }
  [[nodiscard]] std::string_view proof() const noexcept { return std::string_view(in_).substr(header_size + body_size_); }

 private:
  net::socket_handle socket_;
  std::deque<std::shared_ptr<std::string const>> out_;
  std::size_t sent_ = 0;  // of the first of them
  std::string in_;
  std::size_t body_size_ = 0, proof_size_ = 0;
  frame kind_{};
  bool whole_ = false;
};

/// Words of somebody else for our messages: no control characters, and not too many.
inline std::string printable(std::string_view words, std::size_t most = 400) {
  std::string result(words.substr(0, most));
  for (char& c : result) c = c >= ' ' && c <= '~' ? c : '?';
  if (words.size() > most) result.append("...");
  return result;
}
inline std::string run_in_words(std::string const& run) {
  return run.empty() ? "a run without a name" : "run '" + printable(run, 64) + "'";
}

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous::detail

#include "acco/restore_macros.hpp"
