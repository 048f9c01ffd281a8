// SPDX-License-Identifier: Apache-2.0
// The oracle: what a training must have seen after each round, computed unsharded, in one thread, in double precision,
// without a line of the library's engine. Which micro-batches a round carried is all that it takes from the run; where
// an estimate travels encoded, the estimated parameters too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulation/run.hpp"

namespace simulation {

struct history {
  struct round {
    std::size_t index = 0;  // by the library's count, which begins every segment at the first round of a step
    bool commits = true, applied = false, skipped = false;
    double weight = 0, step_weight = 0, so_far = 0, norm = 0, clip = 1, rate = 1;
  };
  std::vector<round> rounds;
  // After so many rounds: parameters in use, committed ones, samples and steps.
  std::vector<std::vector<double>> shown, committed;
  std::vector<double> samples;
  std::vector<std::uint64_t> steps;
  std::vector<double> dropped;    // by the ends of the segments before, and at the end of each
  std::vector<std::size_t> base;  // rounds before each segment; one entry more for each that has ended
  bool raised = false;            // the round behind the last one throws non_finite_error
  bool known = true;              // parameters are known, not only weights
};

history replay(setting const& drawn, outcome const& seen_by_ranks, std::size_t training);

}  // namespace simulation
