// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <limits>

#include <acco/collective/around/rate_limited.hpp>

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

TEST_CASE("a link without a rate is refused") {
  const auto refused = [](acco::link_model link, char const* what) {
    CHECK_THROWS_WITH_AS((void)acco::rate_limited(acco::solo_backend{}, link), doctest::Contains(what), acco::usage_error);
  };
  refused({.latency = 0.001}, "rank 0: link_model::bytes_per_second is 0. Give a finite number above 0");
  refused({.bytes_per_second = -1}, "link_model::bytes_per_second is -1");
  refused({.bytes_per_second = std::numeric_limits<double>::quiet_NaN()}, "link_model::bytes_per_second is nan");
  refused({.bytes_per_second = 1, .latency = -1}, "link_model::latency is -1");
  refused({.bytes_per_second = 1, .latency = std::numeric_limits<double>::infinity()}, "link_model::latency is inf");
}

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
