// SPDX-License-Identifier: Apache-2.0
// The decorators over queues of device memory: they change nothing but what they are for.
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/collective/around/debug.hpp>
#include <acco/collective/around/rate_limited.hpp>
#include <acco/collective/around/traced.hpp>
#include <acco/cuda.hpp>

#include "conformance/backend.hpp"
#include "cuda/cuda_world.hpp"

namespace {

struct on_device {
  template <class T>
  using array = worlds::managed_array<T>;
  template <class Backend>
  static acco::cuda_queue queue(Backend const& /*world*/) {
    return acco::cuda_queue(nullptr, {}, 0, acco::cuda_issue::thread);
  }
};
struct checked : on_device {
  using backend = decltype(acco::debug(std::declval<acco::threads_backend>()));
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) { function(acco::debug(world)); });
  }
};
struct recorded : on_device {
  using backend = decltype(acco::traced(std::declval<acco::threads_backend>(), std::declval<acco::trace&>()));
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::trace trace(8192);
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) { function(acco::traced(world, trace)); });
    CHECK(trace.size() > 0);
  }
};
struct slow : on_device {
  using backend = decltype(acco::rate_limited(std::declval<acco::threads_backend>(), {}));
  template <class Function>
  static void run(int ranks, Function&& function) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      function(acco::rate_limited(world, {.bytes_per_second = 1e9, .latency = 1e-4}));
    });
  }
};

/// The bits after a training on two ranks over decorate(world).
template <class Decorate>
std::uint64_t digest_of(Decorate decorate) {
  std::uint64_t digest = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{1}},
                             acco::adamw{},
                             worlds::managed_storage<float>{},
                             decorate(world),
                             3001,
                             acco::options{.clip_norm = 1.0, .bucket_elements = 500}};
    training.initialize(std::vector<float>(3001, 1.0F));
    for (int m = 0; m < 9; ++m) {
      worlds::managed_storage<float>::settle();
      for (std::size_t i = 0; i < 3001; ++i) training.gradients()[i] += training.parameters()[i] * static_cast<float>(i % 7);
      training.accumulated(1);
    }
    training.finish();
    const std::uint64_t mine = training.state_digest();
    if (world.rank() == 0) digest = mine;
  });
  return digest;
}

}  // namespace

TEST_CASE("decorated collectives over device memory conform") {
  if constexpr (everything) {
    conformance::backend_suite<checked>({1, 3});
    conformance::backend_suite<recorded>({1, 3});
    conformance::backend_suite<slow>({1, 2});
  } else {  // decorators pass types on
    for (const int ranks : {1, 3}) {
      conformance::collectives<checked, float, double>(ranks);
      conformance::collectives<recorded, acco::bfloat16, float>(ranks);
      conformance::collectives<slow, float, float>(ranks);
    }
  }
}

TEST_CASE("a decorated training gives the bits of an undecorated one, stacked too") {
  const std::uint64_t plain = digest_of([](auto world) { return world; });
  acco::trace trace;
  const acco::link_model link{.bytes_per_second = 1e8};
  if constexpr (everything) {  // what is wrong of one alone is wrong of all three, below
    CHECK(digest_of([](auto world) { return acco::debug(world); }) == plain);
    CHECK(digest_of([&](auto world) { return acco::rate_limited(world, link); }) == plain);
  }
  CHECK(digest_of([&](auto world) { return acco::traced(world, trace); }) == plain);
  CHECK(digest_of([&](auto world) { return acco::debug(acco::traced(acco::rate_limited(world, link), trace)); }) == plain);
  CHECK(trace.size() > 100);
  CHECK(trace.dropped() == 0);
}

TEST_CASE("debug() on a device finds ranks that are about to call different things, before they do") {
  std::vector<std::string> what(3);
  CHECK_THROWS_AS(checked::run(3,
                               [&](auto world) {
                                 acco::cuda_queue queue = on_device::queue(world);
                                 worlds::managed_array<float> in(6, 1.0F), out(6, 2.0F);
                                 if (world.rank() == 1) {
                                   world.broadcast(queue, acco::replicated<float>(in), 0);
                                 } else {
                                   world.reduce_scatter(queue, acco::partial<float const>(in),
                                                        acco::sharded<float>(std::span<float>(out).first(2)));
                                 }
                                 try {
                                   queue.wait();
                                 } catch (acco::error const& e) {
                                   what[static_cast<std::size_t>(world.rank())] = e.what();
                                   CHECK(out[0] == 2.0F);
                                   throw;
                                 }
                               }),
                  acco::mismatch_error);
  CHECK(what[0].find("about to call reduce_scatter of 24 bytes") != std::string::npos);
  CHECK(what[1].find("about to call broadcast of 24 bytes") != std::string::npos);
}

TEST_CASE("traced() on a device records when a collective ran, in its round") {
  acco::trace trace;
  std::vector<acco::round_report> reports;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, worlds::managed_storage<float>{},
                             acco::traced(world, trace), 10};
    training.initialize(std::vector<float>(10, 1.0F));
    for (int m = 0; m < 6; ++m) {
      const auto report = training.accumulated(1);
      if (report && world.rank() == 0) reports.push_back(*report);
    }
    training.finish();
  });
  std::ostringstream out;
  trace.write(out);
  const std::string json = out.str();
  for (char const* const name : {"reduce_scatter", "all_gather", "all_reduce"}) {
    for (int rank = 0; rank < 2; ++rank) {
      for (int round = 0; round < 6; ++round) {
        std::size_t found = 0;
        const std::string event = std::string(R"("name":")") + name + R"(","cat":"collectives","pid":)" + std::to_string(rank),
                          place = R"("args":{"round":)" + std::to_string(round) + "}";
        for (std::size_t at = json.find(event); at != std::string::npos; at = json.find(event, at + 1))
          found += json.substr(at, json.find('\n', at) - at).find(place) != std::string::npos ? 1U : 0U;
        CHECK(found >= 1);
      }
    }
  }
}

TEST_CASE("rate_limited() on a device stretches each collective") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto limited = acco::rate_limited(world, {.bytes_per_second = 1e15, .latency = 0.02});
    acco::cuda_queue queue = on_device::queue(limited);
    worlds::managed_array<double> in(1, 1.0), out(1);
    double begin = 0, end = 0;
    queue.stamp([&begin](double now) { begin = now; });
    for (int k = 0; k < 3; ++k) limited.all_reduce(queue, acco::partial<double const>(in), acco::replicated<double>(out));
    queue.stamp([&end](double now) { end = now; });
    queue.wait();
    CHECK(out[0] == 2.0);
    CHECK(end - begin >= 0.059);
  });
}
