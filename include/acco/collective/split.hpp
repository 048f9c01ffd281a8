// SPDX-License-Identifier: Apache-2.0
// Which ranks form a world of their own after `split(color, key)`: what every backend's split begins with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/error.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/number/require.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One of the worlds into which a world is split, as one of its ranks sees it.
struct split_result {
  std::vector<int> members;  ///< ranks of the world that is split, in the order of their ranks in the new one
  int rank = 0;              ///< this rank's in the new one

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
};

/// Every rank's color and key, in the order of the ranks.
using split_answer = std::array<std::int32_t, 2>;

/// Where the rank `me`, whose color is `color`, belongs.
[[nodiscard]] split_result part_of(std::vector<split_answer> const& all, int color, int me, error_place const& where);

/// Asks all ranks for their color and key: ranks of one color belong together, ordered by key, and by rank where keys
/// are equal. Collective; blocks at most `deadline` seconds for any rank. A negative color throws `usage_error`, on
/// every rank.
template <class Backend>
[[nodiscard]] split_result agree_on_split(Backend& backend, int color, int key, double deadline) {
  const error_place where{backend.rank(), -1, "split"};
  require_positive("split's deadline", deadline, where);
  const split_answer mine{color, key};
  std::vector<split_answer> all(static_cast<std::size_t>(backend.size()));
  auto queue = make_queue<host_queue>(backend);
  queue.place = where;
  queue.deadline = deadline;
  backend.all_gather(queue, sharded<split_answer const>(std::span(&mine, 1)), replicated<split_answer>(std::span(all)));
  queue.wait();

  return part_of(all, color, backend.rank(), where);
}

#if !ACCO_ENGINES_ARE_COMPILED
ACCO_ONCE split_result part_of(std::vector<split_answer> const& all, int color, int me, error_place const& where) {
  const auto before = [&](int a, int b) { return all[static_cast<std::size_t>(a)][1] < all[static_cast<std::size_t>(b)][1]; };
  std::vector<int> members;
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const int theirs = all[static_cast<std::size_t>(rank)][0];
    if (theirs < 0)
      throw usage_error(where, text("rank ", rank, " gave split the color ", theirs),
                        text("Colors are 0 or more; a rank that should train alone takes a color of its own"), rank);
    if (theirs == color) members.insert(std::upper_bound(members.begin(), members.end(), rank, before), rank);
  }
  const auto mine = std::find(members.begin(), members.end(), me);
  return {members, static_cast<int>(mine - members.begin())};
}
#endif

}  // namespace ACCO_SIMD_NAMESPACE
