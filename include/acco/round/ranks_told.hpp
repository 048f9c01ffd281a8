// SPDX-License-Identifier: Apache-2.0
// Which ranks a message is about.
#pragma once

#include <cstddef>

#include "acco/error.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Some ranks in words: "rank 3", "ranks 0 and 2", "ranks 0, 1, 2, 3 and 4 more".
class ranks_told {
 public:
  /// Those of so many for which of(rank) is true.
  template <class Of>
  ranks_told(std::size_t ranks, Of&& of) {
    constexpr std::size_t most = 4;
    for (std::size_t rank = 0; rank < ranks; ++rank) count_ += of(rank) ? 1U : 0U;
    words_.append(several() ? "ranks " : "rank ");
    std::size_t told = 0;
    for (std::size_t rank = 0; rank < ranks && told < most; ++rank) {
      if (!of(rank)) continue;
      words_.append(told == 0 ? "" : told + 1 == count_ ? " and " : ", ").append(rank);
      ++told;
    }
    if (count_ > told) words_.append(" and ").append(count_ - told).append(" more");
  }
  [[nodiscard]] text const& words() const noexcept { return words_; }
  [[nodiscard]] bool none() const noexcept { return count_ == 0; }
  [[nodiscard]] bool several() const noexcept { return count_ > 1; }
  /// Themselves, and what they do.
  [[nodiscard]] text that(char const* one_does, char const* several_do) const noexcept {
    return text(words_, " ", several() ? several_do : one_does);
  }

 private:
  text words_;
  std::size_t count_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE
