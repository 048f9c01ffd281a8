// SPDX-License-Identifier: Apache-2.0
#include <ctime>

#include <acco/collective/threads.hpp>

#include "conformance/backend.hpp"

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
