// SPDX-License-Identifier: Apache-2.0
// How processes that were started one by one find each other: each brings a few bytes (an address) and gets everybody's. Used
// once, at start-up. Over TCP: rendezvous_tcp.hpp; through a shared directory: rendezvous_files.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "acco/collective/ranks_where.hpp"
#include "acco/error.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::rendezvous {

/// What each rank brings, by rank.
using contributions = std::vector<std::string>;

/// A message authentication code under a secret that all ranks of a run share: the same message and secret give the same code,
/// and nobody makes one without the secret. `shared_secret` (shared_secret.hpp) is one. Called by the thread that starts up.
using authenticator = std::function<std::string(std::string_view message)>;

/// How ranks come together over TCP.
struct tcp_options {
  double deadline = 600;   ///< seconds from the beginning to the end of the start-up
  std::string run{};       ///< names this run, the same on all its ranks: who was told another name is no rank of it
  authenticator secret{};  ///< all ranks have it or none; who cannot prove that it knows the secret is no rank either
  std::string listen{};    ///< network interface ("eth0") or address at which rank 0 listens; default: MASTER_ADDR if that is
                           ///< an address of rank 0's host in digits or "localhost", else all
};

namespace detail {
/// Numbers travel with their lowest byte first; strings follow their length, 8 bytes.
template <std::integral Number>
void put(std::string& into, Number number) {
  const auto bits = static_cast<std::make_unsigned_t<Number>>(number);
  for (std::size_t byte = 0; byte < sizeof bits; ++byte) into.push_back(static_cast<char>((bits >> (8 * byte)) & 0xffU));
}
inline void put(std::string& into, std::string_view bytes) {
  put(into, static_cast<std::uint64_t>(bytes.size()));
  into.append(bytes);
}
inline void put(std::string& into, std::string const& bytes) { put(into, std::string_view(bytes)); }
/// Takes numbers and strings back; `good` turns false when the bytes do not suffice.
struct reader {
  std::string_view rest;
  bool good = true;
  template <std::integral Number>
  Number number() {
    std::make_unsigned_t<Number> bits = 0;
    const std::string_view taken = fixed(sizeof bits);
    for (std::size_t byte = taken.size(); byte-- > 0;)
      bits = static_cast<decltype(bits)>((std::uint64_t{bits} << 8U) | static_cast<unsigned char>(taken[byte]));
    return static_cast<Number>(bits);
  }
  std::string_view fixed(std::size_t size) {
    if (!good || size > rest.size()) {
      good = false;
      return {};
    }
    const std::string_view result = rest.substr(0, size);
    rest.remove_prefix(size);
    return result;
  }
  std::string bytes() {
    const auto size = number<std::uint64_t>();
    if (size > rest.size()) good = false;
    return good ? std::string(fixed(static_cast<std::size_t>(size))) : std::string();
  }
};

/// Ranks for a message, at most a dozen by name: words, and the lowest of them.
template <class Is>
named_ranks some_ranks(int size, Is&& is) {
  int found = 0;
  named_ranks result = ranks_where(size, [&](int rank) { return is(rank) && ++found <= 12; });
  if (found > 12) result.words.append(" and ").append(found - 12).append(" more");
  return result;
}
}  // namespace detail

}  // namespace ACCO_SIMD_NAMESPACE::rendezvous
