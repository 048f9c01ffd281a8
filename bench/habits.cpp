// SPDX-License-Identifier: Apache-2.0
// What the checks of habits cost: the same training with and without them, in turn; a micro-batch passes the parameters
// and gradients a few times, as a model does at the very least.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <acco/acco.hpp>

namespace {

/// Seconds of `rounds` steps.
template <class Schedule>
double seconds(Schedule schedule, std::size_t count, int passes, int steps, acco::habit_checks checks) {
  acco::optimizer training{
      schedule, acco::adamw{}, acco::host_storage<float>{}, acco::solo_backend{}, count, acco::options{.check_habits = checks}};
  training.initialize(std::vector<float>(count, 1.0F));
  const auto run = [&](int n) {
    for (int step = 0; step < n; ++step) {
      training.step([&](std::span<float const> p, std::span<float> g) {
        for (int pass = 0; pass < passes; ++pass)
          for (std::size_t i = 0; i < p.size(); ++i) g[i] += 1e-3F * p[i] + 1e-6F * static_cast<float>(i & 15U);
        return 1;
      });
    }
  };
  run(3);
  const auto begin = std::chrono::steady_clock::now();
  run(steps);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  training.finish();
  return took;
}

template <class Schedule>
void measure(char const* name, Schedule schedule, std::size_t count, int passes) {
  const int steps = static_cast<int>(std::max<std::size_t>(20, 40'000'000 / (count * static_cast<std::size_t>(passes))));
  std::vector<double> ratios, micro;
  for (int repeat = 0; repeat < 9; ++repeat) {
    const double without = seconds(schedule, count, passes, steps, acco::habit_checks::off);
    ratios.push_back(seconds(schedule, count, passes, steps, acco::habit_checks::on) / without);
    micro.push_back(without / steps);
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(micro.begin(), micro.end());
  std::printf("| %-12s | %9zu | %2d | %10.1f | %.3f | %.3f to %.3f |\n", name, count, passes, micro[4] * 1e6, ratios[4],
              ratios[2], ratios[6]);
}

}  // namespace

int main() {
  std::printf(
      "| schedule | parameters | passes of a micro-batch | us a step, unchecked | checked / unchecked, median of 9 | middle five "
      "|\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const std::size_t count : {std::size_t{1000}, std::size_t{100'000}, std::size_t{4'000'000}}) {
    for (const int passes : {3, 30}) {
      measure("synchronous", acco::synchronous{}, count, passes);
      measure("two_phase", acco::two_phase{.pace = acco::fixed_pace{1}}, count, passes);
    }
  }
}
