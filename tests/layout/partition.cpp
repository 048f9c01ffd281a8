// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <acco/layout/partition.hpp>

static_assert(acco::partition(10, 4).slice_size() == 3);
static_assert(acco::partition(10, 4).padded_size() == 12);
static_assert(acco::partition(10, 4).count(3) == 1);

TEST_CASE("the slices cover every element exactly once") {
  for (std::size_t elements = 1; elements < 60; ++elements) {
    for (int ranks = 1; ranks < 20; ++ranks) {
      const acco::partition p(elements, ranks);
      std::size_t covered = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(p.begin(rank) == p.slice_size() * static_cast<std::size_t>(rank));
        CHECK(p.count(rank) <= p.slice_size());
        if (p.count(rank) > 0) CHECK(p.begin(rank) == covered);
        covered += p.count(rank);
      }
      CHECK(covered == elements);
      CHECK(p.padded_size() >= elements);
      CHECK(p.padded_size() < elements + static_cast<std::size_t>(ranks));
    }
  }
}
