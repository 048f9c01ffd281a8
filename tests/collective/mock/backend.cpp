// SPDX-License-Identifier: Apache-2.0
#include "conformance/backend.hpp"

#include <cmath>

#include <acco/collective/mock/backend.hpp>

TEST_CASE_TEMPLATE("mock_backend conforms, whenever transfers complete", World, worlds::mock_at_once, worlds::mock_late,
                   worlds::mock_random) {
  conformance::backend_suite<World>();
}

TEST_CASE("a world without ranks is refused") {
  for (const int ranks : {0, -1}) {
    CHECK_THROWS_WITH_AS(acco::mock_world{ranks}, doctest::Contains("Use at least one rank"), acco::usage_error);
  }
}

TEST_CASE("ranks take turns in an order that never changes") {
  const auto order = [] {
    std::vector<int> turns;
    acco::mock_world(3, {.delay = acco::complete_at_random{.seed = 3}}).run([&](acco::mock_backend const& world) {
      acco::optimizer training{acco::delayed{.pace = acco::elastic_pace{.at_least = 1, .at_most = 6}}, acco::sgd{},
                               acco::host_storage<float>{}, world, 4};
      training.initialize(std::vector<float>(4, 1.0F));
      for (int m = 0; m < 20; ++m) {
        turns.push_back(world.rank());  // no lock: one rank runs at a time, which the thread sanitizer confirms
        training.accumulated(1);
      }
      training.finish();
    });
    return turns;
  };
  const auto first = order();
  CHECK(first.size() == 60);
  for (int repeat = 0; repeat < 5; ++repeat) CHECK(order() == first);
}

TEST_CASE("buffers in flight are poisoned, and whole again when the transfer is done") {
  acco::mock_world world(1, {.delay = [](acco::mock_event const&) { return std::size_t{2}; }});
  world.run([](acco::mock_backend const& rank) {
    acco::host_queue queue(rank.driver());
    std::vector<float> in(4, 1.5F), out(4, 0.0F);
    rank.reduce_scatter(queue, acco::partial<float const>(in), acco::sharded<float>(out));
    queue.poll();
    for (const float x : in) CHECK(std::isnan(x));
    for (const float x : out) CHECK(std::isnan(x));
    queue.poll();
    CHECK_FALSE(queue.idle());
    queue.poll();
    CHECK(queue.idle());
    CHECK(in == std::vector<float>(4, 1.5F));
    CHECK(out == std::vector<float>(4, 1.5F));
    CHECK(rank.counters().calls_of(acco::collective::reduce_scatter) == 1);
  });
}

TEST_CASE("elastic pace accumulates for as long as the script holds the transfer back") {
  acco::mock_world world(2, {.delay = [](acco::mock_event const& e) {
                           return std::size_t{e.operation == acco::collective::all_gather && e.rank == 1 ? 5U : 0U};
                         }});
  world.run([](acco::mock_backend const& rank) {
    acco::optimizer training{acco::delayed{.pace = acco::elastic_pace{.at_least = 1, .at_most = 30}},
                             acco::sgd{},
                             acco::host_storage<float>{},
                             rank,
                             4,
                             acco::options{.check_habits = acco::habit_checks::off}};
    training.initialize(std::vector<float>(4, 1.0F));
    std::size_t most = 0;
    for (int m = 0; m < 60; ++m) {
      if (auto const report = training.accumulated(1)) most = std::max(most, report->micro_batches);
    }
    training.finish();
    CHECK((most >= 5 && most <= 10));
    CHECK(training.samples() == 120);
  });
}

TEST_CASE("a world needs a rank") { CHECK_THROWS_AS(acco::mock_world(0), acco::usage_error); }
