// SPDX-License-Identifier: Apache-2.0
#include <ctime>
#include <fstream>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <acco/collective/threads.hpp>

#include "conformance/backend.hpp"
#include "support/counting.hpp"

TEST_CASE("threads_backend conforms") { conformance::backend_suite<worlds::threads>(); }

TEST_CASE("floating-point sums are those of rank order, every time") {
  constexpr std::size_t count = 5000;
  acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
    acco::host_queue queue;
    std::vector<float> mine(4 * count), out(count);
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] = static_cast<float>(problem::unit(i * 11 + static_cast<std::uint64_t>(world.rank())) * 1e3);
    for (int repeat = 0; repeat < 10; ++repeat) {
      world.reduce_scatter(queue, acco::partial<float const>(mine), acco::sharded<float>(out));
      queue.wait();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = static_cast<std::size_t>(world.rank()) * count + i;
        const auto of = [&](std::uint64_t r) { return static_cast<float>(problem::unit(at * 11 + r) * 1e3); };
        wrong += out[i] == ((of(0) + of(1)) + of(2)) + of(3) ? 0U : 1U;
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("a rank that waits sleeps: it uses no processor time") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::host_queue queue;
    double in[1] = {1}, out[1];
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::clock_t before = std::clock();  // of the whole process, both ranks and both queues
    world.all_reduce(queue, acco::partial<double const>(in), acco::replicated<double>(out));
    queue.wait();
    if (world.rank() == 0) CHECK(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC < 0.15);
  });
}

TEST_CASE("a thread that cannot be started ends the ranks that were") {
#if defined(ACCO_SANITIZED) || !defined(__GLIBC__)
  MESSAGE("skipped: the address space is filled with stacks, which sanitizers do not bear");
#else
  pthread_attr_t before, huge;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_attr_init(&huge) == 0);
  constexpr std::size_t stack = std::size_t{1} << 30U;  // of which the limit below has room for a few
  REQUIRE(pthread_attr_setstacksize(&huge, stack) == 0);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  REQUIRE(pages != 0);
  rlimit room;
  REQUIRE(getrlimit(RLIMIT_AS, &room) == 0);
  const rlimit little{pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + 5 * stack, room.rlim_max};
  constexpr int ranks = 16;
  std::vector<std::string> heard(ranks);
  REQUIRE(pthread_setattr_default_np(&huge) == 0);
  REQUIRE(setrlimit(RLIMIT_AS, &little) == 0);
  std::string what;
  int rank = -1;
  try {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      // meanwhile the room is used up; a queue needs threads, too
      std::this_thread::sleep_for(std::chrono::seconds(1));
      setrlimit(RLIMIT_AS, &room);
      pthread_setattr_default_np(&before);
      try {
        (void)world.split(0, 0, 60);
      } catch (acco::error const& e) {
        heard[static_cast<std::size_t>(world.rank())] = e.what();
        throw;
      }
    });
  } catch (acco::usage_error const& e) {
    what = e.what();
    rank = e.rank();
  }
  CHECK(what.find("its thread cannot be started: ") != std::string::npos);
  CHECK(what.find("Use fewer ranks") != std::string::npos);
  REQUIRE(rank > 0);
  for (int r = 0; r < rank; ++r)
    CHECK(heard[static_cast<std::size_t>(r)].find("its thread cannot be started") != std::string::npos);
#endif
}

TEST_CASE("ranks that call different things are told so") {
  std::vector<std::string> what(2);
  CHECK_THROWS_AS(acco::threads_backend::run(2,
                                             [&](acco::threads_backend const& world) {
                                               acco::host_queue queue;
                                               std::vector<float> in(8), out(4);
                                               if (world.rank() == 0)
                                                 world.reduce_scatter(queue, acco::partial<float const>(in),
                                                                      acco::sharded<float>(out));
                                               if (world.rank() == 1) world.broadcast(queue, acco::replicated<float>(in), 0);
                                               try {
                                                 queue.wait();
                                               } catch (acco::error const& e) {
                                                 what[static_cast<std::size_t>(world.rank())] = e.what();
                                                 throw;
                                               }
                                             }),
                  acco::mismatch_error);
  CHECK(what[0].find("this rank calls reduce_scatter of 8 elements of 4 bytes, rank 1 calls broadcast") != std::string::npos);
  CHECK(what[1].find("this rank calls broadcast of 8 elements of 4 bytes, rank 0 calls reduce_scatter") != std::string::npos);
}

TEST_CASE("a rank that returns while others wait: both hear that it has left in peace, and not of an error of its own") {
  std::vector<std::string> what(2);
  CHECK_THROWS_AS(acco::threads_backend::run(3,
                                             [&](acco::threads_backend const& world) {
                                               if (world.rank() == 2) return;
                                               acco::host_queue queue;
                                               double in[1] = {1}, out[1];
                                               world.all_reduce(queue, acco::partial<double const>(in),
                                                                acco::replicated<double>(out));
                                               try {
                                                 queue.wait();
                                               } catch (acco::error const& e) {
                                                 what[static_cast<std::size_t>(world.rank())] = e.what();
                                                 throw;
                                               }
                                             }),
                  acco::peer_error);
  for (std::string const& each : what)
    CHECK(each.find("rank 2 has returned and will not come to this all_reduce") != std::string::npos);
}

TEST_CASE("a world needs a rank") { CHECK_THROWS_AS((void)acco::threads_backend::world(0), acco::usage_error); }

TEST_CASE("programs that start their own threads use world()") {
  const auto handles = acco::threads_backend::world(3);
  std::vector<double> sums(3);
  {
    std::vector<std::jthread> threads;
    for (auto const& handle : handles) {
      threads.emplace_back([&, handle] {
        acco::host_queue queue;
        double in[1] = {handle.rank() + 1.0}, out[1];
        handle.all_reduce(queue, acco::partial<double const>(in), acco::replicated<double>(out));
        queue.wait();
        sums[static_cast<std::size_t>(handle.rank())] = out[0];
      });
    }
  }
  CHECK(sums == std::vector<double>{6, 6, 6});
}

TEST_CASE("a world does not grow with the channels that were opened over it") {
  const auto handles = acco::threads_backend::world(3);
  const auto opened_and_left = [&](int times) {
    for (int k = 0; k < times; ++k) {
      for (auto const& each : handles) (void)each.duplicate();  // one after another: the later ones still find theirs
    }
    return counting::living();
  };
  const std::size_t few = opened_and_left(100);
  CHECK(opened_and_left(3900) == few);
  std::vector<acco::threads_backend> ahead(100, handles[0]), behind = ahead;
  // before anybody else; they are kept until the others have come
  for (auto& each : ahead) each = handles[0].duplicate();
  for (auto& each : behind) each = handles[1].duplicate();
  for (int k = 0; k < 100; ++k) (void)handles[2].duplicate();
  ahead[7].abort("of a kept channel");
  acco::host_queue queue;
  double in[1] = {1}, out[1];
  behind[7].all_reduce(queue, acco::partial<double const>(in), acco::replicated<double>(out));
  CHECK_THROWS_WITH_AS(queue.wait(), doctest::Contains("of a kept channel"), acco::peer_error);
}
