// SPDX-License-Identifier: Apache-2.0
// How worlds of two levels are made, and found to fit, on every rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/hierarchical.hpp"
#include "acco/error.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/number/require.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What every rank answers, in the order of the ranks; all give equally many answers. Collective; blocks at most
/// `deadline` seconds for any rank.
template <class Backend, class Answer>
[[nodiscard]] std::vector<Answer> answers_of_all(Backend& world, std::span<Answer const> mine, error_place where,
                                                 double deadline) {
  std::vector<Answer> all(static_cast<std::size_t>(world.size()) * mine.size());
  auto queue = make_queue<host_queue>(world);
  queue.place = where;
  queue.deadline = deadline;
  world.all_gather(queue, sharded<Answer const>(mine), replicated<Answer>(std::span(all)));
  queue.wait();
  return all;
}
template <class Backend, class Answer>
[[nodiscard]] std::vector<Answer> answers_of_all(Backend& world, Answer const& mine, error_place where, double deadline) {
  return answers_of_all(world, std::span<Answer const>(&mine, 1), where, deadline);
}

/// Throws `usage_error`, on every rank, unless all groups have as many ranks, and `outer` connects the ranks of one
/// place in all groups, everywhere in the same order: the same groups at every place, too. Costs three exchanges of 48
/// bytes a rank and one inside the group of 8 bytes a group and rank. Collective over both; blocks at most `deadline`
/// seconds for any rank.
///
/// Every group is known by a number that its rank 0 draws, so that what two ranks of a group hear between groups can be
/// compared. A group that finds nothing wrong is connected, at every place, with the same groups and no others; these
/// find nothing wrong either. So all ranks that are connected, however far, throw or do not, and none waits for one
/// that has thrown.
template <class Inner, class Outer>
void require_levels_fit(Inner& inner, Outer& outer, double deadline) {
  const error_place where{-1, -1, "make_hierarchical"};
  require_positive("make_hierarchical's deadline", deadline, where);
  // place, ranks of the group, group, groups, flaw, the number that the group is known by
  using facts = std::array<std::int64_t, 6>;
  enum flaw : std::int64_t { none, sizes, places };
  facts mine{inner.rank(), inner.size(), outer.rank(), outer.size(), none, 0};
  if (inner.rank() == 0) {
    std::random_device entropy;
    mine[5] = static_cast<std::int64_t>(std::uint64_t{entropy()} << 32U | entropy());
  }
  const auto hear = [&](std::vector<facts> const& all, std::size_t rank, std::size_t size) {
    for (facts const& each : all) {
      std::int64_t const found = each[size] != mine[size] ? sizes : each[rank] != mine[rank] ? places : each[4];
      if (mine[4] == none || found == sizes) mine[4] = found == none ? mine[4] : found;
    }
  };
  const auto ask = [&](auto& level) { return answers_of_all(level, mine, where, deadline); };
  const std::vector<facts> of_group = ask(inner);
  mine[5] = of_group[0][5];
  hear(of_group, 2, 3);  // a group's ranks are of one group, and
  const std::vector<facts> of_place = ask(outer);
  hear(of_place, 0, 1);  // ranks between groups of one place; what a group has found reaches the others
  hear(ask(inner), 2, 3);
  if (mine[4] == sizes) {
    throw usage_error(where, text("the groups do not all have the same number of ranks"),
                      text("Let every group have as many ranks, or train over one level"));
  }
  if (mine[4] == places) {
    throw usage_error(where,
                      text("the levels do not fit: a rank is not at the same place in its group as those it is connected with"),
                      text("The outer level connects the ranks of one place in all groups, in the same order at every place"));
  }
  std::vector<std::int64_t> met;
  met.reserve(of_place.size());
  for (facts const& each : of_place) met.push_back(each[5]);
  const std::vector<std::int64_t> met_by_all =
      answers_of_all(inner, std::span<std::int64_t const>(met), where, deadline);  // all ranks of a group have come here, or none
  for (std::size_t k = met.size(); k < met_by_all.size(); ++k) {
    if (met_by_all[k] == met_by_all[k % met.size()]) continue;
    throw usage_error(
        where,
        text("the levels do not fit: between groups, ranks 0 and ", k / met.size(),
             " of a group are connected with different groups, at rank ", k % met.size(), " of the outer level (this is rank ",
             inner.rank(), " of that group, and rank ", outer.rank(), " between groups)"),
        text("Let the ranks of every group be connected with the same groups at every place, in the same order: no rings"));
  }
}

/// The backend of two levels that the caller brings: `inner` of the ranks of this rank's group, `outer` of the ranks
/// that have this one's place in every group (threads in a process, say, and Gloo between processes). Collective over
/// both; blocks at most `deadline` seconds for any rank. Throws `usage_error`, on every rank, where they do not fit
/// (`require_levels_fit`).
template <class Inner, class Outer>
[[nodiscard]] hierarchical<Inner, Outer> make_hierarchical(Inner inner, Outer outer, double deadline = 600) {
  require_levels_fit(inner, outer, deadline);
  return {std::move(inner), std::move(outer)};
}

/// The backend of two levels of one world that splits: ranks k m to k m + m - 1 of the world, m = `ranks_a_group`,
/// become group k; the result numbers them otherwise (`hierarchical`). Collective; blocks at most `deadline` seconds
/// for any rank. Throws `usage_error`, on every rank alike, unless the world's ranks make whole groups, and where ranks
/// ask for different ones.
template <class Backend>
[[nodiscard]] hierarchical<Backend, Backend> hierarchical_world(Backend const& world, int ranks_a_group, double deadline = 600) {
  static_assert(traits_of<Backend>.splits,
                "acco: hierarchical_world splits a world, and this backend cannot be split: make both levels, and call "
                "make_hierarchical(inner, outer)");
  const error_place where{world.rank(), -1, "hierarchical_world"};
  require_positive("hierarchical_world's deadline", deadline, where);
  Backend whole = world;
  const std::vector<std::int32_t> asked = answers_of_all(whole, std::int32_t{ranks_a_group}, where, deadline);
  for (int rank = 1; rank < world.size(); ++rank) {
    if (asked[static_cast<std::size_t>(rank)] == asked[0]) continue;
    throw usage_error(where,
                      text("rank 0 asked for groups of ", asked[0], " ranks, rank ", rank, " for groups of ",
                           asked[static_cast<std::size_t>(rank)]),
                      text("Let every rank ask for the same groups"), world.rank() == rank ? 0 : rank);
  }
  if (ranks_a_group < 1 || world.size() % ranks_a_group != 0) {
    throw usage_error(where, text("groups of ", ranks_a_group, " ranks were asked for in a world of ", world.size()),
                      text("Let the number of ranks be a multiple of a group's"));
  }
  const int group = world.rank() / ranks_a_group, place = world.rank() % ranks_a_group;
  Backend inner = world.split(group, place, deadline), outer = world.split(place, group, deadline);
  return make_hierarchical(std::move(inner), std::move(outer), deadline);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
