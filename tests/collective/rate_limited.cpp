// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <acco/collective/rate_limited.hpp>

#include "conformance/backend.hpp"

namespace {
struct slow {
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(
        ranks, [&](acco::threads_backend const& world) { function(acco::rate_limited(world, {.bytes_per_second = 1e9})); });
  }
};
}  // namespace

static_assert(acco::link_model{.bytes_per_second = 100, .latency = 0.5}.seconds(acco::collective::all_gather, 4, 400) == 3.5);

TEST_CASE("rate_limited() changes nothing but the time") { conformance::backend_suite<slow>({1, 2, 3}); }

TEST_CASE("a collective lasts at least as long as the link would need, and one rank alone never waits") {
  using clock = std::chrono::steady_clock;
  const auto seconds = [](int ranks) {
    const auto began = clock::now();
    acco::threads_backend::run(ranks, [](acco::threads_backend const& world) {
      auto link = acco::rate_limited(world, {.bytes_per_second = 8000});
      acco::host_queue queue;
      std::vector<float> whole(400);  // two ranks: half of 1600 bytes at 8000 B/s is 0.1 s
      const std::size_t slice = 400 / static_cast<std::size_t>(world.size());
      link.all_gather(queue,
                      acco::sharded<float const>(
                          std::span<float const>(whole).subspan(slice * static_cast<std::size_t>(world.rank()), slice)),
                      acco::replicated<float>(whole));
      queue.wait();
    });
    return std::chrono::duration<double>(clock::now() - began).count();
  };
  CHECK(seconds(2) >= 0.1);
  const auto alone = std::min({seconds(1), seconds(1), seconds(1)});
  CHECK(alone < 0.1);
}
