// SPDX-License-Identifier: Apache-2.0
// What a round tells about itself, and the sums over all rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "acco/observe/planned_bucket.hpp"
#include "acco/schedule/schedule.hpp"

namespace ACCO_NAMESPACE {

/// Seconds on the steady clock, on this rank.
struct time_interval {
  double begin = 0;
  double end = 0;
  [[nodiscard]] constexpr double seconds() const noexcept { return end - begin; }
};

/// How a save has ended. The same on every rank, but for `digest`, `seconds`, and the words of `problem`.
struct save_outcome {
  char const* path = "";     ///< of the checkpoint; of a save that failed, the folder of the run
  char const* problem = "";  ///< why there is none; empty: it is complete, and durable
  std::uint64_t step = 0;    ///< updates committed in it
  std::uint64_t bytes = 0;   ///< of its tensors, all ranks'
  std::uint64_t digest = 0;  ///< `any_optimizer::world_digest` of it; known to rank 0, and 0 on the others
  double seconds = 0;        ///< from the cut to the end, on this rank
  [[nodiscard]] constexpr bool complete() const noexcept { return *problem == '\0'; }
};

/// To which of two sets of weights a question is meant.
enum class weights {
  committed,  ///< what the optimizer has come to
  average     ///< their exponential moving average (`options::average_decay`), or that of `gpa`
};

/// An exchange between the workers of local updates (outer/local_updates.hpp) that has ended. The same on every rank
/// but for `norm` and `gap`, which are of what ranks of this place in their workers exchange, `bytes_sent` and the
/// times.
struct outer_report {
  std::uint64_t exchange = 0;        ///< index, from 0; of each fragment by itself
  std::size_t fragment = 0;          ///< which one it was of (`local_updates::fragments`)
  double weight = 0;                 ///< of the workers that brought something, by `local_updates::weights`
  double samples = 0;                ///< weight of the micro-batches that it brought, over all ranks
  double norm = 0;                   ///< of the mean change that the outer rule was
                                     ///< given; 0 where means of parameters travel
  double gap = 1;                    ///< by which the change was divided (`local_updates::by_gap`)
  double communication_seconds = 0;  ///< from its start to its end, waiting for other workers included
  double exposed_seconds = 0;        ///< of the computation, lost to it; they are in the round's `exposed_seconds`, too
  std::uint64_t bytes_sent = 0;      ///< by this rank; they are in the round's `bytes_sent`, too
};

/// A round that has ended on this rank. `compute_seconds`, `exposed_seconds` and `computing` are of the clock of the
/// trainer's computation. In host memory that is its thread's. On a GPU it is its stream's, as events tell; when a
/// round lands, the host is ahead of the stream, so `computing` is the part that the round carried, and
/// `exposed_seconds` is what the stream is known to have lost by then and no round has told. `communicating` is of the
/// queue: of its threads, or of its streams. All are written as `steady_seconds()`. Everything but the times,
/// `micro_batches`, `bytes_sent` and `progress` is the same on
/// every rank; under local updates on every rank of a worker, `step`, `samples` and `committed` on all.
struct round_report {
  std::uint64_t round = 0;           ///< index, from 0
  round_plan plan;                   ///< what kind of round it was
  bool committed = false;            ///< `parameters()` now holds committed weights: evaluate and save only then
  bool skipped = false;              ///< the update was left out because a gradient
                                     ///< was not finite (`non_finite::skip`), or
  bool spike = false;                ///< because of the gradients' norm (`options::norm_limit`)
  std::uint64_t step = 0;            ///< updates committed so far
  double samples = 0;                ///< weight committed so far, over all ranks
  double weight = 0;                 ///< weight that this round carried, over all ranks
  double mean_loss = 0;              ///< sum of `loss_sum` / weight that this round carried, over all ranks
  double step_weight = 0;            ///< the same weight of all rounds of this step
                                     ///< so far: where one commits, of the whole step
  double step_loss = 0;              ///< and their mean loss: the one to print, in every schedule
  double gradient_norm = 0;          ///< global norm of the mean gradient that the update used, before clipping
  double clip_scale = 1;             ///< factor that clipping applied to it, but
                                     ///< to groups with a clip_norm of their own
  double learning_rate_scale = 1;    ///< value of `options::learning_rate`
  std::size_t micro_batches = 0;     ///< that this rank added to the round's gradients
  unsigned first = 0, second = 0;    ///< micro-batches of the parts of the coming step, at least, by the pace
  double compute_seconds = 0;        ///< the trainer's own: before this boundary (GPU: before the round's start)
  double communication_seconds = 0;  ///< from the round's start to its end, waiting
                                     ///< for other ranks and the update included
  double exposed_seconds = 0;        ///< of the computation, lost to the engine: waiting, clearing, copying, encoding
  std::uint64_t bytes_sent = 0;      ///< by this rank, as its backend counts (collective/redistribution.hpp)
  std::uint64_t bytes_between = 0;   ///< of these, between groups, where the backend has two levels
  save_outcome const* saved =
      nullptr;  ///< of the save that has ended since the last report, valid until the next one has; or null
  std::optional<std::uint64_t> digest;         ///< `any_optimizer::world_digest` after it,
                                               ///< where `options::digest_every` asks for it
  std::optional<outer_report> outer = {};      ///< under local updates: of the exchange
                                               ///< that has ended since the last report
  std::span<planned_bucket const> codes = {};  ///< by which gradients travelled, where they are `planned`; valid until
                                               ///< the next report
  char const* progress = "";                   ///< who moved the messages meanwhile (network backends), in words
  time_interval computing;                     ///< when the trainer computed
  time_interval communicating;                 ///< when the round was in flight

  /// Share of the round's communication that the trainer did not have to wait for.
  [[nodiscard]] constexpr double hidden_fraction() const noexcept {
    return communication_seconds > 0 && exposed_seconds < communication_seconds ? 1 - exposed_seconds / communication_seconds : 0;
  }
};

/// Sums over the rounds of this rank. A restore brings `rounds`, `skipped` and `dropped` of the run with it; all others
/// are of what this optimizer has done. Under local updates `communication_seconds` are of the worker's own rounds,
/// while `exposed_seconds` and `bytes_sent` hold exchanges, too: `hidden_fraction` does not tell what of these is
/// hidden, `outer_report` does.
struct round_totals {
  std::size_t rounds = 0;
  std::size_t micro_batches = 0;
  std::size_t skipped = 0;
  double dropped = 0;  ///< weight, over all ranks, that `finish` left out: of steps that lacked micro-batches
  double compute_seconds = 0, communication_seconds = 0, exposed_seconds = 0;
  std::uint64_t bytes_sent = 0, bytes_between = 0;

  constexpr void add(round_report const& report) noexcept {
    ++rounds;
    micro_batches += report.micro_batches;
    skipped += report.skipped ? 1 : 0;
    compute_seconds += report.compute_seconds;
    communication_seconds += report.communication_seconds;
    exposed_seconds += report.exposed_seconds;
    bytes_sent += report.bytes_sent;
    bytes_between += report.bytes_between;
  }
  [[nodiscard]] constexpr double hidden_fraction() const noexcept {
    return communication_seconds > 0 && exposed_seconds < communication_seconds ? 1 - exposed_seconds / communication_seconds : 0;
  }
};

}  // namespace ACCO_NAMESPACE
