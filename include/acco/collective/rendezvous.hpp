// SPDX-License-Identifier: Apache-2.0
// How processes that were started one by one find each other: each brings a few bytes (an address) and gets everybody's. Used
// once, at start-up. Over TCP: rendezvous_tcp.hpp; through a shared directory: rendezvous_files.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE::rendezvous {

/// What each rank brings, by rank.
using contributions = std::vector<std::string>;

namespace detail {
using clock = std::chrono::steady_clock;

inline constexpr std::uint32_t protocol = 0x61636331;  // "acc1"

inline clock::time_point after(double seconds) {
  return clock::now() + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e9)));
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
}  // namespace detail

}  // namespace ACCO_NAMESPACE::rendezvous
