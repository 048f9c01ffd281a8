// SPDX-License-Identifier: Apache-2.0
// What a person sees at the end: of one run, or of a comparison. 80 columns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "curve.hpp"
#include "settings.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace toy_gpt {

constexpr int bold = 1;

inline void print_title(std::string const& title) { std::printf("\n%s\n", painted(title, bold).c_str()); }

inline void print_sample(std::string const& text) {
  print_title("what it writes (after a few words of the validation text)");
  std::string line = "  | ";
  const auto end_line = [&line] {
    std::printf("%s\n", line.c_str());
    line = "  | ";
  };
  for (const char c : text) {
    if (c == '\n' || line.size() == 80) end_line();
    if (c != '\n') line += static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126 ? '?' : c;
  }
  end_line();
}

/// The loss of one run over its sequences.
inline void print_curve(summary const& r, corpus const& text) {
  curve training{.line = {}, .marks = {}, .mark = {}, .colour = 36},
      validation{.line = {}, .marks = {}, .mark = writes_unicode() ? "\u25cf" : "o", .colour = 33};
  double low = 1e9, high = text.unigram_loss();
  for (point const& p : r.training) {
    training.line.emplace_back(p.samples, p.loss);
    low = std::min(low, p.loss);
    high = std::max(high, p.loss);
  }
  for (point const& p : r.validation) {
    validation.marks.emplace_back(p.samples, p.loss);
    low = std::min(low, p.loss);
    high = std::max(high, p.loss);
  }
  print_title("loss in nats a byte");
  draw_curves({training, validation}, {{text.unigram_loss(), "byte frequencies"}}, r.samples, low, high,
              "sequences (line: training, smoothed; " + validation.mark + ": validation)");
}

inline std::string seconds_for_people(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 10 ? "%.2f s" : "%.1f s", seconds);
  return text;
}

inline void print_result(summary const& r, settings const& s, corpus const& text) {
  const auto row = [](std::string const& name, std::string const& value) {
    std::printf("  %-32s %s\n", name.c_str(), value.c_str());
  };
  const auto number = [](char const* format, auto... values) {
    char words[96];
    std::snprintf(words, sizeof words, format, values...);
    return std::string(words);
  };
  if (r.stopped) print_title(number("stopped after %.0f of %zu sequences; so far:", r.samples, s.samples));
  if (r.unsaved) {
    print_title("not saved: " + r.saved);
  } else if (!r.saved.empty()) {
    print_title("saved in " + r.saved);
    if (r.stopped) std::printf("  the same command with --resume %s goes on there\n", s.save.c_str());
  }
  print_title("validation loss, in nats a byte: lower is better");
  row("uniform over 256 bytes", number("%.4f", corpus::uniform_loss()));
  row("byte frequencies", number("%.4f", text.unigram_loss()));
  row("this model, " + r.schedule,
      painted(number("%.4f", r.validation_loss), bold) + number("  (%.2f bits a byte)", r.validation_loss / std::log(2.0)));
  print_title("speed");
  row("training",
      seconds_for_people(r.seconds) + number(" for %.0f steps, %.0f sequences", static_cast<double>(r.steps), r.samples));
  row("sequences a second", number("%.1f  (%.1f thousand bytes of text)", r.samples_per_second,
                                   r.samples_per_second * static_cast<double>(s.model.context) / 1000));
  if (r.communication_seconds > 0) {
    const double open = std::min(r.exposed_seconds, r.communication_seconds);
    row("communication", seconds_for_people(r.communication_seconds) + (s.ranks > 1 ? " on rank 0" : ""));
    row("communication hidden", painted(number("%.1f %%", 100 * r.hidden_fraction), bold) + ": " +
                                    seconds_for_people(r.communication_seconds - open) + " behind computation, " +
                                    seconds_for_people(open) + " waited for");
  }
  row("sent by each rank", bytes_for_people(static_cast<double>(r.bytes_sent)));
  if (r.schedule.starts_with("two_phase")) row("micro-batches of a step", number("%u + %u", r.first, r.second));
  if (!r.progress.empty()) row("messages moved by", r.progress);
}

/// The runs beside each other. Ratios are to synchronous, or to the first run where it is missing.
inline void print_comparison(std::vector<summary> const& runs, settings const& s, corpus const& text) {
  std::size_t base = 0;
  for (std::size_t k = runs.size(); k-- > 0;) {
    if (runs[k].schedule == "synchronous") base = k;
  }
  const auto letter = [](std::size_t k) { return std::string(1, static_cast<char>('A' + k % 26)); };
  const auto colour = [](std::size_t k) { return 31 + static_cast<int>(k % 6); };

  std::vector<curve> curves;
  double right = 0, low = 1e9, high = 0;
  for (std::size_t k = 0; k < runs.size(); ++k) {
    curve one{.line = {}, .marks = {}, .mark = letter(k), .colour = colour(k)};
    for (point const& p : runs[k].validation) {
      one.line.emplace_back(p.seconds, p.loss);
      right = std::max(right, p.seconds);
      low = std::min(low, p.loss);
      high = std::max(high, p.loss);
    }
    one.marks = one.line;
    curves.push_back(std::move(one));
  }
  print_title("validation loss in nats a byte, over the seconds of training; a letter is a row below");
  high = std::min(high, corpus::uniform_loss());  // worse is divergence, and would flatten the others
  draw_curves(curves, {{text.unigram_loss(), "byte frequencies"}}, right, low, high, "seconds");

  summary const& b = runs[base];
  print_title("the same model, text and seed with each schedule, on " + std::to_string(s.ranks) + " ranks");
  std::printf("%25s %15s %17s %19s\n", "", "validation loss", "training", "communication");
  std::printf("  %-23s %6s %8s %8s %8s %9s %10s\n", "schedule", "nats", "change", "seconds", "speed", "hidden", "sent");
  for (std::size_t k = 0; k < runs.size(); ++k) {
    summary const& r = runs[k];
    char change[16] = "baseline", speed[16];
    if (k != base) std::snprintf(change, sizeof change, "%+.1f %%", 100 * (r.validation_loss / b.validation_loss - 1));
    std::snprintf(speed, sizeof speed, "%.2f x", r.samples_per_second / b.samples_per_second);
    std::printf("%s %-23s %6.4f %8s %8.1f %8s %7.0f %% %10s\n", painted(letter(k), colour(k)).c_str(), r.schedule.c_str(),
                r.validation_loss, change, r.seconds, speed, 100 * r.hidden_fraction,
                bytes_for_people(static_cast<double>(r.bytes_sent)).c_str());
    if (r.stopped) std::printf("  (stopped after %.0f of %zu sequences)\n", r.samples, s.samples);
  }
  std::printf("\n  nats     a byte, lower is better; byte frequencies alone reach %.4f\n", text.unigram_loss());
  std::printf("  change   of the loss against %s: below 0 is better\n", b.schedule.c_str());
  std::printf("  speed    sequences a second against %s: above 1 x is faster\n", b.schedule.c_str());
  std::printf("  hidden   share of the communication's seconds that passed behind computation\n");
  std::printf("  sent     bytes that each rank sent\n");
}

/// Where the files of a run lie, and what opens them.
inline void print_files(settings const& s) {
  print_title("files");
  std::string none;
  const auto show = [&none](char const* what, std::string const& file, char const* how) {
    if (file.empty()) {
      none += std::string(none.empty() ? "" : ", ").append("--").append(what).append(" FILE");
    } else {
      std::printf("  %-6s %s\n         %s\n", what, std::filesystem::absolute(file).c_str(), how);
    }
  };
  show("plot", s.plot, "an SVG: xdg-open shows it, and so does any browser");
  show("log", s.log, "text: one JSON object a round, the last one is the summary");
  show("trace", s.trace, "every round of every rank: drop the file on https://ui.perfetto.dev");
  if (!none.empty()) std::printf("  not written: %s\n", none.c_str());
  if (s.compare.size() < 2) std::printf("\nto compare schedules: --compare synchronous,two_phase,two_phase+int4 --link 200\n");
}

}  // namespace toy_gpt
