// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>

#include <doctest/doctest.h>

#include <acco/collective/redistribution.hpp>

using acco::bytes_sent, acco::collective, acco::distribution;

// The table of legal arrows.
static_assert(acco::redistribution(distribution::partial, distribution::sharded) == collective::reduce_scatter);
static_assert(acco::redistribution(distribution::partial, distribution::replicated) == collective::all_reduce);
static_assert(acco::redistribution(distribution::sharded, distribution::replicated) == collective::all_gather);
static_assert(acco::redistribution(distribution::replicated, distribution::sharded) == collective::none);
static_assert(acco::redistribution(distribution::sharded, distribution::partial) == collective::none);
// Bytes of a ring.
static_assert(bytes_sent(collective::reduce_scatter, 4, 4000) == 3000);
static_assert(bytes_sent(collective::all_reduce, 4, 4000) == 6000);
static_assert(bytes_sent(collective::all_gather, 1, 4000) == 0);
static_assert(bytes_sent(collective::all_reduce, 3, 8) == 10);

TEST_CASE("an all-reduce costs what its two halves cost") {
  for (int ranks = 1; ranks < 40; ++ranks) {
    for (const std::uint64_t bytes : {0ULL, 1ULL, 1000ULL, 123456789ULL, 1ULL << 40U}) {
      CHECK(bytes_sent(collective::all_reduce, ranks, bytes) ==
            bytes_sent(collective::reduce_scatter, ranks, bytes) + bytes_sent(collective::all_gather, ranks, bytes));
    }
  }
}
