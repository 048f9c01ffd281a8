// SPDX-License-Identifier: Apache-2.0
// --schedule auto: some steps of synchronous are measured, and the run follows what acco::advise makes of them.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <acco/advice.hpp>

#include "runner.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

/// Of the ways that acco has measured those that this program makes from these settings.
inline std::vector<acco::way> ways_of(settings const& s) {
  const bool plain = has_family && s.backend == "threads" && s.device != "cuda" && s.dtype == "float" && s.rule == "adamw";
  std::vector<acco::way> made;
  for (acco::way const& each : acco::measured_ways) {
    if (std::find(labels().begin(), labels().end(), each.name) != labels().end() && (plain || !each.is_local()))
      made.push_back(each);
  }
  return made;
}

/// Trains for eight steps to measure, on every rank; returns the settings that are advised, alike on all of them.
inline settings follow_advice(settings s, runner& ranks, corpus const& text, std::string const& source) {
  constexpr unsigned steps = 8;
  s.first += s.second;
  s.second = 0;
  settings measuring = s;
  measuring.schedule = "synchronous";
  measuring.samples = steps * static_cast<std::size_t>(s.ranks) * s.batch * s.first;
  measuring.validations = 1;
  measuring.save.clear();
  measuring.quiet = true;
  job one{measuring, text, source, nullptr, {}, {}, {}, {}};
  ranks.train(one);
  if (one.result.stopped) return measuring;  // by a signal: so will the next run be

  const double compute = one.result.mean_compute_seconds / steps, communicate = one.result.mean_communication_seconds / steps;
  const double bytes = s.dtype == "bfloat16" ? 2 : 4;
  const auto size = static_cast<double>(one.result.parameters);
  const auto count = static_cast<unsigned>(s.ranks);
  const acco::situation in{.ranks = count,
                           .computing = {.step_seconds = compute},
                           .micro_batches = s.first,
                           .joined_by = acco::link_of(std::max(communicate, 1e-9), 2 * bytes * size, count),
                           .training = {.parameters = size, .parameter_bytes = bytes, .gradient_bytes = bytes}};
  const acco::proposal best = acco::advise(in, ways_of(s)).front();
  s.choose(best.of.name);
  s.first = best.first;
  s.second = best.second;
  s.local_steps = best.of.every;
  if (!s.quiet)
    std::printf(
        "schedule %s, --micro-batches %u%s: a step of synchronous computes for %.3g s and communicates for %.3g s; "
        "expected: %.2f x its speed, a loss %+.2f %% (docs/links.md)\n",
        best.of.name, s.first, s.second != 0 ? (":" + std::to_string(s.second)).c_str() : "", compute, communicate, best.speed,
        best.of.loss_percent);
  return s;
}

}  // namespace toy_gpt
