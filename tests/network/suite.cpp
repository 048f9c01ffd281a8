// SPDX-License-Identifier: Apache-2.0
// The tests of the core that make sense over a network, the same list for every backend: ACCO_WORLD names its world.
#include ACCO_WORLD

#include <cstddef>
#include <utility>
#include <vector>

#include <acco/collective/hierarchical.hpp>

#include "conformance/backend.hpp"
#include "conformance/split.hpp"

using this_world = worlds::under_test;
#include "conformance/cases.hpp"

TEST_CASE("collectives") { conformance::backend_suite<this_world>({1, 2, 3, 4}); }

TEST_CASE("split") { conformance::split_suite<this_world>(); }

TEST_CASE("results do not depend on the size of pieces, not by a bit, with and without clipping") {
  const std::size_t before = this_world::piece_bytes;
  for (const double clip : {0.0, 0.01}) {
    reference::setting s = conformance::setting(3, 7);
    s.clip_norm = clip;
    const acco::parameter_layout layout(20011);
    const auto run = [&](auto where) {
      return library::train<acco::host_storage<float>>(where, acco::two_phase{.pace = acco::fixed_pace{1}},
                                                       acco::adamw{.learning_rate = 0.01}, layout, s);
    };
    const auto expected = run(worlds::threads{});
    for (const std::size_t bytes : {8192U, 16384U, 1U << 20U}) {
      this_world::piece_bytes = bytes;
      const auto got = run(this_world{});
      CHECK(got.parameters == expected.parameters);
      CHECK(got.digests == expected.digests);
    }
  }
  this_world::piece_bytes = before;
}

TEST_CASE("two levels of this world: the bits of two levels of threads, exact, encoded between groups, with feedback") {
  static_assert(this_world::most_ranks >= 4);
  reference::setting s = conformance::setting(4, 7);
  s.clip_norm = 1;
  const auto compare = [&s](auto const& schedule) {
    const auto train = [&](auto const& world) {
      auto const levels = acco::hierarchical_world(world, 2, 30);
      acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, acco::host_storage<float>{}, levels, 3001};
      auto found = library::train_rank<float, float>(std::move(training), levels.rank(), s, [] {});
      return std::pair(levels.rank(), std::move(found));
    };
    std::vector<library::finding<float>> expected(4);
    worlds::threads::run(4, [&](auto const& world) {
      auto [rank, found] = train(world);
      expected[static_cast<std::size_t>(rank)] = std::move(found);
    });
    this_world::run(4, [&](auto const& world) {
      auto const [rank, found] = train(world);
      auto const& wanted = expected[static_cast<std::size_t>(rank)];
      CHECK(found.parameters == wanted.parameters);
      CHECK(found.digest == wanted.digest);
      REQUIRE(found.reports.size() > 2);
      CHECK(found.reports[2].bytes_sent == wanted.reports[2].bytes_sent);
      CHECK(found.reports[2].bytes_between == wanted.reports[2].bytes_between);
      CHECK(found.reports[2].bytes_between > 0);
      CHECK(found.reports[2].bytes_between < found.reports[2].bytes_sent);
    });
  };
  constexpr acco::fixed_pace pace{.first = 1};
  compare(acco::two_phase{.pace = pace});
  compare(acco::two_phase{
      .estimate = acco::block_int4{}, .commit = acco::coded<acco::block_gauss4, acco::block_gauss3>{}, .pace = pace});
  compare(acco::synchronous{.commit = acco::coded<acco::with_error_feedback<acco::block_gauss2>, acco::block_int4<>>{}});
}

TEST_CASE("memory() counts what the backend allocated for messages; the report says who moved them") {
  this_world::run(3, [](auto backend) {
    acco::optimizer training{acco::delayed{}, acco::adamw{}, acco::host_storage<float>{}, backend, 10};
    CHECK(training.memory().messages == 4 * 2 * this_world::piece_bytes);
    training.initialize(std::vector<float>(10, 1.0F));
    std::string who;
    for (int m = 0; m < 4; ++m) {
      if (auto const report = training.accumulated(1)) who = report->progress;
    }
    training.finish();
    CHECK(who == backend.progress_policy());
    CHECK(who.size() > 3);
  });
}

TEST_CASE("pieces longer than a message of the transport travel in parts, whole and in their order") {
  const std::size_t before = std::exchange(this_world::piece_bytes, std::size_t{1} << 20U);
  this_world::run(3, [](auto backend) {
    acco::host_queue queue;
    constexpr std::size_t slice = 70'003;  // 280 kB
    const auto rank = static_cast<std::size_t>(backend.rank());
    std::vector<float> mine(3 * slice), own(slice), all(3 * slice), root(3 * slice, -1.0F);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>((i % 4099) * (rank + 1));
    if (rank == 1) root = mine;
    backend.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(own));
    backend.all_gather(queue, acco::sharded<float const>(own), acco::replicated<float>(all));
    backend.broadcast(queue, acco::replicated<float>(root), 1);
    queue.wait();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto x = static_cast<float>(i % 4099);
      wrong += all[i] != 6 * x || root[i] != 2 * x ? 1 : 0;
    }
    CHECK(wrong == 0);
  });
  this_world::piece_bytes = before;
}
