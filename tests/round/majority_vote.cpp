// SPDX-License-Identifier: Apache-2.0
// signSGD with majority vote: gradients travel as signs, and every owner takes the sign of their sum.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"

namespace {

constexpr std::size_t count = 700;  // no multiple of a block
constexpr double rate = 0.5;

/// Large where one rank alone has an opinion: a mean would follow it.
float gradient(int rank, std::size_t step, std::size_t i) {
  const double x = 2 * problem::unit(i * 31 + step * 7919 + static_cast<std::size_t>(rank) * 104729) - 1;
  return static_cast<float>(rank == 0 ? 1000 * x : x);
}

}  // namespace

TEST_CASE("a parameter moves against the sign that most ranks' gradients have, and not at all where they are split evenly") {
  using vote = acco::coded<acco::without_feedback<acco::sign_vote>, acco::full>;
  constexpr int ranks = 4;
  constexpr std::size_t steps = 3;
  acco::threads_backend::run(ranks, [](acco::threads_backend const& world) {
    acco::optimizer training{acco::synchronous{.commit = vote{}}, acco::signum{.learning_rate = rate, .momentum = 0},
                             acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 0.0F));
    std::vector<double> expected(count, 0.0);
    std::size_t even = 0, wrong = 0;
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < count; ++i) {
        int sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += gradient(rank, step, i) < 0 ? -1 : 1;
        training.gradients()[i] += gradient(world.rank(), step, i);
        expected[i] -= rate * (sum > 0 ? 1 : sum < 0 ? -1 : 0);
        even += sum == 0 ? 1U : 0U;
      }
      training.accumulated(1);
    }
    training.finish();
    for (std::size_t i = 0; i < count; ++i) wrong += static_cast<double>(training.parameters()[i]) == expected[i] ? 0U : 1U;
    CHECK(wrong == 0);
    CHECK(even > count / 2);
  });
}

TEST_CASE("who has no micro-batch abstains") {
  using vote = acco::coded<acco::without_feedback<acco::sign_vote>, acco::full>;
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::optimizer training{acco::synchronous{.commit = vote{}}, acco::signum{.learning_rate = rate, .momentum = 0},
                             acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 0.0F));
    for (std::size_t i = 0; i < count && world.rank() == 0; ++i) training.gradients()[i] -= 3;
    training.accumulated(world.rank() == 0 ? 8 : 0);
    training.finish();
    std::size_t wrong = 0;
    for (float const each : training.parameters()) wrong += each == static_cast<float>(rate) ? 0U : 1U;
    CHECK(wrong == 0);
  });
}
