// SPDX-License-Identifier: Apache-2.0
// Over replicas every rank has the whole state and makes every update: the same training as where it is sharded, bit by bit, and
// other bytes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/collective/replicas.hpp>

#include "support/problem.hpp"

namespace {

constexpr std::size_t count = 6 * 1024;  // shares of one, two, three ranks are whole blocks
using momentum = acco::with_error_feedback<acco::block_dct_top<16>>;
using of_senders = acco::with_error_feedback<acco::block_dct_top<16, acco::mean_over::senders>>;

float gradient(int rank, std::size_t step, std::size_t i, float at) {
  return static_cast<float>(problem::unit(i * 31 + step * 7 + static_cast<std::size_t>(rank)) - 0.4) + 0.2F * at +
         std::cos(0.03F * static_cast<float>(i));
}

struct outcome {
  std::vector<float> parameters;
  std::uint64_t digest = 0, bytes = 0;
  std::vector<double> norms = {};
  std::size_t masters = 0;
};

/// Rank r brings r + 1 samples. `over(world)` is what the optimizer is given.
template <class Schedule, class Over>
outcome trained(int ranks, Schedule const& schedule, Over&& over, std::size_t calls = 7) {
  outcome found;
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(ranks));
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule,
                             acco::signum{.learning_rate = 0.01, .momentum = 0, .weight_decay = 0.1},
                             acco::host_storage<float>{},
                             over(world),
                             count,
                             acco::options{.compare_every = 1}};
    training.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t call = 0; call < calls; ++call) {
      for (std::size_t i = 0; i < count; ++i)
        training.gradients()[i] += gradient(world.rank(), call, i, training.parameters()[i]);
      if (auto report = training.accumulated(world.rank() + 1); report && world.rank() == 0) {
        found.bytes = report->bytes_sent;
        found.norms.push_back(report->gradient_norm);
      }
    }
    training.finish();
    digests[static_cast<std::size_t>(world.rank())] = training.world_digest();
    if (world.rank() != 0) return;
    found.parameters.assign(training.parameters().begin(), training.parameters().end());
    found.masters = training.memory().masters;
  });
  found.digest = digests[0];
  CHECK(std::count(digests.begin(), digests.end(), digests[0]) == ranks);
  return found;
}
const auto sharded = [](acco::threads_backend const& world) { return world; };
const auto replicated = [](acco::threads_backend const& world) { return acco::replicas(world); };

template <class Schedule>
void compare(Schedule const& schedule) {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const outcome one = trained(ranks, schedule, sharded), other = trained(ranks, schedule, replicated);
    CHECK(one.parameters == other.parameters);
    CHECK(one.digest == other.digest);  // masters and slots, too
    REQUIRE(one.norms.size() == other.norms.size());
    for (std::size_t k = 0; k < one.norms.size(); ++k) CHECK(other.norms[k] == doctest::Approx(one.norms[k]).epsilon(1e-12));
    CHECK(one.parameters != std::vector<float>(count, 1.0F));
    CHECK(other.masters >= count * sizeof(float));
    CHECK(one.masters <= count * sizeof(float) / static_cast<std::size_t>(ranks) + 1024);
  }
}

}  // namespace

TEST_CASE("the training over replicas is the sharded one, bit by bit") {
  compare(acco::synchronous{.commit = acco::coded<momentum, acco::full>{{{}, 0.99F}, {}}});
  compare(acco::synchronous{.commit = acco::coded<of_senders, acco::full>{{{}, 0.99F}, {}}});
  compare(acco::delayed{.commit = acco::coded<momentum, acco::full>{{{}, 0.99F}, {}}});
  compare(acco::two_phase{.estimate = acco::coded<acco::block_int4<>, acco::full>{},
                          .commit = acco::coded<momentum, acco::full>{{{}, 0.99F}, {}},
                          .pace = acco::fixed_pace{.first = 1, .second = 1}});
  compare(acco::synchronous{});  // gradients in full
}

TEST_CASE("over replicas a rank sends its codes to all others, and nothing else that grows with the parameters") {
  const acco::synchronous published{.commit = acco::coded<momentum, acco::full>{{{}, 0.99F}, {}}};
  constexpr std::uint64_t codes = count / 256 * acco::block_dct_top<16>::block_bytes;
  for (const int ranks : {1, 2, 3}) {
    const auto others = static_cast<std::uint64_t>(ranks - 1);
    const std::uint64_t sent = trained(ranks, published, replicated).bytes;
    CHECK(sent >= others * codes);
    CHECK(sent <= others * (codes + 50 * sizeof(double)));  // sums of a few numbers
  }
}

TEST_CASE("a replica that has other parameters is found") {
  CHECK_THROWS_WITH_AS(acco::threads_backend::run(3,
                                                  [](acco::threads_backend const& world) {
                                                    acco::optimizer training{
                                                        acco::synchronous{.commit = acco::coded<momentum, acco::full>{}},
                                                        acco::signum{.momentum = 0},
                                                        acco::host_storage<float>{},
                                                        acco::replicas(world),
                                                        count,
                                                        acco::options{.compare_every = 1}};
                                                    training.initialize(std::vector<float>(count, 1.0F));
                                                    for (std::size_t step = 0; step < 4; ++step) {
                                                      if (step == 1 && world.rank() == 1)
                                                        const_cast<float&>(training.parameters()[5]) += 1;
                                                      training.gradients()[3] = 1;
                                                      training.accumulated(1);
                                                    }
                                                  }),
                       doctest::Contains("rank 1"), acco::corruption_error);
}

TEST_CASE("replicas and owners of shares do not train together") {
  const auto train = [](auto const& world) {
    acco::optimizer training{acco::synchronous{.commit = acco::coded<momentum, acco::full>{}}, acco::signum{.momentum = 0},
                             acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
  };
  CHECK_THROWS_WITH_AS(
      acco::threads_backend::run(
          2, [&](acco::threads_backend const& world) { world.rank() == 0 ? train(world) : train(acco::replicas(world)); }),
      doctest::Contains("owners of the state"), acco::mismatch_error);
}

TEST_CASE("replicas go back to a snapshot") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer training{acco::synchronous{.commit = acco::coded<momentum, acco::full>{}},
                             acco::signum{.learning_rate = 0.01, .momentum = 0},
                             acco::host_storage<float>{},
                             acco::replicas(world),
                             count,
                             acco::options{.snapshots = 3, .snapshot_every = 1}};
    training.initialize(std::vector<float>(count, 1.0F));
    std::vector<std::vector<float>> after;
    const auto step = [&](std::size_t k) {
      for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += gradient(world.rank(), k, i, training.parameters()[i]);
      training.accumulated(1);
      after.emplace_back(training.parameters().begin(), training.parameters().end());
    };
    for (std::size_t k = 0; k < 4; ++k) step(k);
    const auto found = training.rewind(1);
    CHECK(std::equal(after[2].begin(), after[2].end(), training.parameters().begin()));
    CHECK(found.step == 3);
    step(3);
    CHECK(after[4] == after[3]);
  });
}
