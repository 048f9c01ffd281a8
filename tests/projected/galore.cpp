// SPDX-License-Identifier: Apache-2.0
// galore against the published algorithm, synchronously and under two_phase, on one rank and on several.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/galore.hpp>

#include "projected/beside_published.hpp"

namespace {

using namespace beside_published;

struct host {
  using storage = acco::host_storage<double>;
  using array = std::vector<double>;
  static void settle() {}
};

}  // namespace

TEST_CASE("galore is the published algorithm, on one rank and on four, with decay and without, after every round") {
  for (const int ranks : {1, 4}) {
    for (const double decay : {0.0, 2.0}) compare<host>({.ranks = ranks, .decay = decay});
  }
}

TEST_CASE("under two_phase estimates and commits are those of the published update, in the bases of a step's first half") {
  for (const int ranks : {1, 4}) {
    for (const double decay : {0.0, 2.0}) compare<host>({.halves = true, .ranks = ranks, .decay = decay});
  }
}

TEST_CASE("in many buckets, and in tensors of the trainer's own, it is the same") {
  compare<host>({.ranks = 4, .decay = 2, .bucket_elements = 64});
  compare<host>({.halves = true, .ranks = 2, .decay = 2, .bucket_elements = 64, .adopts = true});
}

TEST_CASE("of gradients of no more directions than a basis has, one iteration finds the singular vectors, and two do") {
  for (const unsigned iterations : {1U, 2U}) compare<host>({.ranks = 4, .thin = true, .iterations = iterations});
}

TEST_CASE("a gradient that is not finite leaves matrices and bases as they are, also where bases were due") {
  compare<host>({.ranks = 2,
                 .broken = {0, 5, 6}});  // due at the first step, and at the fifth, whose first two tries are micro-batches 5, 6
}

TEST_CASE("a vector, and a matrix too small, are trained as by the ordinary optimizer, in every bit") {
  const plan p{.ranks = 2, .decay = 0.3};
  auto const galore = train<host>(p);
  auto const layout = layout_of();
  acco::threads_backend::run(p.ranks, [&](acco::threads_backend const& world) {
    acco::options chosen = options_of(p);
    chosen.check_habits = acco::habit_checks::off;  // the other tensors have no gradients
    acco::any_optimizer<double> plain =
        acco::optimizer{either{}, rule_of(p), acco::host_storage<double>{}, world, layout_of(), chosen};
    plain.initialize(start());
    for (std::size_t t = 0; t < p.steps; ++t) {
      for (std::size_t k = 2; k < 4; ++k) {
        auto const [at, to] = plain.tensor(layout[k].name);
        matrix w(shapes[k].rows, shapes[k].columns);
        w.values.assign(at.begin(), at.end());
        matrix const g = mean_gradient(t, k, w);
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += g.values[i] + noise(t, k, i, world.rank(), p.ranks);
      }
      REQUIRE(plain.accumulated(1));
      for (std::size_t i = layout[2].offset; i < layout[4].offset; ++i)
        CHECK(plain.parameters()[i] == galore[static_cast<std::size_t>(world.rank())][t][i]);
    }
    plain.finish();
  });
}

TEST_CASE("reports tell of new bases, and of bytes: those of the small matrices, and of thin ones where bases are new") {
  const plan p{.ranks = 4};
  std::vector<acco::round_report> reports;
  (void)train<host>(p, &reports);
  REQUIRE(reports.size() == p.steps);
  // z: 2 x 9, 2 x 15, 2 x 9; as they are 7, 16: a rank's share has 64 numbers, and so has its part of a sum of thin matrices
  const std::uint64_t numbers = 89, share = 64;
  static_assert(numbers <= 4 * share);
  const std::uint64_t part = share * 3 * 8;              // of a reduce-scatter or an all-gather
  const std::uint64_t of_round = reports[1].bytes_sent;  // and some numbers about the round
  CHECK(of_round >= 2 * part);
  CHECK(of_round < 2 * part + 1000);
  std::size_t refreshes = 0;
  for (std::size_t step = 0; step < reports.size(); ++step) {
    CAPTURE(step);
    auto const& report = reports[step];
    REQUIRE(report.bases.has_value() == (step % p.every == 0));
    if (!report.bases) {
      CHECK(report.bytes_sent == of_round);
      continue;
    }
    CHECK(report.bases->refresh == refreshes++);
    // forty iterations of two sums; where coordinates have moved, masters that are gathered, and zeros that are shown
    CHECK(report.bases->bytes_sent == 80 * 2 * part + (step == 0 ? 0 : 2 * part));
    CHECK(report.bytes_sent == of_round + report.bases->bytes_sent);
    CHECK(report.bases->overlap >= 0);
    CHECK(report.bases->overlap <= 1 + 1e-12);
    CHECK(report.bases->seconds >= 0);
  }
}
