// SPDX-License-Identifier: Apache-2.0
// Which schedule and which codes a link calls for, and what to expect of each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "acco/advice/link.hpp"
#include "acco/advice/memory.hpp"
#include "acco/advice/virtual_clock.hpp"
#include "acco/advice/way.hpp"
#include "acco/number/require.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What is to be trained, and where.
struct situation {
  unsigned ranks = 2;
  compute_times computing = {};  ///< `step_seconds`: of all micro-batches of a step, without communication
  unsigned micro_batches = 8;    ///< of a step
  network_link joined_by = {};   ///< what joins the ranks; of one rank nothing is asked
  training_size training = {};   ///< what each rank trains

  void check() const {
    require_positive("situation::ranks", ranks);
    require_positive("situation::micro_batches", micro_batches);
    require_positive("training_size::parameters", training.parameters);
    require_positive("training_size::parameter_bytes", training.parameter_bytes);
    require_positive("training_size::gradient_bytes", training.gradient_bytes);
    require_positive("training_size::master_bytes", training.master_bytes);
    if (ranks > 1) joined_by.check();
  }
};

/// What to expect of a way.
struct proposal {
  way of;
  unsigned first = 0, second = 0;  ///< micro-batches of the parts of a step; without parts all are in `first`
  double step_seconds = 0;         ///< of a step
  double speed = 1;                ///< samples a second, in units of those of `synchronous` in full
  double utilisation = 1;          ///< share of the time in which ranks compute
  double memory = 0;               ///< bytes a parameter and rank

  /// `of.code` with this split as its pace, for print: in namespace acco, `two_phase{..., .pace = fixed_pace{.first =
  /// 7, .second = 1}}`.
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

/// Seconds of a step of the slowest rank.
[[nodiscard]] inline double slowest(compute_times const& of) {
  double most = of.of_ranks.empty() ? of.step_seconds : 0;
  for (const double seconds : of.of_ranks) most = std::max(most, seconds);
  return most;
}

/// Seconds of an exchange of `wire`, or of one of its `fragments`. Where ranks train by themselves masters travel.
[[nodiscard]] inline double seconds_of(situation const& in, wire_bytes const& wire, way const& of, bool is_first = false) {
  training_size const& t = in.training;
  const double gradients = of.is_local() ? t.master_bytes : t.gradient_bytes;
  const double parameters = of.is_local() ? t.master_bytes : t.parameter_bytes;
  const double bytes = (wire.gradients == wire_bytes::in_full ? gradients : wire.gradients) +
                       (wire.parameters == wire_bytes::in_full ? parameters : wire.parameters);
  return in.joined_by.seconds(bytes * t.parameters / of.fragments, in.ranks, is_first);
}

/// The parts that a training under `of` goes through again and again: of steps of two parts, the second of `second`
/// micro-batches, else of whole steps.
[[nodiscard]] inline std::vector<timed_part> period_of(way const& of, situation const& in, unsigned second = 0) {
  const auto part = [&](double steps, wire_bytes const& wire, unsigned delay) {
    return timed_part{.steps = steps,
                      .exchanges = true,
                      .seconds = seconds_of(in, wire, of),
                      .first_seconds = seconds_of(in, wire, of, true),
                      .delay = delay};
  };
  if (of.in_parts) {
    const double share = static_cast<double>(second) / in.micro_batches;
    return {part(1 - share, of.estimate, 1), part(share, of.commit, 1)};
  }
  std::vector<timed_part> steps(of.every / of.fragments);
  steps.back() = part(1, of.commit, of.delay);
  return steps;
}

/// Throws `usage_error` where numbers of a way cannot be bytes, steps or losses.
inline void check_way(way const& of) {
  require_positive("way::every", of.every);
  require_positive("way::fragments", of.fragments);
  if (of.every % of.fragments != 0 || (of.in_parts && of.is_local()) || of.delay > of.every)
    throw usage_error({}, text("way '", of.name, "': every is ", of.every, ", fragments ", of.fragments, ", delay ", of.delay),
                      text("Give fragments that divide the steps between exchanges, and a delay of at most these; parts have "
                           "exchanges in every step"));
  for (const double bytes : {of.estimate.gradients, of.estimate.parameters, of.commit.gradients, of.commit.parameters}) {
    if (bytes != wire_bytes::in_full) require_not_negative("bytes of a message", bytes);
  }
  if (!is_finite(of.loss_percent))
    throw usage_error({}, text("way::loss_percent of '", of.name, "' is ", of.loss_percent), text("Give a finite number"));
}

/// What to expect of `of`, by the virtual clock: `rounds` periods after a first one, in which connections are opened. A
/// step in two parts is split as it is shortest to half a percent, the second part at most a quarter, or one
/// micro-batch (docs/stability.md says why). Its `speed` is left at 1.
[[nodiscard]] inline proposal expect(way const& of, situation const& in, std::size_t rounds = 100) {
  in.check();
  check_way(of);
  require_positive("expect's rounds", static_cast<double>(rounds));
  proposal p{.of = of, .first = in.micro_batches, .memory = memory_per_parameter(of, in.training, in.ranks)};
  if (of.in_parts) {
    if (in.micro_batches < 2)
      throw usage_error({}, text("a step of one micro-batch has no second part for '", of.name, "'"), text("Give two or more"));
    const double estimate = seconds_of(in, of.estimate, of), commit = seconds_of(in, of.commit, of);
    const double whole = slowest(in.computing);
    double shortest = std::numeric_limits<double>::max();
    for (unsigned second = 1; second <= std::max(1U, in.micro_batches / 4); ++second) {
      const double share = whole * second / in.micro_batches;
      const double step = std::max(whole - share, commit) + std::max(share, estimate);
      if (step >= 0.995 * shortest) continue;
      shortest = step;
      p.second = second;
    }
    p.first -= p.second;
  }
  const std::vector<timed_part> period = period_of(of, in, p.second);
  const timeline seen = simulate(in.computing, in.ranks, period, (rounds + 1) * period.size(), period.size());
  p.step_seconds = seen.step_seconds();
  p.utilisation = seen.utilisation();
  if (!is_finite(p.step_seconds) || p.step_seconds <= 0) {
    throw usage_error({}, text("a step of '", of.name, "' would take ", p.step_seconds, " s"),
                      text("Give seconds, parameters, bytes and rates whose products and quotients are numbers"));
  }
  return p;
}

/// What each of `ways` would make of a situation; `front()` is the one to take, if it is within `loss_percent` and
/// `memory`, bytes a parameter. First come those that are: of those within 3 % of the fastest the one that costs least:
/// in loss by half a percent, less than seeds differ, then in whole bytes of memory; then that which stands first in
/// `ways`. Then the slower ones, then all others, the faster ones first. Of a step of one micro-batch ways in parts are
/// left out; empty where none is left.
///
/// With C the seconds of a step's computation and X those of an exchange, a step takes C + X where nothing is hidden;
/// in two parts max(f C, X(commit)) + max(s C, X(estimate)), f + s = 1; a step late max(C, X); every H steps C + X / H
/// where ranks wait; behind a step, in P fragments, (max(C, X/P) + (H/P - 1) C) P / H: the clock says what ranks that
/// differ make of it. Codes are taken to cost no time (docs/links.md). Throws `usage_error` for numbers that
/// cannot be seconds, bytes, steps or losses.
[[nodiscard]] inline std::vector<proposal> advise(situation const& in, std::span<way const> ways = measured_ways,
                                                  double loss_percent = 1, double memory = std::numeric_limits<double>::max()) {
  require_not_negative("advise's loss_percent", loss_percent);
  require_positive("advise's memory", memory);
  const double measure = expect(measured_ways[0], in).step_seconds;
  std::vector<proposal> all;
  for (way const& of : ways) {
    if (of.in_parts && in.micro_batches < 2) continue;
    all.push_back(expect(of, in));
    all.back().speed = measure / all.back().step_seconds;
  }
  const auto may = [&](proposal const& p) { return p.of.loss_percent <= loss_percent && p.memory <= memory; };
  double shortest = std::numeric_limits<double>::max();
  for (proposal const& p : all) shortest = may(p) ? std::min(shortest, p.step_seconds) : shortest;
  const auto order = [&](std::size_t k) {  // what comes first, what costs less among these, what is faster
    const bool taken = may(all[k]) && all[k].step_seconds <= 1.03 * shortest;
    return std::tuple(!taken, !may(all[k]), taken ? std::floor(2 * all[k].of.loss_percent) : all[k].step_seconds,
                      taken ? std::round(all[k].memory) : 0, k);
  };
  std::vector<std::size_t> places(all.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) { return order(a) < order(b); });
  std::vector<proposal> sorted;
  sorted.reserve(all.size());
  for (const std::size_t k : places) sorted.push_back(all[k]);
  return sorted;
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
