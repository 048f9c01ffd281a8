// SPDX-License-Identifier: Apache-2.0
// What every collective backend must satisfy, for all element types, sizes and numbers of ranks. The oracle sums by
// hand.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"
#include "support/thorough.hpp"
#include "support/worlds.hpp"

namespace conformance {

/// What rank r brings at element i.
template <class T>
T brought(int rank, std::size_t i) {
  return T(static_cast<float>(static_cast<int>(problem::unit(static_cast<std::uint64_t>(rank) * 5003 + i) * 64) - 32) /
           8.0F);  // exact in bfloat16, and so are sums
}

template <class World, class T, class Sum>
void collectives(int ranks) {
  CAPTURE(ranks);
  World::run(ranks, [&](auto backend) {
    CHECK(backend.size() == ranks);
    const int rank = backend.rank();
    auto queue = worlds::queue_of<World>(backend);
    using queue_type = decltype(queue);
    for (const std::size_t slice : {0U, 1U, 3U, 64U, 2500U, 9001U}) {
      if (!thorough() && slice > 2500 && ranks != 3) continue;
      const std::size_t whole = slice * static_cast<std::size_t>(ranks);
      worlds::array<World, T> mine(whole), gathered(whole), all(whole);
      worlds::array<World, Sum> reduced(slice), added(slice, Sum(10));
      for (std::size_t i = 0; i < whole; ++i) mine[i] = brought<T>(rank, i);
      const auto sum = [&](std::size_t i) {
        double total = 0;
        for (int r = 0; r < ranks; ++r) total += static_cast<double>(brought<T>(r, i));
        return total;
      };
      backend.reduce_scatter(queue, acco::partial<T const>(mine), acco::sharded<Sum>(reduced));
      if constexpr (acco::has_accumulating_reduce_scatter<decltype(backend), queue_type, T, Sum>) {
        backend.reduce_scatter(queue, acco::partial<T const>(mine), acco::sharded<Sum>(added), acco::accumulate);
      }
      backend.all_reduce(queue, acco::partial<T const>(mine), acco::replicated<T>(all));
      // all_gather in place: this rank's slice lies inside the output
      const std::size_t begin = slice * static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < slice; ++i) gathered[begin + i] = brought<T>(rank, i);
      backend.all_gather(queue, acco::sharded<T const>(std::span<T const>(gathered).subspan(begin, slice)),
                         acco::replicated<T>(gathered));
      worlds::array<World, T> own(slice), elsewhere(whole), told(whole);
      for (std::size_t i = 0; i < slice; ++i) own[i] = brought<T>(rank, i);
      backend.all_gather(queue, acco::sharded<T const>(own), acco::replicated<T>(elsewhere));
      const int root = ranks - 1;
      for (std::size_t i = 0; i < whole; ++i) told[i] = brought<T>(rank, i + 9);
      backend.broadcast(queue, acco::replicated<T>(told), root);
      worlds::array<World, std::byte> passed(whole), came(whole);
      for (std::size_t i = 0; i < whole; ++i)
        passed[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(rank) * 13) & 255U);
      backend.all_to_all(queue, std::span<std::byte const>(passed), std::span<std::byte>(came));
      queue.wait();

      std::size_t wrong = 0;
      const auto expect = [&wrong](double got, double expected) { wrong += got == expected ? 0U : 1U; };
      for (std::size_t i = 0; i < slice; ++i) {
        expect(static_cast<double>(reduced[i]), sum(begin + i));
        if constexpr (acco::has_accumulating_reduce_scatter<decltype(backend), queue_type, T, Sum>)
          expect(static_cast<double>(added[i]), 10 + sum(begin + i));
      }
      for (std::size_t i = 0; i < whole; ++i) {  // part r came from rank r, where it was part `rank`
        const std::size_t from = i / slice, at = begin + i % slice;
        expect(static_cast<double>(came[i]), static_cast<double>((at * 7 + from * 13) & 255U));
        expect(static_cast<double>(all[i]), static_cast<double>(T(static_cast<float>(sum(i)))));
        const double from_owner = slice == 0 ? 0 : static_cast<double>(brought<T>(static_cast<int>(i / slice), i % slice));
        expect(static_cast<double>(gathered[i]), from_owner);
        expect(static_cast<double>(elsewhere[i]), from_owner);
        expect(static_cast<double>(told[i]), static_cast<double>(brought<T>(root, i + 9)));
        expect(static_cast<double>(mine[i]), static_cast<double>(brought<T>(rank, i)));  // inputs are left alone
      }
      CHECK(wrong == 0);
    }
  });
}

template <class World>
void backend_suite(std::initializer_list<int> numbers_of_ranks = {1, 2, 3, 4, 7}) {
  for (const int ranks : numbers_of_ranks) {
    if (!thorough() && ranks % 2 == 0) continue;
    collectives<World, float, float>(ranks);
    collectives<World, float, double>(ranks);
    collectives<World, double, double>(ranks);
    collectives<World, acco::bfloat16, float>(ranks);
  }
}

}  // namespace conformance
