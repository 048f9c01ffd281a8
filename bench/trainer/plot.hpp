// SPDX-License-Identifier: Apache-2.0
// Loss against samples and against seconds, drawn by gnuplot: validated points as lines, the smoothed training loss
// dotted.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "settings.hpp"

namespace toy_gpt {

/// Called before training, so that nobody trains for an hour and then cannot draw.
inline void require_gnuplot() {
  if (std::system("command -v gnuplot > /dev/null 2>&1") != 0)
    throw std::runtime_error("--plot needs gnuplot: install gnuplot-nox, or leave --plot out");
}

inline void plot(std::vector<summary> const& runs, std::string const& file) {
  const std::unique_ptr<FILE, int (*)(FILE*)> gnuplot(popen("gnuplot", "w"), pclose);
  if (!gnuplot) throw std::runtime_error("gnuplot could not be started");
  FILE* const out = gnuplot.get();
  std::string quoted;
  for (const char c : file) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  std::fprintf(out, "set terminal svg size 1100,460 font 'sans,13'\nset output '%s'\n", quoted.c_str());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    for (auto const& [kind, points] : {std::pair{"t", &runs[k].training}, {"v", &runs[k].validation}}) {
      std::fprintf(out, "$%s%zu << END\n", kind, k);
      for (point const& p : *points) std::fprintf(out, "%.6g %.6g %.6g\n", p.samples, p.seconds, p.loss);
      std::fprintf(out, "END\n");
    }
  }
  double low = 1e9, high = 0;  // what the validated points span: the start of the curves would flatten them
  for (summary const& run : runs) {
    for (point const& p : run.validation) {
      low = std::min(low, p.loss);
      high = std::max(high, p.loss);
    }
  }
  const double margin = 0.08 * (high - low) + 0.01;
  std::fprintf(out, "set yrange [%.6g:%.6g]\nset xrange [0:*]\nset autoscale xfixmax\n", low - margin, high + margin);
  std::fprintf(
      out,
      "set multiplot layout 1,2\nset grid lc rgb '#dddddd'\nset ylabel 'validation loss (nats per byte)'\nset key top right\n");
  for (int panel = 0; panel < 2; ++panel) {
    std::fprintf(out, "set xlabel '%s'\nplot ", panel == 0 ? "samples (sequences, all ranks)" : "seconds");
    for (std::size_t k = 0; k < runs.size(); ++k) {
      std::fprintf(out,
                   "%s$t%zu using %d:3 with lines lw 1 lc %zu dt 3 notitle, $v%zu using %d:3 with linespoints lw 2 pt 7 ps 0.5 "
                   "lc %zu title '%s' noenhanced",
                   k == 0 ? "" : ", ", k, panel + 1, k + 1, k, panel + 1, k + 1, runs[k].schedule.c_str());
    }
    std::fprintf(out, "\n");
  }
  std::fprintf(out, "unset multiplot\n");
}

}  // namespace toy_gpt
