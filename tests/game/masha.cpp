// SPDX-License-Identifier: Apache-2.0
// MASHA converges where descent-ascent diverges, in few bits; the coin.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/game.hpp>

#include "games.hpp"
#include "recurrence.hpp"

namespace {

namespace oracle = game_oracle;
using games::evaluate;
using games::game_of;

/// |F| by steps, on rank 0, in a game of which descent-ascent makes nothing.
template <class Method>
std::vector<double> norms(Method const& method, int ranks, int steps, std::size_t n = 40) {
  const oracle::bilinear problem{n, 3, 0.3};
  std::vector<double> found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const auto mine = problem.of<float>(world.rank());
    acco::compressed_extragradient training{method, world, game_of(n)};
    training.initialize(problem.initial());
    for (int k = 0; k < steps; ++k) {
      const auto report = training.step(
          [&](std::span<float const> at, std::span<float> gradients) { mine.add_gradients(at.data(), gradients.data()); });
      if (world.rank() == 0) found.push_back(report.operator_norm);
    }
    training.finish();
  });
  return found;
}

template <class Method>
void check_converges(Method const& method, int steps, double quarter_leaves = 0.3) {
  const std::string name = std::string(Method::name) + ", " + decltype(method.up)::name;
  CAPTURE(name);
  const auto found = norms(method, 3, steps);
  const auto at = [&](int quarter) {
    return *std::min_element(found.begin() + quarter * steps / 4 - 10, found.begin() + quarter * steps / 4);
  };
  INFO(name, ": ", found.front(), " ", at(1), " ", at(2), " ", at(3), " ", at(4));
  for (int quarter = 1; quarter <= 4; ++quarter) {  // linearly: each leaves a share, until fp32 ends it
    const double before = quarter == 1 ? found.front() : at(quarter - 1);
    CHECK((at(quarter) < quarter_leaves * before || at(quarter) < 1e-5));
  }
}

}  // namespace

TEST_CASE("descent-ascent diverges on a bilinear game; MASHA1 and MASHA2 converge linearly, with few bits") {
  const std::size_t n = 40;
  const oracle::bilinear problem{n, 3, 0.3};
  double before = 0, after = 0;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    const auto mine = problem.of<float>(world.rank());
    acco::optimizer training{acco::synchronous{}, acco::sgd{.learning_rate = 0.05}, acco::host_storage<float>{}, world, 2 * n};
    training.initialize(problem.initial());
    const auto far = [&] {
      double squares = 0;
      for (const float each : training.parameters()) squares += static_cast<double>(each) * static_cast<double>(each);
      return squares;
    };
    if (world.rank() == 0) before = far();
    for (int k = 0; k < 2000; ++k) {
      mine.add_gradients(training.parameters().data(), training.gradients().data());
      for (std::size_t i = n; i < 2 * n; ++i) training.gradients()[i] = -training.gradients()[i];
      (void)training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0) after = far();
  });
  CHECK(after > 10 * before);
  check_converges(acco::masha1{.step = 0.3}, 300);
  check_converges(acco::masha1{.step = 0.3, .up = acco::stochastic_int8{}, .down = acco::block_int8{}}, 300);
  check_converges(acco::masha1{.step = 0.3, .up = acco::stochastic_int4{}, .down = acco::block_int4{}}, 300);
  check_converges(acco::masha1{.step = 0.3, .up = acco::block_int4{}, .down = acco::block_int4{}}, 300);
  check_converges(acco::masha1{.step = 0.15, .up = acco::stochastic_ternary{}, .down = acco::block_int4{}}, 800);
  check_converges(acco::masha2{.step = 0.3, .up = acco::block_int8{}, .down = acco::block_int8{}}, 300);
  check_converges(acco::masha2{.step = 0.3, .up = acco::block_int4{}, .down = acco::block_int4{}}, 300);
  check_converges(acco::masha2{.step = 0.2, .up = acco::block_top<32>{}, .down = acco::block_int4{}}, 800);
  check_converges(acco::masha2{.step = 0.1, .tau = 0.5, .up = acco::block_ternary{}, .down = acco::block_int4{}}, 1200, 0.6);
}

TEST_CASE("the coin falls as often as it should, and alike for all who ask") {
  for (const double tau : {0.1, 0.5, 0.75, 0.99}) {
    int fell = 0;
    for (std::uint64_t step = 0; step < 20'000; ++step) fell += acco::reference_moves(7, step, tau) ? 1 : 0;
    CHECK(std::abs(fell - 20'000 * (1 - tau)) < 5 * std::sqrt(20'000 * tau * (1 - tau)));
  }
  static_assert(acco::reference_moves(7, 3, 0.5) == acco::reference_moves(7, 3, 0.5));
  int same = 0;
  for (std::uint64_t step = 0; step < 1000; ++step)
    same += acco::reference_moves(1, step, 0.5) == acco::reference_moves(2, step, 0.5) ? 1 : 0;
  CHECK(std::abs(same - 500) < 80);
}
