// SPDX-License-Identifier: Apache-2.0
// DeMo with its messages hidden: a step late, as estimate and commit, as the exchange of local updates.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "support/problem.hpp"

namespace {

constexpr std::size_t count = 4 * 256, steps = 6;
constexpr int ranks = 2;
constexpr acco::lion by_sign{.learning_rate = 0.01, .beta1 = 0, .beta2 = 0};
using code = acco::block_dct_top<24>;
constexpr acco::demo_wire<acco::block_int4<>, code> wire;
constexpr acco::demo_wire<acco::full, code> exact;

float gradient(int rank, std::size_t step, std::size_t i) {
  return static_cast<float>(problem::unit(i * 31 + step * 7919 + static_cast<std::size_t>(rank) * 104729) - 0.5 +
                            0.2 * std::cos(0.05 * static_cast<double>(i)));
}

/// What rank 0 shows after each call; all of a step's gradient comes with its first part.
template <class Schedule>
std::vector<std::vector<float>> shown(Schedule const& schedule, int parts = 1) {
  std::vector<std::vector<float>> found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule, by_sign, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    const auto note = [&] {
      if (world.rank() == 0) found.emplace_back(training.parameters().begin(), training.parameters().end());
    };
    for (std::size_t step = 0; step < steps; ++step) {
      for (int part = 0; part < parts; ++part) {
        for (std::size_t i = 0; i < count && part == 0; ++i) training.gradients()[i] += gradient(world.rank(), step, i);
        training.accumulated(1);
        note();
      }
    }
    training.finish();
    note();
  });
  return found;
}

}  // namespace

TEST_CASE("a step late the same arrives, and what is shown is ahead by the last step") {
  const auto now = shown(acco::synchronous{.commit = wire}), late = shown(acco::delayed{.commit = wire});
  for (std::size_t step = 1; step < steps; ++step) CHECK(late[step] == now[step - 1]);
  CHECK(late.back() == now.back());
  // the masters of step t, and once more what they changed by
  const auto masters = shown(acco::synchronous{.commit = exact});
  const auto ahead = shown(acco::delayed{.commit = exact, .predictor = acco::extrapolation{}});
  std::size_t off = 0;
  for (std::size_t step = 2; step < steps; ++step)
    for (std::size_t i = 0; i < count; ++i)
      off += std::abs(ahead[step][i] - (2 * masters[step - 1][i] - masters[step - 2][i])) < 1e-5F ? 0U : 1U;
  CHECK(off == 0);
  CHECK(ahead.back() == masters.back());
}

TEST_CASE("an estimate of the momentum and the first part leaves the momentum to the commit") {
  const auto now = shown(acco::synchronous{.commit = exact});
  constexpr acco::fixed_pace halves{.first = 1, .second = 1};
  // here the first part has all of the gradient: the estimate is what the commit will be
  const acco::coded estimate{.gradients = acco::with_feedback_ahead{exact.gradients}, .parameters = acco::full{}};
  const auto both = shown(acco::two_phase{.estimate = estimate, .commit = exact, .pace = halves}, 2);
  for (std::size_t step = 1; step < steps; ++step) {
    CHECK(both[2 * step] == now[step - 1]);       // a commit
    CHECK(both[2 * step - 1] == both[2 * step]);  // the estimate before it
  }
  CHECK(both.back() == now.back());
  // of the first part alone: other estimates, the same commits
  const acco::coded of_part{.gradients = code{}, .parameters = acco::full{}};
  const auto alone = shown(acco::two_phase{.estimate = of_part, .commit = exact, .pace = halves}, 2);
  CHECK(alone.back() == now.back());
  CHECK(alone[2 * steps - 3] != both[2 * steps - 3]);
}

TEST_CASE("as the exchange of local updates it comes to the minimum of all workers' losses") {
  std::vector<float> found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const acco::local_updates schedule{
        .method = acco::waiting<acco::sgd>{.rule = {.learning_rate = 0.1}},
        .steps = 2,
        .exchange = acco::coded{.gradients = acco::loosely<code>{}, .parameters = acco::block_int4<>{}}};
    acco::optimizer training{schedule, acco::sgd{.learning_rate = 0.25}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t step = 0; step < 400; ++step) {
      for (std::size_t i = 0; i < count; ++i)  // half the square of the distance to a point of the worker's own
        training.gradients()[i] += training.parameters()[i] - gradient(world.rank(), 0, i);
      training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0) found.assign(training.parameters().begin(), training.parameters().end());
  });
  double most = 0;
  for (std::size_t i = 0; i < count; ++i)
    most = std::max(most,
                    std::abs(static_cast<double>(found[i]) - 0.5 * static_cast<double>(gradient(0, 0, i) + gradient(1, 0, i))));
  CHECK(most < 0.1);  // the minima of the two are further apart, and codes of their changes jitter
}
