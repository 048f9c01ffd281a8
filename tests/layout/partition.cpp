// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <doctest/doctest.h>

#include <acco/layout/partition.hpp>

static_assert(acco::partition(1000, 4).slice_size() == 256);
static_assert(acco::partition(1000, 4).padded_size() == 1024);
static_assert(acco::partition(1000, 4).count(3) == 232);
static_assert(acco::partition(1000, 2, 256).buckets() == 4);
static_assert(acco::partition(1000, 2, 256)[3].share == 128);
static_assert(acco::partition(1000, 2, 300).buckets() == 3);  // shares of 192

TEST_CASE("every element has one owner, at one place of its slice; shares are multiples of 64; padding lies at the end") {
  for (const std::size_t elements : {1U, 63U, 64U, 65U, 100U, 640U, 1000U, 4097U}) {
    for (const int ranks : {1, 2, 3, 7, 8, 70}) {
      for (const std::size_t wanted : {0U, 1U, 64U, 100U, 500U, 1000U, 100000U}) {
        CAPTURE(elements);
        CAPTURE(ranks);
        CAPTURE(wanted);
        const acco::partition p(elements, ranks, wanted);
        std::vector<int> owners(p.padded_size(), 0);
        std::size_t begin = 0, offset = 0, bad = 0;
        for (std::size_t k = 0; k < p.buckets(); ++k) {  // buckets follow each other, in the whole and in the slice
          CHECK(p[k].begin == begin);
          CHECK(p[k].offset == offset);
          CHECK(p[k].share % 64 == 0);
          if (k + 1 < p.buckets())
            CHECK(p[k].share * static_cast<std::size_t>(ranks) < wanted + 64 * static_cast<std::size_t>(ranks));
          begin += p[k].share * static_cast<std::size_t>(ranks);
          offset += p[k].share;
        }
        CHECK(begin == p.padded_size());
        CHECK(offset == p.slice_size());
        std::size_t real = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          for (std::size_t i = 0; i < p.slice_size(); ++i) {
            const std::size_t element = p.position(rank, i);
            ++owners[element];
            bad += (element < elements) == (i < p.count(rank)) ? 0U : 1U;  // real elements come first
          }
          real += p.count(rank);
          std::size_t visited = 0;
          p.for_shares(rank, [&](std::size_t at, std::size_t first, std::size_t count) {
            bad += at == visited && count > 0 && p.position(rank, at) == first ? 0U : 1U;
            visited += count;
          });
          CHECK(visited == p.count(rank));
        }
        for (const int owner : owners) bad += owner == 1 ? 0U : 1U;
        CHECK(bad == 0);
        CHECK(real == elements);
        CHECK(p.padded_size() - elements < 64 * static_cast<std::size_t>(ranks));
      }
    }
  }
}
