// SPDX-License-Identifier: Apache-2.0
// What `split` must do, on every backend that has it: the right ranks in the right order, apart from each other and
// from the world.
#pragma once

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/worlds.hpp"

namespace conformance {

/// Every rank's number, in the order of ranks.
template <class World, class Backend>
std::vector<int> numbers(Backend& backend, int mine) {
  auto queue = worlds::queue_of<World>(backend);
  std::vector<int> all(static_cast<std::size_t>(backend.size()), -1);
  backend.all_gather(queue, acco::sharded<int const>(std::span<int const>(&mine, 1)), acco::replicated<int>(all));
  queue.wait();
  return all;
}

/// Trains some numbers, whose gradients tell ranks and `kind` apart.
template <class Backend>
auto trainer(Backend const& backend, std::size_t count) {
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{.learning_rate = 0.01},
                           acco::host_storage<float>{}, backend, count};
  training.initialize(std::vector<float>(count, 1.0F));
  return training;
}
template <class Training>
void micro_batch(Training& training, int rank, int kind, int m) {
  const auto x = training.parameters();
  auto g = training.gradients();
  for (std::size_t i = 0; i < g.size(); ++i)
    g[i] +=
        x[i] * static_cast<float>(kind + 1) + static_cast<float>((rank + 2) * static_cast<int>(i % 7)) - static_cast<float>(m);
  training.accumulated(1 + rank);
}
template <class Training>
std::vector<float> finished(Training& training) {
  training.finish();
  const auto x = training.parameters();
  return {x.begin(), x.end()};
}
inline std::vector<float> trained_alone(int ranks, std::size_t count, int kind, int micro_batches) {
  std::vector<float> result;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto training = trainer(world, count);
    for (int m = 0; m < micro_batches; ++m) micro_batch(training, world.rank(), kind, m);
    auto found = finished(training);
    if (world.rank() == 0) result = std::move(found);
  });
  return result;
}

template <class World>
void split_into_parts(int ranks) {
  CAPTURE(ranks);
  World::run(ranks, [&](auto world) {
    const int color = world.rank() % 2;
    std::vector<int> members;  // of each color, from the highest rank down
    for (int rank = ranks - 1; rank >= 0; --rank) {
      if (rank % 2 == color) members.push_back(rank);
    }
    auto part = world.split(color, -world.rank(), 20);
    REQUIRE(part.size() == static_cast<int>(members.size()));
    CHECK(members[static_cast<std::size_t>(part.rank())] == world.rank());
    // each part makes a number of calls and channels of its own
    for (int k = 0; k < 2 + 3 * color; ++k) {
      CHECK(numbers<World>(part, world.rank()) == members);
      auto channel = part.duplicate();
      CHECK(numbers<World>(channel, world.rank() + k)[0] == members[0] + k);
    }
    auto alone = part.split(part.rank(), 0, 20);
    CHECK(alone.size() == 1);
    CHECK(numbers<World>(alone, 7) == std::vector<int>{7});
    auto half = part.split(part.rank() / 2, 0, 20);  // of a part
    const std::size_t first = static_cast<std::size_t>(part.rank() / 2 * 2);
    CHECK(numbers<World>(half, world.rank())[0] == members[first]);
    CHECK(half.size() == std::min(2, part.size() - static_cast<int>(first)));
    // and the world goes on
    auto channel = world.duplicate();
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    CHECK(numbers<World>(channel, world.rank()) == all);
    CHECK(numbers<World>(world, world.rank()) == all);
  });
}

template <class World>
void dense_and_expert_parameters(int ranks) {
  constexpr std::size_t dense = 300, expert = 150;
  World::run(ranks, [&](auto world) {
    const int kind = world.rank() % 2;
    auto experts = world.split(kind, 0, 20);
    auto shared = trainer(world, dense);
    auto own = trainer(experts, expert);
    for (int m = 0; m < 6; ++m) {
      micro_batch(shared, world.rank(), 5, m);
      micro_batch(own, experts.rank(), kind, m);
    }
    CHECK(finished(shared) == trained_alone(ranks, dense, 5, 6));
    CHECK(finished(own) == trained_alone(experts.size(), expert, kind, 6));
  });
}

template <class World>
void colors_that_are_none(int ranks) {
  World::run(ranks, [&](auto world) {
    std::string said;
    try {
      (void)world.split(world.rank() == 1 ? -3 : 0, 0, 20);
    } catch (acco::usage_error const& e) {
      said = e.what();
    }
    CHECK(said.find("rank 1 gave split the color -3") != std::string::npos);  // every rank hears of it
    CHECK(numbers<World>(world, 4) == std::vector<int>(static_cast<std::size_t>(ranks), 4));
    CHECK_THROWS_AS((void)world.split(0, 0, 0.0), acco::usage_error);
  });
}

/// What work() threw.
inline std::string error_of(auto&& work) {
  try {
    work();
  } catch (std::exception const& e) {
    return e.what();
  }
  return "";
}
inline bool contains(std::string const& text, char const* part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

/// A failure in one part ends that part only; errors name its ranks.
template <class World>
void failure_in_a_part() {
  World::run(4, [](auto world) {
    auto part = world.split(world.rank() / 2, 0, 20);
    const std::string said = error_of([&] {
      auto training = trainer(part, 100);
      for (int m = 0; m < 10; ++m) {
        if (world.rank() == 3 && m == 4) throw std::runtime_error("bad batch");
        micro_batch(training, part.rank(), 0, m);
      }
      training.finish();
    });
    if (world.rank() < 2) CHECK(said == "");
    if (world.rank() == 2) CHECK(contains(said, "rank 1 failed: it destroyed its optimizer"));
    if (world.rank() == 3) CHECK(said == "bad batch");
    CHECK(numbers<World>(world, 1) == std::vector<int>(4, 1));  // the world goes on
  });
}

template <class World>
void split_suite() {
  for (int ranks = 2; ranks <= std::min(World::most_ranks, 6); ++ranks) split_into_parts<World>(ranks);
  dense_and_expert_parameters<World>(3);
  dense_and_expert_parameters<World>(4);
  colors_that_are_none<World>(3);
  failure_in_a_part<World>();
}

}  // namespace conformance
