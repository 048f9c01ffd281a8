// SPDX-License-Identifier: Apache-2.0
// What a training reports of how far it is from a solution, where bounds hold it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/game.hpp>

#include "games.hpp"

namespace {

constexpr std::size_t n = 21;
constexpr double step = 0.25, scale = 0.5, bound = 0.5;

/// f = x x / 2 + x y + k y: at the solution y is k, cut off at the bound, and x is -y.
double k_of(std::size_t i) { return (static_cast<double>(i) - 10) / 10; }

}  // namespace

TEST_CASE("the norm that is reported becomes 0 at a solution on the bounds, where the operator is not 0") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::compressed_extragradient training{acco::masha1{.step = step, .tau = 0.5}, world,
                                            games::game_of(n, {.step_scale = scale, .bound = bound})};
    training.initialize(std::vector<float>(2 * n, 0.1F));
    double reported = 0, operators = 0;
    for (int evaluation = 0; evaluation < 400; ++evaluation) {
      auto const x = training.parameters("x"), y = training.parameters("y");
      auto const by_x = training.gradients("x"), by_y = training.gradients("y");
      double squares = 0;
      operators = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const auto at_x = static_cast<double>(x[i]), at_y = static_cast<double>(y[i]);
        const double to = std::clamp(at_y + step * scale * (at_x + k_of(i)), -bound, bound);
        squares += (at_x + at_y) * (at_x + at_y) + (to - at_y) * (to - at_y) / (step * step * scale * scale);
        operators += (at_x + at_y) * (at_x + at_y) + (at_x + k_of(i)) * (at_x + k_of(i));
        by_x[i] += x[i] + y[i];
        by_y[i] += x[i] + static_cast<float>(k_of(i)) + (world.rank() == 0 ? 0.25F : -0.25F);
      }
      reported = training.evaluated().operator_norm;
      REQUIRE(std::abs(reported - std::sqrt(squares)) < 1e-5);
    }
    CHECK(reported < 1e-4);
    CHECK(std::sqrt(operators) > 0.5);
    training.finish();
    for (std::size_t i = 0; i < n; ++i)
      CHECK(std::abs(static_cast<double>(training.parameters("y")[i]) - std::clamp(k_of(i), -bound, bound)) < 1e-3);
  });
}

TEST_CASE("a mean that overflows is found behind a bound, too") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    for (const bool at_reference : {true, false}) {
      acco::compressed_extragradient training{acco::masha1{.step = 0.1}, world, games::game_of(3, {.bound = bound})};
      training.initialize(std::vector<float>(6, 0.1F));
      if (!at_reference) (void)training.evaluated();
      training.gradients("y")[1] = 3e38F;
      std::string words = "nothing was thrown";
      try {
        (void)training.evaluated();
      } catch (acco::non_finite_error const& e) {
        words = e.what();
      }
      CAPTURE(words);
      const bool told = words.find("the mean of finite operators, overflowed") != std::string::npos;
      CHECK(told);
    }
  });
}
