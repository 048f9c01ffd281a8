// SPDX-License-Identifier: Apache-2.0
#include "conformance/split.hpp"

#include <chrono>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace {
template <class World>
struct up_to_six : World {
  static constexpr int most_ranks = 6;
};
using conformance::contains;
using conformance::error_of;
}  // namespace

TEST_CASE_TEMPLATE("split", World, worlds::threads, worlds::mock_at_once, worlds::mock_late, worlds::mock_random,
                   worlds::decorated) {
  conformance::split_suite<up_to_six<World>>();
}

TEST_CASE("equal keys leave ranks in their order, however many there are") {
  acco::mock_backend::run(50, [](acco::mock_backend const& world) {
    auto part = world.split(0, -(world.rank() % 2));
    CHECK(part.rank() == (world.rank() % 2 == 1 ? world.rank() / 2 : 25 + world.rank() / 2));
    auto of_odd = part.split(part.rank() < 25 ? 1 : 0).split(0, -world.rank());
    CHECK(of_odd.size() == 25);
    CHECK(&of_odd.counters() == &world.counters());  // of this rank
    CHECK(of_odd.counters().calls_of(acco::collective::all_gather) == 3);
  });
}

TEST_CASE("who has left before a part was made has left it too") {
  const auto all = std::make_shared<acco::threads_world>(3);
  const auto one = std::make_shared<acco::meeting_point>(3), another = std::make_shared<acco::meeting_point>(3);
  all->fail(2, "bad luck");
  all->leave(0);
  const auto part = all->part(one, {1, 2}), other = all->part(one, {1, 0}), beside = all->part(another, {1, 2});
  CHECK(beside != part);
  CHECK(all->part(one, {1, 2}) == part);
  CHECK(all->part(another, {1, 2}) == beside);
  CHECK(all->part(one, {1, 2}) != part);  // both have taken it
  (void)all->part(one, {1, 0});
  const auto wait = [](std::shared_ptr<acco::meeting_point> const& point) {
    point->arrive(0, {acco::collective::all_gather, 1, 1, 0, nullptr}, {}, 20);
  };
  CHECK(contains(error_of([&] { wait(part->open(0)); }), "rank 1 failed: bad luck"));
  CHECK(contains(error_of([&] { wait(other->open(0)); }), "rank 1 has returned"));
}

TEST_CASE("one rank alone") {
  acco::solo_backend world;
  CHECK(world.split(3).size() == 1);
  CHECK_THROWS_AS((void)world.split(-1), acco::usage_error);
}

TEST_CASE_TEMPLATE("who ends its thread has left every part", World, worlds::threads, worlds::mock_at_once) {
  std::string said[3];
  const std::string all = error_of([&] {
    World::run(3, [&](auto world) {
      auto part = world.split(world.rank() == 0 ? 0 : 1, 0, 20);
      if (world.rank() == 2) throw std::runtime_error("bad luck");
      auto& mine = said[static_cast<std::size_t>(world.rank())];
      mine = error_of([&] { (void)conformance::numbers<World>(part, 1); });
    });
  });
  CHECK(all == "bad luck");
  CHECK(said[0] == "");
  CHECK(contains(said[1], "rank 1 failed: bad luck"));
}

TEST_CASE("two handles are split at the same time, each by a thread of its own: the worlds do not mix") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    const acco::threads_backend handles[2] = {world.duplicate(), world.duplicate()};
    std::size_t wrong[2] = {};
    {
      std::vector<std::jthread> threads;
      for (const int k : {0, 1}) {
        threads.emplace_back([&wrong, k, handle = handles[k]] {
          for (int times = 0; times < 60; ++times) {
            auto part = handle.split(0, 0, 20);
            wrong[k] += conformance::numbers<worlds::threads>(part, k) == std::vector<int>(2, k) ? 0U : 1U;
          }
        });
      }
    }
    CHECK(wrong[0] + wrong[1] == 0);
  });
}

TEST_CASE("a world split off a split-off one hears who has ended, also when nobody holds the one between") {
  std::string said;
  const std::string all = error_of([&] {
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      auto inner = world.split(0, 0, 20).split(world.rank() == 2 ? 1 : 0, 0, 20);
      if (world.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the one between is gone by now
        throw std::runtime_error("no data file");
      }
      if (world.rank() == 0) said = error_of([&] { (void)conformance::numbers<worlds::threads>(inner, 1); });
    });
  });
  CHECK(all == "no data file");
  CHECK(contains(said, "rank 1 failed: no data file"));
}

TEST_CASE("collectives of a split-off world are traced in the row of the rank outside") {
  acco::trace trace;
  acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
    auto part = acco::traced(world, trace).split(world.rank() / 2);
    (void)conformance::numbers<worlds::threads>(part, 1);
  });
  std::ostringstream out;
  trace.write(out);
  for (char const* row : {"rank 0", "rank 1", "rank 2", "rank 3"}) CHECK(contains(out.str(), row));
}

TEST_CASE("a rank that does not come to split") {
  std::string said[3];
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    if (world.rank() == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(400));
    said[world.rank()] = error_of([&] { (void)world.split(0, 0, 0.1); });
  });
  CHECK((said[0] + said[2]).find("rank 1 did not come to all_gather within 0.1 s") != std::string::npos);
  CHECK(contains(said[0], "split"));
}
