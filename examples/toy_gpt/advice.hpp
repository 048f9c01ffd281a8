// SPDX-License-Identifier: Apache-2.0
// --advise: a few steps of synchronous are measured, and what each schedule would make of this link is told.
#pragma once

#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include <acco/schedule/advice.hpp>

#include "programs.hpp"
#include "runner.hpp"
#include "screen.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

/// The flags by which this program trains as proposed.
inline std::string flags_of(acco::proposal const& p) {
  const std::string name = p.of.name;
  const std::size_t plus = name.find('+');
  std::string flags = "--schedule " + name.substr(0, plus) + " --micro-batches " + std::to_string(p.first);
  if (p.second != 0) flags += ":" + std::to_string(p.second);
  if (p.of.every > 1) flags += " --local-steps " + std::to_string(p.of.every);
  if (plus == std::string::npos) return flags;
  const std::string wire = name.substr(plus + 1);
  const std::size_t semicolon = wire.find(';');
  if (semicolon == std::string::npos) return flags + " --exchange " + wire;
  if (semicolon != 0) flags += " --estimate " + wire.substr(0, semicolon);
  return flags + " --commit " + wire.substr(semicolon + 1);
}

/// Every rank trains; rank 0 tells.
inline void advise(settings s, runner& ranks, corpus const& text, std::string const& source) {
  constexpr std::size_t steps = 12;
  s.schedule = "synchronous";
  s.estimate = s.commit = "full";
  s.first += s.second;
  s.second = 0;
  s.samples = steps * static_cast<std::size_t>(s.ranks) * s.batch * s.first;
  s.validations = 1;
  const bool speaks = !s.quiet;
  s.quiet = true;
  job one{s, text, source, nullptr, {}, {}, {}, {}};
  ranks.train(one);
  if (!speaks) return;
  const auto each = static_cast<double>(one.result.steps);
  const acco::step_costs costs{.compute_seconds = one.result.compute_seconds / each,
                               .exchange_seconds = one.result.communication_seconds / each,
                               .bytes = s.dtype == "bfloat16" ? 4.0 : 8.0,
                               .micro_batches = s.first};
  const std::vector<acco::proposal> all = acco::advise(costs, acco::measured_ways);
  print_title("a step of synchronous on " + std::to_string(s.ranks) + " ranks: " + std::to_string(s.first) + " micro-batches");
  std::printf("  computes for %.4g s and communicates for %.4g s (means of %.0f steps of rank 0)\n", costs.compute_seconds,
              costs.exchange_seconds, each);
  print_title("what to expect of others, the one to take first (acco::advise)");
  std::printf("  %-38s %6s %10s %7s %8s %7s\n", "schedule", "split", "step, s", "speed", "of all", "loss");
  for (acco::proposal const& p : all) {
    const std::string split = p.second == 0 ? "" : std::to_string(p.first) + ":" + std::to_string(p.second);
    std::printf("  %-38s %6s %10.4g %5.2f x %6.0f %% %+5.1f %%\n", p.of.name, split.c_str(), p.step_seconds, p.speed,
                100 * p.of_computation, p.of.loss_percent);
  }
  if (all.size() < std::size(acco::measured_ways))
    std::printf("  two_phase is left out: it splits a step, and one micro-batch cannot be split (--micro-batches 8, say)\n");
  std::printf(
      "\n  schedule SCHEDULE+ESTIMATE;COMMIT, or +EXCHANGE of local updates: the codes of GRADIENTS/PARAMETERS, or one for\n");
  std::printf("           both; own: parameters alone travel, predicted from their owner's own gradients (docs/coarse.md)\n");
  std::printf("  split    micro-batches of a step's parts, where it has two\n");
  std::printf("  step     seconds, at best\n");
  std::printf("  speed    sequences a second against synchronous\n");
  std::printf("  of all   the speed, where all of it would be if nothing were sent\n");
  std::printf("  loss     that a small GPT had more than with synchronous: docs/links.md\n");
  std::printf("\n  in C++, in namespace acco (streaming_diloco: <acco/outer.hpp>)\n");
  for (acco::proposal const& p : all) std::printf("  %-38s %s\n", p.of.name, p.code().c_str());
  if (s.backend != "threads" || s.device == "cuda" || s.dtype != "float" || s.rule != "adamw") return;  // toy_gpt_family's
  std::printf("\n  the first one, here\n");
  if (!has_family) std::printf("  build it:  %s\n", build_family);
  std::printf("  start it:  %s %s, and your other flags\n", start_family, flags_of(all.front()).c_str());
}

}  // namespace toy_gpt
