// SPDX-License-Identifier: Apache-2.0
#include <acco/collective/around/debug.hpp>

#include "conformance/backend.hpp"

namespace {
struct checked {
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) { function(acco::debug(world)); });
  }
};
}  // namespace

static_assert(acco::collective_backend<decltype(acco::debug(std::declval<acco::mock_backend>())), acco::host_queue>);

TEST_CASE("debug() changes nothing for ranks that agree") { conformance::backend_suite<checked>({1, 2, 3}); }

namespace {
/// A queue of another type, which needs memory of its own.
struct other_queue : acco::host_queue {};
}  // namespace
template <>
struct acco::call_check_memory<other_queue> {
  std::array<double, 100> large{};
  explicit call_check_memory(other_queue&) {}
  template <class Backend>
  void check(other_queue&, Backend&, acco::collective_call const&) {
    for (double& each : large) each += 1;
    checks = large.back();
  }
  static inline double checks = 0;
};

TEST_CASE("debug() serves queues of several types with one handle, in turn") {
  auto world = acco::debug(acco::solo_backend{});
  acco::host_queue host;
  other_queue other;
  const double one[1] = {1};
  double sum[1] = {};
  for (int k = 0; k < 3; ++k) {
    world.all_reduce(host, acco::partial<double const>(one), acco::replicated<double>(sum));
    host.wait();
    world.all_reduce(other, acco::partial<double const>(one), acco::replicated<double>(sum));
    other.wait();
  }
  CHECK(acco::call_check_memory<other_queue>::checks == 3);
  CHECK(sum[0] == 1);
}

TEST_CASE("debug() finds ranks that are about to call different things, before they do") {
  std::vector<std::string> what(3);
  CHECK_THROWS_AS(checked::run(3,
                               [&](auto world) {
                                 acco::host_queue queue;
                                 std::vector<float> in(6), out(2);
                                 if (world.rank() == 1) {
                                   world.broadcast(queue, acco::replicated<float>(in), 0);
                                 } else {
                                   world.reduce_scatter(queue, acco::partial<float const>(in), acco::sharded<float>(out));
                                 }
                                 try {
                                   queue.wait();
                                 } catch (acco::error const& e) {
                                   what[static_cast<std::size_t>(world.rank())] = e.what();
                                   throw;
                                 }
                               }),
                  acco::mismatch_error);
  CHECK(what[0].find("about to call reduce_scatter of 24 bytes") != std::string::npos);
  CHECK(what[1].find("about to call broadcast of 24 bytes") != std::string::npos);
}
