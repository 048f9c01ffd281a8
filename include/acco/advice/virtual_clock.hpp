// SPDX-License-Identifier: Apache-2.0
// When ranks compute and when they wait: a training of any number of ranks in virtual time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/code/mix_bits.hpp"
#include "acco/number/require.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What ranks compute. Seconds of a step vary from step to step by `jitter`, a standard deviation in units of their
/// mean (a bell of at most 3.45 of these, from a hash of the seed).
struct compute_times {
  double step_seconds = 0;               ///< on each rank
  std::span<double const> of_ranks = {}; /**< in place of it, one a rank */
  double jitter = 0;                     ///< at most 1
  std::uint32_t seed = 1;
};

/// A part of a step, or a whole one, at whose end an exchange may start.
struct timed_part {
  double steps = 1;          ///< of computation
  bool exchanges = false;    ///< when all ranks have come to its end, and the exchange before it has ended
  double seconds = 0;        ///< of the exchange
  double first_seconds = 0;  ///< of the exchange, if it is the first of all
  unsigned delay = 0;        ///< parts until ranks need what it brings; 0: they wait
};

/// What has been seen of some parts: means over the ranks.
struct timeline {
  double steps = 0;
  double seconds = 0;            ///< from the first of these parts to the last
  double computing_seconds = 0;  ///< of these

  [[nodiscard]] double step_seconds() const { return seconds / steps; }
  [[nodiscard]] double utilisation() const { return computing_seconds / seconds; }
};

/// Lets `ranks` go through `parts` parts, those of `period` again and again, and looks at all but the first `skipped`.
/// A rank's clock moves on as it computes. An exchange begins when the last rank has come to it and the link is free,
/// and ends `seconds` later; a rank that needs it waits until then. N ranks and P parts take O(N P): some nanoseconds
/// for each.
[[nodiscard]] inline timeline simulate(compute_times const& computing, unsigned ranks, std::span<timed_part const> period,
                                       std::size_t parts, std::size_t skipped = 0) {
  require_positive("simulate's ranks", ranks);
  require_part("compute_times::jitter", computing.jitter);
  if (period.empty() || parts <= skipped)
    throw usage_error({},
                      text("simulate was given ", period.size(), " parts as a period, ", parts, " in all, ", skipped, " skipped"),
                      text("Give at least one part as a period, and more parts in all than are skipped"));
  if (!computing.of_ranks.empty() && computing.of_ranks.size() != ranks)
    throw usage_error({}, text("compute_times::of_ranks has ", computing.of_ranks.size(), " numbers for ", ranks, " ranks"),
                      text("Give one a rank, or none and step_seconds"));
  std::vector<double> steps_of(ranks, computing.step_seconds);
  std::copy(computing.of_ranks.begin(), computing.of_ranks.end(), steps_of.begin());
  for (const double seconds : steps_of) require_positive("a rank's seconds of a step", seconds);

  struct flight {
    std::size_t due;
    double ends;
  };
  std::vector<flight> under_way;
  std::vector<double> now(ranks, 0.0), computed(ranks, 0.0);
  bool is_first = true;
  double free = 0;
  timeline seen;
  const auto sum = [](std::vector<double> const& of) {
    double all = 0;
    for (const double each : of) all += each;
    return all / static_cast<double>(of.size());
  };
  for (std::size_t k = 0; k < parts; ++k) {
    timed_part const& part = period[k % period.size()];
    if (k == skipped) seen = {.steps = 0, .seconds = -sum(now), .computing_seconds = -sum(computed)};
    seen.steps += part.steps;
    const std::uint32_t key = mix_bits(computing.seed + static_cast<std::uint32_t>(k) * 0x85ebca77U);
    double last = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      double seconds = steps_of[i] * part.steps;
      if (computing.jitter > 0) {  // four bytes of a hash: their sum has a standard deviation of 147.8
        const std::uint32_t h = mix_bits(key ^ static_cast<std::uint32_t>(i));
        const auto bytes = static_cast<int>((h & 255U) + ((h >> 8U) & 255U) + ((h >> 16U) & 255U) + (h >> 24U));
        seconds *= std::max(0.0, 1 + computing.jitter / 147.8 * (bytes - 510));
      }
      computed[i] += seconds;
      now[i] += seconds;
      last = std::max(last, now[i]);
    }
    const auto wait_until = [&](double moment) {
      for (double& each : now) each = std::max(each, moment);
      last = std::max(last, moment);
    };
    std::erase_if(under_way, [&](flight const& each) {
      if (each.due <= k) wait_until(each.ends);
      return each.due <= k;
    });
    if (!part.exchanges) continue;
    free = std::max(free, last) + (is_first ? part.first_seconds : part.seconds);
    is_first = false;
    if (part.delay == 0) {
      wait_until(free);
    } else {
      under_way.push_back({k + part.delay, free});
    }
  }
  seen.seconds += sum(now);
  seen.computing_seconds += sum(computed);
  return seen;
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
