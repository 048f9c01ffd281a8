// SPDX-License-Identifier: Apache-2.0
// Elastic scheduling: some tensors now, the others a step late. Two optimizers over one world, as docs/schedules.md
// says, against the recurrence in fp64.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

constexpr int ranks = 3;
constexpr std::size_t size = 12;
constexpr unsigned micro_batches = 2;
constexpr double rate = 0.05, momentum = 0.8, decay = 0.01;

/// ADDS the gradient of a quadratic whose elements pull at their neighbours; every rank and micro-batch has another
/// minimum.
void add_gradients(std::span<double const> theta, std::span<double> gradients, int rank, unsigned micro_batch) {
  for (std::size_t i = 0; i < size; ++i) {
    const double minimum = std::sin(static_cast<double>(i) + 0.7 * rank + 1.3 * micro_batch);
    gradients[i] += 2 * theta[i] - minimum;
    if (i > 0) gradients[i] -= 0.6 * theta[i - 1];
    if (i + 1 < size) gradients[i] -= 0.6 * theta[i + 1];
  }
}
/// Different weights: the mean is over samples.
double weight_of(int rank) { return 1.0 + rank; }

std::vector<double> start() {
  std::vector<double> theta(size);
  for (std::size_t i = 0; i < size; ++i) theta[i] = std::cos(static_cast<double>(i));
  return theta;
}

/// The first `now` elements are updated by the gradients of their own step, the others by those of the step before.
std::vector<double> expected(std::size_t now, unsigned steps) {
  std::vector<double> theta = start(), velocity(size, 0.0), waiting;
  const auto update = [&](std::size_t from, std::size_t to, std::vector<double> const& gradient) {
    for (std::size_t i = from; i < to; ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i];
      theta[i] -= rate * (velocity[i] + decay * theta[i]);
    }
  };
  for (unsigned step = 0; step < steps; ++step) {
    std::vector<double> mean(size, 0.0);
    double weight = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (unsigned m = 0; m < micro_batches; ++m) {
        std::vector<double> own(size, 0.0);
        add_gradients(theta, own, rank, step * micro_batches + m);
        for (std::size_t i = 0; i < size; ++i) mean[i] += weight_of(rank) * own[i];
        weight += weight_of(rank);
      }
    }
    for (double& each : mean) each /= weight;
    update(0, now, mean);
    if (!waiting.empty()) update(now, size, waiting);
    waiting = mean;
  }
  update(now, size, waiting);  // finish
  return theta;
}

/// The trainer's array, of which each optimizer has adopted a part.
std::vector<double> trained(std::size_t now, unsigned steps) {
  std::vector<double> result;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    std::vector<double> theta = start(), gradients(size, 0.0);
    const acco::sgd rule{.learning_rate = rate, .momentum = momentum, .weight_decay = decay};
    const acco::fixed_pace pace{.first = micro_batches};
    acco::optimizer first{acco::synchronous{.pace = pace}, rule, acco::host_storage<double>{}, world, now};
    acco::optimizer rest{acco::delayed{.pace = pace}, rule, acco::host_storage<double>{}, world, size - now};
    first.adopt(std::span(theta).first(now), std::span(gradients).first(now));
    rest.adopt(std::span(theta).subspan(now), std::span(gradients).subspan(now));
    const double weight = weight_of(world.rank());
    for (unsigned k = 0; k < steps * micro_batches; ++k) {
      std::vector<double> own(size, 0.0);
      add_gradients(theta, own, world.rank(), k);
      for (std::size_t i = 0; i < size; ++i) gradients[i] += weight * own[i];
      const auto report = first.accumulated(weight);
      const auto late = rest.accumulated(weight);
      REQUIRE(report.has_value() == ((k + 1) % micro_batches == 0));
      if (report) CHECK(first.steps() == (k + 1) / micro_batches);
      if (late && k + 1 > micro_batches) CHECK(rest.steps() == first.steps() - 1);
    }
    rest.finish();
    first.finish();
    if (world.rank() == 0) result = theta;
  });
  return result;
}

double distance(std::vector<double> const& a, std::vector<double> const& b) {
  double most = 0;
  for (std::size_t i = 0; i < size; ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("elastic: the first tensors now, the others a step late, whatever their share") {
  for (const std::size_t now : {1U, 4U, 6U, 11U}) {
    for (const unsigned steps : {1U, 2U, 5U, 40U}) {
      CAPTURE(now);
      CAPTURE(steps);
      CHECK(distance(trained(now, steps), expected(now, steps)) < 1e-13);
    }
    // The oracle tells shares apart.
    CHECK(distance(expected(now, 5), expected(now + 1, 5)) > 1e-4);
  }
}
