// SPDX-License-Identifier: Apache-2.0
// What the command line says, and what a run gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shape.hpp"

namespace toy_gpt {

/// Every schedule that toy_gpt_family makes, and how its rounds travel: "two_phase+int4". In flags.cpp, from acco's
/// lists.
[[nodiscard]] std::vector<std::string> const& labels();
/// Those whose rules are engines of their own, and elastic, which is two optimizers: on threads, in floats, with AdamW.
/// So is muon, under some schedules.
[[nodiscard]] bool is_decorated(std::string_view label);
[[nodiscard]] bool goes_with_muon(std::string_view label);
/// Local updates: ranks train by themselves, and exchange after some steps. On threads, in floats, with AdamW.
[[nodiscard]] bool is_local(std::string_view schedule);

struct settings {
  std::string data;                        // empty: the repository's own text
  std::string backend, device;             // where the ranks are: runner.hpp
  bool nvtx = false;                       // ranges for profilers of NVIDIA GPUs
  std::string progress = "helper_thread";  // over MPI
  std::size_t piece_kib = 0;               // of a round over a network; 0: the backend's default
  double deadline = 600;
  int ranks = 2;
  int slow_rank = -1;  // computes every micro-batch twice
  std::string schedule = "two_phase";
  std::string rule = "adamw";
  std::string dtype = "float";
  std::size_t samples = 36000;  // sequences, over all ranks
  std::size_t batch = 8;        // sequences of a micro-batch
  shape model;
  double learning_rate = 0;        // 0: the rule's own default, below
  double warmup = 1000;            // samples
  unsigned first = 1, second = 0;  // micro-batches of a round
  bool elastic = false;
  bool auto_pace = false;  // K + K2 micro-batches a step, split by measuring
  // how estimate rounds travel: full, int8, int4; own, own_corrected: gradients do not travel
  std::string estimate = "full";
  // how commit rounds travel: full, coded (gradients in 4 bits, parameters in 3), feedback (both int4)
  std::string commit = "full";
  unsigned local_steps = 8;       // of local updates: from one exchange to the next
  int group = 1;                  // of local updates: ranks that train together
  std::string exchange = "full";  // how exchanges of local updates travel: full, int8, int4
  double clip = 1.0;
  std::size_t validations = 8;  // during and after training
  std::uint64_t seed = 1;
  double link_megabits = 0;  // simulated link, 0: none
  std::string log, trace, plot;
  std::string save, resume;      // folders; empty: no checkpoints, a new run
  std::uint64_t save_every = 0;  // steps
  std::vector<std::string> compare;
  bool quiet = false;

  /// The schedule and how its rounds travel, in a word: "two_phase+int4", "delayed+coded".
  [[nodiscard]] std::string label() const {
    if (is_local(schedule)) return schedule + (exchange != "full" ? "+" + exchange : "");
    return schedule + (commit != "full" ? "+" + commit : estimate != "full" ? "+" + estimate : "");
  }
  /// Of several that are compared, and share the flags.
  void choose(std::string const& word) {
    const std::size_t plus = word.find('+');
    schedule = word.substr(0, plus);
    if (is_local(schedule)) return;
    if (plus == std::string::npos) {
      if (schedule != "two_phase") estimate = "full";  // others have none
      return;
    }
    const std::string wire = word.substr(plus + 1);
    const bool commits = wire == "coded" || wire == "feedback";
    commit = commits ? wire : "full";
    estimate = schedule != "two_phase" ? "full" : commits ? "int4" : wire;
  }
  /// Whether toy_gpt_family makes it only.
  [[nodiscard]] bool needs_family() const {
    return rule == "muon" || is_decorated(schedule) || is_decorated(label()) || is_local(schedule);
  }
  [[nodiscard]] double rate() const {
    if (learning_rate > 0) return learning_rate;
    return rule == "sgd" ? 0.3 : rule == "lion" ? 3e-4 : 3e-3;
  }
};

/// Reads the command line; ends the program where it cannot be meant. In flags.cpp, as is:
settings parse(int count, char** words);
/// The settings of each run: one, or one a schedule that is compared, at the same samples a step.
std::vector<settings> runs_of(settings const& s);

/// One point of the learning curve.
struct point {
  double samples = 0, seconds = 0, loss = 0;
};

/// What one run gives back, from rank 0.
struct summary {
  std::string schedule;
  std::size_t parameters = 0;
  double samples = 0, seconds = 0;  // seconds without evaluation
  double train_loss = 0, validation_loss = 0;
  double samples_per_second = 0, hidden_fraction = 0;
  std::uint64_t bytes_sent = 0, steps = 0, rounds = 0;
  std::size_t memory_bytes = 0;                                                // of the optimizer, on this rank
  double compute_seconds = 0, communication_seconds = 0, exposed_seconds = 0;  // of this rank
  double mean_compute_seconds = 0, mean_communication_seconds = 0;             // over all ranks
  std::string progress;                                                        // who moved the messages
  unsigned first = 0, second = 0;                                              // the split of a step at the end
  bool stopped = false;                                                        // by a signal, before its last sequence
  std::string saved;  // the last checkpoint, or, unsaved, why there is none
  bool unsaved = false;
  std::vector<point> training, validation;
};

}  // namespace toy_gpt
