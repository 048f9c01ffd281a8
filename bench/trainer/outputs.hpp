// SPDX-License-Identifier: Apache-2.0
// What a program leaves behind: a log and a trace in files, a plot, and what a person sees at the end.
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <acco/observe/trace.hpp>

#include "runner.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace toy_gpt {

/// Of all runs of one process.
class outputs {
 public:
  /// Opens what the settings name. `rank`: the lowest of this process.
  outputs(settings const& s, int rank);
  /// Where the rounds of a run go, and the events of all.
  [[nodiscard]] round_sink sink();
  [[nodiscard]] acco::trace* trace() { return trace_ ? &*trace_ : nullptr; }
  /// A run has ended.
  void ended(summary const& result, settings const& one);
  /// All have: writes and prints.
  void close(corpus const& text, std::string const& sample);

 private:
  void go_on(std::size_t round);

  settings const& settings_;
  bool speaks_;
  bool goes_on_;  // with the log of a run before this one
  std::ofstream log_, trace_file_;
  std::optional<acco::trace> trace_;
  std::vector<summary> runs_;
};

}  // namespace toy_gpt
