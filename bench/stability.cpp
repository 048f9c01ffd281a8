// SPDX-License-Identifier: Apache-2.0
// How large a step each schedule bears: the largest rate * curvature at which heavy ball converges on a parabola,
// measured with the library's own engine, beside the closed forms (docs/stability.md).
//
//   bench_stability [FILE.svg]          the picture needs gnuplot
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "support/parabolas.hpp"
#include "support/spectrum.hpp"

namespace {

using spectrum::point;

struct form {
  char const *name, *colour;
  std::function<std::vector<std::vector<double>>(double momentum, std::vector<double> const& k)> train;
  std::function<spectrum::matrix(point)> matrix;
};

template <class Schedule>
form made(char const* name, char const* colour, Schedule schedule, std::size_t rounds_a_step,
          std::function<spectrum::matrix(point)> matrix) {
  return {name, colour,
          [=](double momentum, std::vector<double> const& k) {
            return parabolas::after_commits(parabolas::train(schedule, momentum, k, 2000 * rounds_a_step));
          },
          std::move(matrix)};
}
form split(char const* name, char const* colour, unsigned first, unsigned second) {
  const double share = static_cast<double>(first) / (first + second);
  return made(name, colour, acco::two_phase{.pace = acco::fixed_pace{.first = first, .second = second}}, 2,
              [share](point at) { return spectrum::two_phase(at, share); });
}

constexpr double step = 0.005;

/// Whether the end of a sequence is larger than its middle.
bool grows(std::vector<double> const& x) {
  const auto largest = [&](double from, double to) {
    double found = 0;
    for (auto t = static_cast<std::size_t>(from * static_cast<double>(x.size()));
         t < static_cast<std::size_t>(to * static_cast<double>(x.size())); ++t)
      found = std::max(found, std::abs(x[t]));
    return found;
  };
  return largest(0.8, 1) > largest(0.5, 0.7);
}
/// The first k of a grid at which the iterates grow.
double first_that_grows(form const& of, double momentum, double from, double to, double by) {
  std::vector<double> k;
  for (double each = from; each < to; each += by) k.push_back(each);
  const auto iterates = of.train(momentum, k);
  for (std::size_t i = 0; i < k.size(); ++i) {
    if (grows(iterates[i])) return k[i];
  }
  return to;
}
double measured(form const& of, double momentum) {
  const double about = first_that_grows(of, momentum, 0.05, 4.2, 0.05);
  return first_that_grows(of, momentum, std::max(step, about - 0.1), about + 0.05, step);
}

}  // namespace

int main(int count, char** words) {
  const form forms[] = {
      made("synchronous", "#9ecae1", acco::synchronous{}, 1, [](point at) { return spectrum::synchronous(at); }),
      split("two_phase 7 + 1", "#17becf", 7, 1),
      split("two_phase 3 + 1", "#2ca02c", 3, 1),
      split("two_phase 2 + 1", "#bcbd22", 2, 1),
      split("two_phase 1 + 1", "#ff7f0e", 1, 1),
      made("weight_prediction", "#9467bd", acco::weight_prediction{}, 1,
           [](point at) { return spectrum::weight_prediction(at); }),
      made("delayed, extrapolation", "#e377c2", acco::delayed{.predictor = acco::extrapolation{}}, 1,
           [](point at) { return spectrum::extrapolation(at, 1); }),
      made("delayed, velocity", "#8c564b", acco::delayed{.predictor = acco::velocity{}}, 1,
           [](point at) { return spectrum::velocity(at, 1, 0.135); }),
      made("delayed", "#d62728", acco::delayed{}, 1, [](point at) { return spectrum::delayed(at); }),
  };
  const std::vector<double> momenta = {0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95};
  std::printf(
      "largest rate * curvature at which heavy ball converges: by the polynomial's roots, and measured (grid %.3f)\n\n%-24s",
      step, "momentum");
  for (const double each : momenta) std::printf("      %4.2f    ", each);
  std::printf("\n");
  std::string lines, points, plots;
  double worst = 0;
  for (form const& each : forms) {
    std::printf("%-24s", each.name);
    points += "$p" + std::to_string(&each - forms) + " << END\n";
    for (const double momentum : momenta) {
      const double root = spectrum::limit(each.matrix, momentum, 4.2), found = measured(each, momentum);
      worst = std::max(worst, found < root ? root - found : found - root - step);
      std::printf("  %.3f %.3f ", root, found);
      points += std::to_string(momentum) + " " + std::to_string(found) + "\n";
    }
    std::printf("\n");
    std::fflush(stdout);
    points += "END\n";
    const int number = static_cast<int>(&each - forms),
              width = std::max(2, 10 - 3 * number);  // the first three lie on each other
    lines += "$l" + std::to_string(number) + " << END\n";
    for (int i = 0; i <= 48; ++i) {
      const double momentum = 0.02 * i;
      lines += std::to_string(momentum) + " " + std::to_string(spectrum::limit(each.matrix, momentum, 4.2)) + "\n";
    }
    lines += "END\n";
    plots += std::string(plots.empty() ? "" : ", ") + "$l" + std::to_string(&each - forms) + " with lines lw " +
             std::to_string(width) + " lc rgb '" + each.colour + "' title '" + each.name + "', $p" +
             std::to_string(&each - forms) + " with points pt 7 ps 0.7 lc rgb '" + each.colour + "' notitle";
  }
  std::printf("\nfarthest from the root, beyond the grid: %.4f\n", worst);
  if (count < 2) return 0;
  const std::string words_of_gnuplot = "set terminal svg size 1000,460 font 'sans,13' noenhanced\nset output '" +
                                       std::string(words[1]) +
                                       "'\nset grid lc rgb '#dddddd'\nset key outside right top\nset xlabel 'momentum'\nset "
                                       "ylabel 'largest step x curvature'\nset xrange "
                                       "[0:0.97]\nset yrange [0:4.1]\n" +
                                       lines + points + "plot " + plots + "\n";
  std::FILE* const gnuplot = popen("gnuplot", "w");
  if (gnuplot == nullptr) return 1;
  std::fwrite(words_of_gnuplot.data(), 1, words_of_gnuplot.size(), gnuplot);
  return pclose(gnuplot) == 0 ? 0 : 1;
}
