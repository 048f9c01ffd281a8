// SPDX-License-Identifier: Apache-2.0
// DeMo's trainings: gradients that are known beforehand, on three ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <acco/acco.hpp>

#include "encoding/gaussian.hpp"

namespace demo {

constexpr std::size_t count = 1500;
constexpr int ranks = 3;
constexpr double rate = 0.01;

/// A direction that stays, and noise.
inline std::vector<float> gradient(int rank, std::size_t step) {
  std::vector<float> all = gaussian_numbers(count * (1 + step * ranks + static_cast<std::size_t>(rank)));
  std::vector<float> g(all.end() - static_cast<std::ptrdiff_t>(count), all.end());
  for (std::size_t i = 0; i < count; ++i) g[i] += static_cast<float>(std::cos(0.05 * static_cast<double>(i)));
  return g;
}

/// Trains on gradients that are known beforehand, in `parts` micro-batches a step; rank r's weigh r + 1 where `weighed`.
template <class Schedule>
std::vector<float> trained_by(Schedule const& schedule, std::size_t steps, int parts = 1, bool weighed = false) {
  std::vector<float> found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer training{schedule, acco::signum{.learning_rate = rate, .momentum = 0}, acco::host_storage<float>{}, world,
                             count};
    training.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t step = 0; step < steps; ++step) {
      const std::vector<float> g = gradient(world.rank(), step);
      for (int part = 0; part < parts; ++part) {
        for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += part == 0 ? g[i] : 0.0F;
        training.accumulated(weighed ? world.rank() + 1 : 1);
      }
    }
    training.finish();
    if (world.rank() == 0) found.assign(training.parameters().begin(), training.parameters().end());
  });
  return found;
}

/// The same, synchronously, with a momentum that keeps so much.
template <class Encoding, class Parameters>
std::vector<float> trained(float keep, Parameters const& parameters, std::size_t steps) {
  const acco::coded<acco::with_error_feedback<Encoding>, Parameters> wire{{{}, keep}, parameters};
  return trained_by(acco::synchronous{.commit = wire}, steps);
}

inline std::size_t near(std::vector<float> const& a, std::vector<float> const& b, double within) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < count; ++i) n += std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) < within ? 1 : 0;
  return n;
}

}  // namespace demo
