// SPDX-License-Identifier: Apache-2.0
// One simulation, and what its ranks have seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "simulation/setting.hpp"

namespace simulation {

enum class seen { initialized, report, finished, error };

/// The parameters in use at some moment, and what the optimizer says of itself.
struct snapshot {
  seen what = seen::initialized;
  std::size_t segment = 0;
  std::size_t boundary = 0;             // of a report: how many parts of the segment were launched before
  std::size_t rounds = 0;               // landed so far, by totals()
  std::vector<double> parameters = {};  // whole
  double samples = 0;
  std::uint64_t steps = 0;
  // Of a report.
  std::size_t round = 0;
  bool committed = false, skipped = false;
  double dropped = 0;
  std::uint64_t digest = 0;  // 0: none
  double weight = 0, mean_loss = 0, step_weight = 0, step_loss = 0, norm = 0, clip = 0, rate = 0;
};
/// What a question was answered.
struct answer {
  question what = question::gather_committed;
  std::size_t segment = 0, boundary = 0;
  bool after_finish = false, after_error = false;
  std::size_t rounds = 0;  // landed, by totals()
  std::vector<double> numbers = {};
  std::uint64_t digest = 0;
};
struct segment_log {
  std::vector<std::vector<std::size_t>> parts{1};  // micro-batches by part; the last one is not launched yet
  bool finishing = false;                          // the last part goes with the rounds of finish()
};
/// One training on one rank.
struct training_log {
  std::vector<segment_log> segments;
  std::vector<snapshot> snapshots;
  std::vector<answer> answers;
  std::vector<double> asked_rates;  // samples at which the learning rate was asked for
  std::uint64_t final_digest = 0;
  bool complete = false;
};
struct rank_log {
  std::vector<training_log> trainings;
  bool ended = false, died = false;
  bool is_error = false;   // an acco::error
  std::string kind, what;  // of what left the rank's function; empty: nothing
  int peer = -1;
  std::vector<std::string> complaints;  // of checks on the spot
};
struct outcome {
  std::vector<rank_log> ranks;
  bool struck = false;                  // the disaster has happened
  std::vector<std::string> complaints;  // of those who stand by
};

outcome run(setting const& drawn);

}  // namespace simulation
