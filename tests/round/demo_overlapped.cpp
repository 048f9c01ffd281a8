// SPDX-License-Identifier: Apache-2.0
// DeMo with its gather hidden: a step late, or as ACCO's estimate and commit.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "round/demo.hpp"

using namespace demo;

TEST_CASE("a delayed gather comes to the same, and looks ahead by the last signs") {
  using momentum = acco::with_error_feedback<acco::block_dct_top<16>>;
  const acco::coded<momentum, acco::full> wire{{{}, 0.999F}, {}};
  const std::vector<float> right = trained<acco::block_dct_top<16>>(0.999F, acco::full{}, 8);
  CHECK(trained_by(acco::delayed{.commit = wire}, 8) == right);
  std::vector<std::vector<float>> after;  // so many steps
  for (std::size_t steps = 0; steps < 8; ++steps) after.push_back(trained<acco::block_dct_top<16>>(0.999F, acco::full{}, steps));
  std::size_t ahead = 0, elsewhere = 0;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::delayed{.commit = wire, .predictor = acco::extrapolation{}},
                             acco::signum{.learning_rate = rate, .momentum = 0}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    std::vector<float> committed(count, 1.0F), shown(count);
    for (std::size_t step = 0; step < 8; ++step) {
      const std::vector<float> g = gradient(world.rank(), step);
      std::copy(g.begin(), g.end(), training.gradients().begin());
      training.accumulated(1);
      // round `step` is in flight; what is shown is ahead of the commit of step - 1
      std::copy(training.parameters().begin(), training.parameters().end(), shown.begin());
      if (step == 0) continue;
      std::vector<float> const& now = after[step];
      for (std::size_t i = 0; i < count && world.rank() == 0; ++i) {
        const float next = now[i] + (now[i] - committed[i]);
        (std::abs(shown[i] - next) < 1e-6F ? ahead : elsewhere) += 1;
      }
      committed = now;
    }
    training.finish();
    if (world.rank() == 0) CHECK(std::equal(right.begin(), right.end(), training.parameters().begin()));
  });
  CHECK(ahead > 0);
  CHECK(elsewhere == 0);
}

TEST_CASE("ACCO with DeMo: an estimate is of the momentum, which only the commit changes") {
  using momentum = acco::with_error_feedback<acco::block_dct_top<16>>;
  const acco::coded<momentum, acco::full> commit{{{}, 0.999F}, {}};
  const acco::coded<acco::with_feedback_ahead<acco::block_dct_top<16>>, acco::full> estimate{};
  const acco::fixed_pace halves{.first = 1, .second = 1};
  const std::vector<float> right = trained<acco::block_dct_top<16>>(0.999F, acco::full{}, 6);
  // all of a step's gradient comes with its first part: the estimate is of what the commit is of, and is it
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.estimate = estimate, .commit = commit, .pace = halves},
                             acco::signum{.learning_rate = rate, .momentum = 0}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    std::vector<float> estimated(count);
    std::size_t off = 0;
    for (std::size_t step = 0; step < 6; ++step) {
      const std::vector<float> g = gradient(world.rank(), step);
      for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += g[i];
      training.accumulated(1);  // shows the commit of the step before; the estimate is in flight
      if (step > 0) {
        for (std::size_t i = 0; i < count; ++i) off += training.parameters()[i] == estimated[i] ? 0U : 1U;
      }
      training.accumulated(1);  // shows the estimate
      estimated.assign(training.parameters().begin(), training.parameters().end());
    }
    training.finish();
    CHECK(off == 0);
    if (world.rank() == 0) CHECK(std::equal(right.begin(), right.end(), training.parameters().begin()));
  });
}
