// SPDX-License-Identifier: Apache-2.0
// The library on parabolas: every parameter has a curvature of its own, so one training tries many steps at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <acco/acco.hpp>

#include "support/problem.hpp"

namespace parabolas {

/// What the ranks had in use after each round: parameters, and whether the round committed.
struct shown {
  bool commits;
  std::vector<double> parameters;
};

/// Trains from 1 in every direction by heavy ball, k[i] = rate * curvature of parameter i. The ranks' own gradients
/// differ, their mean is exact. Gradients of the first micro-batches are pushed, each otherwise, so that every mode is
/// there: from a quiet start two_phase's predictions are exact for ever. Returns what was shown after `rounds` rounds,
/// or until something is beyond 1e120.
template <class Schedule>
[[nodiscard]] std::vector<shown> train(Schedule const& schedule, double momentum, std::vector<double> const& k,
                                       std::size_t rounds, int ranks = 2) {
  std::vector<shown> found;
  acco::mock_world world(ranks, {});
  world.run([&](acco::mock_backend rank) {
    acco::optimizer training{schedule,
                             acco::sgd{.learning_rate = 1, .momentum = momentum},
                             acco::host_storage<double>{},
                             rank,
                             k.size(),
                             acco::options{.check_habits = acco::habit_checks::off, .compare_every = 0}};
    training.initialize(std::vector<double>(k.size(), 1.0));
    const double share = ranks == 1 ? 1 : rank.rank() % 2 == 0 ? 1.5 : 0.5;
    std::size_t micro_batches = 0;
    for (std::size_t seen = 0; seen < rounds; ++micro_batches) {
      double largest = 0;
      for (std::size_t i = 0; i < k.size(); ++i) {
        const double push = micro_batches < 24 ? problem::unit(micro_batches * 131 + i) - 0.5 : 0;
        training.gradients()[i] += share * k[i] * (training.parameters()[i] + push);
        largest = std::max(largest, std::abs(training.parameters()[i]));
      }
      if (largest > 1e120) return;
      auto const report = training.accumulated(1);
      if (!report) continue;
      ++seen;
      if (rank.rank() == 0)
        found.push_back({acco::commits(report->plan), {training.parameters().begin(), training.parameters().end()}});
    }
  });
  return found;
}
/// The same after commits alone, parameter by parameter.
[[nodiscard]] inline std::vector<std::vector<double>> after_commits(std::vector<shown> const& all) {
  std::vector<std::vector<double>> of(all.front().parameters.size());
  for (shown const& each : all) {
    for (std::size_t i = 0; i < of.size() && each.commits; ++i) of[i].push_back(each.parameters[i]);
  }
  return of;
}

}  // namespace parabolas
