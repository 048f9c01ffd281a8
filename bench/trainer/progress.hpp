// SPDX-License-Identifier: Apache-2.0
// What a person sees while a model trains: what it is, and one live line (plain lines when the output is not a
// terminal).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <acco/layout/parameter_layout.hpp>
#include <acco/observe/memory_table.hpp>
#include <acco/observe/round_report.hpp>

#include "matrix.hpp"
#include "settings.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace toy_gpt {

inline void print_model(settings const& s, acco::parameter_layout const& layout, acco::memory_table const& memory,
                        corpus const& text, std::string const& source) {
  std::printf("model     GPT, %zu layers, width %zu, %zu heads, context %zu, %zu parameters in %zu tensors\n", s.model.layers,
              s.model.width, s.model.heads, s.model.context, layout.size(), layout.tensor_count());
  std::printf("text      %s: %zu bytes to train on, %zu to validate\n", source.c_str(), text.training_bytes(),
              text.validation_bytes());
  std::printf("products  %s\n", name_of_products().c_str());
  std::printf("training  %s, %s, learning rate %g, %d ranks over %s, %zu sequences a micro-batch, %s\n", s.label().c_str(),
              s.rule.c_str(), s.rate(), s.ranks, s.backend.c_str(), s.batch, s.dtype.c_str());
  std::printf("memory of one rank\n");
  for (auto const& row : memory.rows()) {
    if (row.bytes != 0) std::printf("  %-24s %12s\n", row.name, bytes_for_people(static_cast<double>(row.bytes)).c_str());
  }
  std::printf("  %-24s %12s\n\n", "total", bytes_for_people(static_cast<double>(memory.total())).c_str());
}

class progress_line {
 public:
  progress_line(settings const& s) : settings_(s), terminal_(is_terminal()) {}

  void show(acco::round_report const& report, double loss, double seconds, acco::round_totals const& totals) {
    if (settings_.quiet) return;
    const double goal = static_cast<double>(settings_.samples);
    const double share = share_of(report.samples);
    if (seconds < next_time_ && share < next_share_) return;
    if (!terminal_ && share < next_share_) return;
    next_time_ = seconds + 0.2;
    next_share_ = std::min(share + 0.05, 1.0);
    const double rate = seconds > 0 ? report.samples / seconds : 0;
    char left[48] = "-:--";  // until a step is committed
    if (rate > 0) {
      const long seconds_left = std::max(0L, std::lround((goal - report.samples) / rate));
      std::snprintf(left, sizeof left, "%ld:%02ld", seconds_left / 60, seconds_left % 60);
    }
    constexpr int width = 10;  // the line fits 80 columns
    const int full = static_cast<int>(share * width);
    const std::string bar = std::string(static_cast<std::size_t>(full), '=') + (full < width ? ">" : "") +
                            std::string(static_cast<std::size_t>(std::max(0, width - full - 1)), ' ');
    std::printf("%s[%s] %3.0f %%  ETA %s  loss %.3f  norm %.2f  %.1fk tok/s  hidden %2.0f %%%s", terminal_ ? "\r\033[K" : "",
                bar.c_str(), 100 * share, left, loss, report.gradient_norm,
                rate * static_cast<double>(settings_.model.context) / 1000, 100 * totals.hidden_fraction(),
                terminal_ ? "" : "\n");
    std::fflush(stdout);
    open_ = terminal_;
  }

  void validated(double samples, double seconds, double loss) {
    if (settings_.quiet) return;
    close();
    std::printf("  validation after %6.0f sequences, %5.1f s: %.4f\n", samples, seconds, loss);
    std::fflush(stdout);
  }
  /// Where the run is to be found again, or why not.
  void saved(summary const& result) {
    close();
    if (result.unsaved) {
      std::fprintf(stderr, "toy_gpt: not saved: %s\n", result.saved.c_str());
    } else if (!settings_.quiet) {
      std::printf("  saved %s\n", result.saved.c_str());
      std::fflush(stdout);
    }
  }
  void resumed(std::string const& path, double samples, std::vector<std::string> const& skipped) {
    for (std::string const& each : skipped) std::fprintf(stderr, "toy_gpt: passed over: %s\n", each.c_str());
    if (settings_.quiet) return;
    std::printf("going on from %s, after %.0f sequences\n", path.c_str(), samples);
    std::fflush(stdout);
  }
  /// The share of the run after which the next line is due: for a run that goes on.
  [[nodiscard]] double next_share() const { return next_share_; }
  void skip_to(double share) { next_share_ = share; }
  /// A line that was due there has been shown before.
  void shown_at(double samples) {
    if (const double share = share_of(samples); share >= next_share_) next_share_ = std::min(share + 0.05, 1.0);
  }
  void close() {
    if (open_) std::printf("\n");
    open_ = false;
  }

 private:
  [[nodiscard]] double share_of(double samples) const { return std::min(1.0, samples / static_cast<double>(settings_.samples)); }

  settings const& settings_;
  bool terminal_, open_ = false;
  double next_time_ = 0, next_share_ = 0;
};

}  // namespace toy_gpt
