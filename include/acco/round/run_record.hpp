// SPDX-License-Identifier: Apache-2.0
// What a run has come to, and how a round that lands changes that: pure functions of the numbers that all ranks have
// alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "acco/collective/redistribution.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/round/spike_watch.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/stage/decision.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/storage/host_clock.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What the loop is doing.
enum class phase {
  at_rest,    ///< nothing is in flight, and the next launch must not move the trainer's spans
  computing,  ///< nothing is in flight
  in_flight   ///< a round is
};
/// What `parameters()` shows.
enum class visible {
  masters,         ///< the committed parameters exactly
  decoded_commit,  ///< the committed parameters as they arrived, encoded
  prediction
};

/// What the trainer's thread knows of the round in flight.
struct flight_facts {
  round_plan plan{};
  double rate = 1;                ///< the learning rate's factor
  std::size_t micro_batches = 0;  ///< that this rank put into it
  bool differences = false;       ///< its parameters travel as encoded differences
  bool digests_state = false, digests_in_use = false;
  bool counted = false;  ///< the tensors' numbers of updates have it already: it was restored
};

/// What has come to a run on this rank: kept in checkpoints, but for the flight.
struct run_record {
  explicit run_record(options const& chosen) : spikes(chosen.norm_limit) {}

  run_counters run;
  round_totals totals;
  spike_watch spikes;
  flight_facts flight;

  void keep(run_numbers& in) const {
    in.run = run;
    spikes.keep(in.norms);
    in.rounds = totals.rounds;
    in.rounds_skipped = totals.skipped;
    in.dropped = totals.dropped;
  }
  void restore(run_numbers const& from) {
    run = from.run;
    totals.rounds = from.rounds;
    totals.skipped = from.rounds_skipped;
    totals.dropped = from.dropped;
    spikes.restore(from.norms);
  }
};

/// What was measured of the round, on this rank.
struct round_measures {
  computation_times computation{};
  time_interval communication{};
  sent_bytes bytes{};
  unsigned first = 0, second = 0;  ///< micro-batches of the coming step's parts
  std::span<planned_bucket const> codes = {};
  char const* progress = "";
};

/// Whether the run is over once the round lands. Such a round is never checkpointed: a run resumed from it would fail
/// the same way.
[[nodiscard]] constexpr bool ends_run(run_counters const& run, round_numbers const& n, std::size_t skip_limit,
                                      std::size_t empty_limit) noexcept {
  return (n.skip && run.skipped + 1 > skip_limit) || (n.step_weight == 0 && !n.skip && run.empty + 1 > empty_limit);
}

/// The counters after a round that has landed, which took so many seconds; `end_round` follows the report.
constexpr void advance(run_counters& run, round_numbers const& n, round_plan const& plan, double seconds) noexcept {
  const bool commit = commits(plan);
  if (n.apply && commit) {
    ++run.steps;
    run.samples += n.step_weight;
  }
  if (commit) run.skipped = n.skip ? run.skipped + 1 : n.apply ? 0 : run.skipped;
  (commit ? run.commit_seconds : run.estimate_seconds) = seconds;
  if (plan.gradients == carried::fresh) run.step_weight = run.step_loss_sum = 0;
  run.step_weight += n.all.weight;
  run.step_loss_sum += n.all.loss_sum;
  if (commit) run.empty = n.step_weight == 0 && !n.skip ? run.empty + 1 : 0;
}
/// A skipped round leaves nothing of its step; the next round is the next one.
constexpr void end_round(run_counters& run, round_numbers const& n) noexcept {
  if (n.skip) run.step_weight = run.step_loss_sum = 0;
  ++run.round;
}

/// The report of a round that has landed, after `advance`. `committed`: what it shows is.
[[nodiscard]] constexpr round_report describe(run_counters const& run, round_numbers const& n, flight_facts const& flight,
                                              round_measures const& of, bool committed) {
  return {.round = run.round,
          .plan = flight.plan,
          .committed = committed,
          .skipped = n.skip,
          .spike = n.spike,
          .step = run.steps,
          .samples = run.samples,
          .weight = n.all.weight,
          .mean_loss = n.all.weight > 0 ? n.all.loss_sum / n.all.weight : 0,
          .step_weight = run.step_weight,
          .step_loss = run.step_weight > 0 ? run.step_loss_sum / run.step_weight : 0,
          .gradient_norm = n.norm,
          .clip_scale = n.clip,
          .learning_rate_scale = flight.rate,
          .micro_batches = flight.micro_batches,
          .first = of.first,
          .second = of.second,
          .compute_seconds = of.computation.computed.seconds(),
          .communication_seconds = of.communication.seconds(),
          .exposed_seconds = of.computation.exposed,
          .bytes_sent = of.bytes.all,
          .bytes_between = of.bytes.between,
          .digest = flight.digests_state ? std::optional(n.state_all.sum() + digest_of(run.steps, run.samples)) : std::nullopt,
          .codes = of.codes,
          .progress = of.progress,
          .computing = of.computation.computed,
          .communicating = of.communication};
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
