// SPDX-License-Identifier: Apache-2.0
// The schedules by themselves: who meets whom, that nothing is missing, and how many messages it takes.
#include <bit>
#include <cstddef>
#include <set>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <acco/network/message_steps.hpp>

namespace {

/// In every step giver and taker name each other and the same piece; in the end every piece has gone from everybody to
/// everybody.
template <class Steps>
void check_meetings(int ranks, std::size_t pieces) {
  CAPTURE(ranks);
  CAPTURE(pieces);
  std::set<std::tuple<int, int, std::size_t>> went;
  int wrong = 0;
  const std::size_t count = Steps(0, ranks, pieces).count();
  for (int rank = 0; rank < ranks; ++rank) {
    const Steps mine(rank, ranks, pieces);
    for (std::size_t t = 0; t < count; ++t) {
      auto const [to, from, gives, takes] = mine.at(t);
      auto const other = Steps(to, ranks, pieces).at(t);
      wrong += other.from == rank && other.takes == gives ? 0 : 1;
      if (gives == acco::message_step::nothing) continue;
      wrong += gives < pieces && went.emplace(rank, to, gives).second ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  CHECK(went.size() == static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) * pieces);
}

}  // namespace

TEST_CASE("giver and taker meet, and every piece goes from everybody to everybody, once") {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    for (const std::size_t pieces : {0U, 1U, 2U, 5U}) {
      check_meetings<acco::direct_steps>(ranks, pieces);
      check_meetings<acco::ordered_steps>(ranks, pieces);
    }
  }
}

TEST_CASE("in order: each piece comes from rank 0, 1, 2, ... before the next piece") {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const acco::ordered_steps steps(rank, ranks, 3);
      std::size_t next = 0;
      int wrong = 0;
      for (std::size_t t = 0; t < steps.count(); ++t) {
        auto const each = steps.at(t);
        if (each.takes == acco::message_step::nothing) continue;
        wrong += each.takes * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(each.from) == next++ ? 0 : 1;
      }
      CHECK(wrong == 0);
      CHECK(next == 3 * static_cast<std::size_t>(ranks));
    }
  }
}

TEST_CASE("passed on: everybody has everybody's block after at most ceil(log2 N) + 1 messages") {
  for (int ranks = 2; ranks <= 2100; ++ranks) {
    CAPTURE(ranks);
    const acco::relay_hops hops(ranks);
    int has = 1, messages = 0;  // blocks, from this rank's on; all ranks alike
    for (std::size_t k = 0; k < hops.count(); ++k) {
      REQUIRE(hops[k].reach == has);
      for (int m = 1; m < hops[k].radix; ++m) {
        const int blocks = hops[k].blocks(m, ranks);
        REQUIRE(blocks <= hops[k].reach);  // what the other rank has by then
        if (blocks == 0) continue;
        REQUIRE(hops[k].distance(m) == has);
        has += blocks;
        ++messages;
      }
    }
    CHECK(has == ranks);
    CHECK(messages <= std::bit_width(static_cast<unsigned>(ranks - 1)) + 1);
    CHECK(hops.count() <= static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks - 1))));
  }
  CHECK(acco::relay_hops(5).count() == 1);  // few ranks send directly
  CHECK(acco::relay_hops(8).count() == 2);
  CHECK(acco::relay_hops(1000).count() == 9);
}
