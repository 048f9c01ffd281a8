// SPDX-License-Identifier: Apache-2.0
// Which schedule and which codes a link calls for, and what speed to expect: from what a step of `synchronous` has taken.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "acco/error.hpp"
#include "acco/number/demand.hpp"
#include "acco/number/finite.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// What a step of `synchronous` without codes has taken: the sums of `any_optimizer::totals()` after some steps, divided by the
/// steps. Ranks that are to decide alike pass the same numbers: means over all of them (`any_optimizer::sum_over_ranks`).
struct step_costs {
  double compute_seconds = 0;   ///< of all micro-batches of a step: `compute_seconds`
  double exchange_seconds = 0;  ///< of gradients and parameters, from the round's start to its end: `communication_seconds`
  double fixed_seconds = 0;     ///< of these, and at most all, those that fewer bytes do not shorten: latency, the update
  double bytes = 8;             ///< that a parameter takes in this exchange: 8 in fp32 (4 + 4), 4 in bfloat16
  unsigned micro_batches = 8;   ///< of a step
};

/// What of its communication a way hides behind the trainer's computation.
enum class hidden_part {
  nothing,  ///< the trainer waits
  parts,    ///< commits behind the first part of a step, estimates behind the second: `two_phase`
  whole     ///< all of it, behind the next steps: late gradients, local updates that exchange in the background
};

/// A way to train: a schedule and its codes.
struct way {
  static constexpr double in_full = -1;  ///< in place of bytes: those of `step_costs::bytes`

  char const* name = "";  ///< of the schedule and its codes, in a word: toy_gpt_family's
  char const* code = "";  ///< in C++, what the optimizer is given as its schedule, with PACE where its pace goes
  hidden_part hides = hidden_part::nothing;  ///< how it communicates
  double estimate = 0;                       ///< bytes a parameter and step, in units of (N-1)/N; of `parts` only
  double commit = in_full;                   ///< likewise, of commits, or of exchanges, over the steps between them
  unsigned every = 1;                        ///< steps from one exchange to the next
  unsigned fragments = 1;   ///< of `whole`: so many exchanges of a part each in these steps, each behind one step
  double loss_percent = 0;  ///< validation loss that it costs, over `synchronous`
};

/// The ways of which a benchmark has measured the loss, by rising complication: `bench/front/run.py`, a GPT of 0.12 M parameters,
/// means over three seeds on 4 ranks and three on 8, every way at its best learning rate; below 0, which is within the seeds'
/// spread, it is 0 here (docs/performance.md, "The front of loss against bytes"). Those in two parts are of 6 + 2 micro-batches,
/// the smallest first part that is advised. Bytes are those of blocks of 256. Of another
/// model losses differ: measure them before you rely on them, and pass ways of your own.
inline constexpr way measured_ways[] = {
    {.name = "synchronous", .code = "synchronous{.pace = PACE}"},
    {.name = "synchronous+;gauss4/gauss4",
     .code = "synchronous{.commit = block_gauss4{}, .pace = PACE}",
     .commit = 2 * 130 / 256.0},
    {.name = "synchronous+;gauss4/gauss3",
     .code = "synchronous{.commit = coded{.gradients = block_gauss4{}, .parameters = block_gauss3{}}, .pace = PACE}",
     .commit = (130 + 98) / 256.0,
     .loss_percent = 0.74},
    {.name = "two_phase",
     .code = "two_phase{.pace = PACE}",
     .hides = hidden_part::parts,
     .estimate = way::in_full,
     .loss_percent = 1.47},
    {.name = "two_phase+own/gauss3;gauss4/gauss3",
     .code = "two_phase{.estimate = coded{.gradients = own_slice{}, .parameters = block_gauss3{}}, .commit = coded{.gradients = "
             "block_gauss4{}, .parameters = block_gauss3{}}, .pace = PACE}",
     .hides = hidden_part::parts,
     .estimate = 98 / 256.0,
     .commit = (130 + 98) / 256.0,
     .loss_percent = 0.45},
    {.name = "two_phase+own/gauss3;gauss4/ternary",
     .code = "two_phase{.estimate = coded{.gradients = own_slice{}, .parameters = block_gauss3{}}, .commit = coded{.gradients = "
             "block_gauss4{}, .parameters = block_ternary{}}, .pace = PACE}",
     .hides = hidden_part::parts,
     .estimate = 98 / 256.0,
     .commit = (130 + 54) / 256.0,
     .loss_percent = 0.59},
    {.name = "streaming_diloco+int4",
     .code = "streaming_diloco{.inner = synchronous{.pace = PACE}, .steps = 8, .fragments = 2, .exchange = block_int4{}}",
     .hides = hidden_part::whole,
     .commit = 2 * 132 / 256.0 / 8,
     .every = 8,
     .fragments = 2,
     .loss_percent = 0.62},
};

/// What to expect of a way.
struct proposal {
  way of;
  unsigned first = 0, second = 0;  ///< micro-batches of the parts of a step; without parts all are in `first`
  double step_seconds = 0;         ///< of a step, at best
  double speed = 1;                ///< samples a second, in units of those of `synchronous` without codes
  double of_computation = 1;       ///< and of those of computation without any communication, of which no way has more than 1

  /// `of.code` with this split as its pace, for print: in namespace acco, `two_phase{..., .pace = fixed_pace{.first = 7, .second
  /// = 1}}`.
  [[nodiscard]] std::string code() const {
    std::string all = of.code;
    const std::string pace =
        "fixed_pace{.first = " + std::to_string(first) + (second == 0 ? "}" : ", .second = " + std::to_string(second) + "}");
    constexpr std::string_view place = "PACE";
    for (std::size_t at = 0; (at = all.find(place, at)) != std::string::npos; at += pace.size())
      all.replace(at, place.size(), pace);
    return all;
  }
};

/// What each of `ways` would make of a link; `front()` is the one to take, if it is within `loss_percent`. First come those that
/// are: of those within 3 % of the fastest the one that costs least, and that stands first in `ways`; the slower ones;
/// then all others, the faster ones first. Of a step of one micro-batch ways in parts are left out; empty where none is left.
///
/// With C the seconds of a step's computation and X(b) = fixed + (exchange - fixed) b / bytes those of an exchange of b bytes a
/// parameter, a step takes C + X where nothing is hidden; in two parts max(f C, X(commit)) + max(s C, X(estimate)), f + s = 1,
/// with that s of at most a quarter, or of one micro-batch, which is shortest to half a percent; and where all is hidden, each
/// exchange behind one step of n = every / fragments, (max(C, n X) + (n - 1) C) / n (docs/links.md). Codes are taken to cost no
/// time. Throws `usage_error` for numbers that cannot be seconds, bytes, steps or losses: a `loss_percent` below 0, or more fixed
/// seconds than those of the exchange.
[[nodiscard]] inline std::vector<proposal> advise(step_costs const& costs, std::span<way const> ways, double loss_percent = 1) {
  demand_positive("step_costs::compute_seconds", costs.compute_seconds);
  demand_not_negative("step_costs::exchange_seconds", costs.exchange_seconds);
  demand_not_negative("step_costs::fixed_seconds", costs.fixed_seconds);
  demand_positive("step_costs::bytes", costs.bytes);
  demand_positive("step_costs::micro_batches", costs.micro_batches);
  demand_not_negative("advise's loss_percent", loss_percent);
  if (costs.fixed_seconds > costs.exchange_seconds)
    throw usage_error({},
                      text("step_costs::fixed_seconds is ", costs.fixed_seconds, ", more than exchange_seconds, ",
                           costs.exchange_seconds, ", of which it is a part"),
                      text("Give the part that fewer bytes do not shorten; 0 where it is not known"));
  const double computation = costs.compute_seconds;
  const double fixed = costs.fixed_seconds;
  const auto exchange = [&](way const& w, double bytes) {
    return fixed * w.fragments / w.every +
           (costs.exchange_seconds - fixed) * (bytes == way::in_full ? costs.bytes / w.every : bytes) / costs.bytes;
  };
  std::vector<proposal> all;
  for (way const& w : ways) {
    demand_positive("way::fragments", w.fragments);
    if (w.every == 0 || w.every % w.fragments != 0)
      throw usage_error({}, text("way::every is ", w.every, ", way::fragments ", w.fragments),
                        text("Give a multiple: each fragment travels once in these steps"));
    if (w.commit != way::in_full) demand_not_negative("way::commit", w.commit);
    if (w.estimate != way::in_full) demand_not_negative("way::estimate", w.estimate);
    if (!is_finite(w.loss_percent))
      throw usage_error({}, text("way::loss_percent of '", w.name, "' is ", w.loss_percent), text("Give a finite number"));
    proposal p{.of = w, .first = costs.micro_batches};
    const double commit = exchange(w, w.commit);
    if (w.hides == hidden_part::nothing) {
      p.step_seconds = computation + commit;
    } else if (w.hides == hidden_part::whole) {
      const unsigned steps = w.every / w.fragments;  // between one exchange and the next
      p.step_seconds = (std::max(computation, steps * commit) + (steps - 1) * computation) / steps;
    } else {
      if (costs.micro_batches < 2) continue;  // nothing to split
      const double estimate = exchange(w, w.estimate), one = computation / costs.micro_batches;
      for (unsigned second = 1; second <= std::max(1U, costs.micro_batches / 4); ++second) {
        const unsigned first = costs.micro_batches - second;
        const double step = std::max(first * one, commit) + std::max(second * one, estimate);
        if (p.second != 0 && step >= 0.995 * p.step_seconds) continue;
        p.first = first;
        p.second = second;
        p.step_seconds = step;
      }
    }
    p.speed = (computation + costs.exchange_seconds) / p.step_seconds;
    p.of_computation = computation / p.step_seconds;
    all.push_back(p);
  }
  const auto may = [&](proposal const& p) { return p.of.loss_percent <= loss_percent; };
  double shortest = std::numeric_limits<double>::max();
  for (proposal const& p : all) shortest = may(p) ? std::min(shortest, p.step_seconds) : shortest;
  const auto order = [&](std::size_t k) {  // what comes first, what costs less among these, what is faster
    proposal const& p = all[k];
    const bool taken = may(p) && p.step_seconds <= 1.03 * shortest;
    return std::tuple(!taken, !may(p), taken ? p.of.loss_percent : 0, taken ? 0 : p.step_seconds, k);
  };
  std::vector<std::size_t> places(all.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) { return order(a) < order(b); });
  std::vector<proposal> sorted;
  sorted.reserve(all.size());
  for (const std::size_t k : places) sorted.push_back(all[k]);
  return sorted;
}

}  // namespace ACCO_NAMESPACE
