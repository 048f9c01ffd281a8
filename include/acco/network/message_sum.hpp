// SPDX-License-Identifier: Apache-2.0
// Checksums of messages, where xxHash is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#if defined(ACCO_WITH_XXHASH)
#include <xxhash.h>
#if defined(__x86_64__) && defined(__ELF__) && !defined(XXH_NAMESPACE) && !defined(XXH_INLINE_ALL)
/// XXH3 by the widest registers that the processor has; null where the library was built without it (XXH_DISPATCH).
extern "C" [[gnu::weak]] XXH64_hash_t XXH3_64bits_dispatch(void const* from, std::size_t bytes);
#define ACCO_XXH3_DISPATCH
#endif
#endif

#include "acco/error.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Which messages carry a checksum, where all ranks' programs were built with xxHash.
enum class checksums {
  none,
  long_links,  ///< where a round trip takes 5 ms or more, as Gloo's connections tell
  always,      ///< a program without xxHash ends with a `usage_error`
};

/// Of the bytes of a message; both ends compute it. All ranks have the same one; null: messages carry none.
using message_sum = std::uint64_t (*)(void const* from, std::size_t bytes) noexcept;

#if defined(ACCO_WITH_XXHASH) && XXH_VERSION_NUMBER >= 800
/// XXH3, 64 bits. `acco::gloo` and `acco::mpi` define ACCO_WITH_XXHASH, and link xxHash, where CMake finds it.
[[nodiscard]] inline std::uint64_t xxh3(void const* from, std::size_t bytes) noexcept {
#if defined(ACCO_XXH3_DISPATCH)
  if (XXH3_64bits_dispatch != nullptr) return XXH3_64bits_dispatch(from, bytes);
#undef ACCO_XXH3_DISPATCH
#endif
  return XXH3_64bits(from, bytes);
}
constexpr message_sum found_message_sum = xxh3;  // each file's own: files of one program may differ
constexpr bool has_xxhash = true;
#else
constexpr message_sum found_message_sum = nullptr;
constexpr bool has_xxhash = false;
#endif
/// What the messages of one operation sum up to, between this rank and each other one.
struct message_sums {
  struct between {
    std::uint64_t sent = 0, came = 0;
    std::uint64_t told = 0;  // by the other rank: what it has sent
    bool leaves = false, comes = false;
  };
  std::vector<between> ranks;
  bool in_use = false;

  [[nodiscard]] between& of(int rank) noexcept { return ranks[static_cast<std::size_t>(rank)]; }
};
/// As many as operations have been under way beside each other.
class sums_of_operations {
 public:
  /// For an operation that begins, until it sets `in_use` to false.
  [[nodiscard]] message_sums* unused(int ranks) {
    auto const found = std::find_if(all_.begin(), all_.end(), [](message_sums const& each) { return !each.in_use; });
    message_sums& its = found != all_.end() ? *found : all_.emplace_back();
    its.ranks.assign(static_cast<std::size_t>(ranks), {});
    its.in_use = true;
    return &its;
  }

 private:
  std::list<message_sums> all_;
};

/// For `checksums::always`; `without`: a rank whose program has none, or -1.
[[nodiscard]] inline message_sum required_message_sum(int rank, message_sum mine, int without = -1) {
  if (mine != nullptr && without < 0) return mine;
  const int its = without < 0 ? rank : without;
  throw usage_error(
      {rank, -1, "start-up"}, text("checksums::always was chosen, and rank ", its, "'s program was built without xxHash"),
      text("Install libxxhash-dev and build it anew (without CMake: -DACCO_WITH_XXHASH and -lxxhash), or choose checksums::none"),
      its);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
