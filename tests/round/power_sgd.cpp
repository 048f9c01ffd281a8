// SPDX-License-Identifier: Apache-2.0
// Matrices whose gradients travel as products of thin ones (PowerSGD, arXiv 1905.13727): against the algorithm, written down
// plainly in fp64, and against trainings in which they travel whole.
#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/low_rank_problem.hpp"

using namespace low_rank_problem;

TEST_CASE("on any number of ranks of unequal weight, late or not: the algorithm of the paper") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    for (story const& s : {story{}, story{.rank = 1}, story{.poisoned = 3}, story{.silent = ranks > 1 ? 3U : 99U},
                           story{.scaling = acco::loss_scaling{.initial = 64, .growth = 2, .interval = 2}}}) {
      CHECK(furthest(trained(acco::synchronous{.commit = of_rank(s.rank)}, ranks, s), expected(s, ranks)) < 1e-11);
    }
    CHECK(furthest(trained(acco::delayed{.commit = of_rank(2)}, ranks, {}), expected({}, ranks)) < 1e-11);
  }
}
TEST_CASE("two_phase commits both halves as one, whichever way its estimates travel; parameters may travel encoded") {
  const acco::fixed_pace halves{1, 1};
  CHECK(furthest(trained(acco::two_phase{.estimate = acco::block_int4{}, .commit = of_rank(2), .pace = halves}, 2, {}, 2),
                 expected({}, 2)) < 1e-11);
  const acco::coded<wire, acco::block_int8<>> both{of_rank(2), {}};
  CHECK(furthest(trained(acco::synchronous{.commit = both}, 2, {}), expected({}, 2)) < 1e-11);      // finish shows masters
  const acco::two_phase exact{.commit = wire{{.rank = 18, .min_compression = 0}}, .pace = halves};  // adds to the kept half
  CHECK(furthest(trained(exact, 3, {}, 2), trained(acco::synchronous{}, 3, {})) < 1e-11);
}
TEST_CASE("a rank of the smaller side or more is exact; so are the first exact_steps") {
  const wire whole{{.rank = 100, .min_compression = 0}};
  for (const int ranks : {1, 2, 3})
    CHECK(furthest(trained(acco::synchronous{.commit = whole}, ranks, {}), trained(acco::synchronous{}, ranks, {})) < 1e-11);
  const acco::synchronous late{.commit = wire{{.rank = 1, .exact_steps = 4}}};
  CHECK(trained(late, 2, {.steps = 4}) == trained(acco::synchronous{}, 2, {.steps = 4}));
  CHECK(furthest(trained(late, 2, {.steps = 5}), trained(acco::synchronous{}, 2, {.steps = 5})) > 1e-3);
}
