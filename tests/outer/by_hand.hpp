// SPDX-License-Identifier: Apache-2.0
// Workers of local updates that descend parabolas, and Nesterov's outer step with their changes, written out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <acco/outer.hpp>

namespace by_hand {

constexpr std::size_t count = 70;
constexpr double rate = 0.05;
using numbers = std::vector<double>;

inline double gradient(double at, int worker, std::size_t i) { return at - worker - 0.01 * static_cast<double>(i); }
/// Of 1 + worker samples.
template <class Training>
void take_step(Training& training, int worker) {
  for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += (1 + worker) * gradient(training.parameters()[i], worker, i);
  (void)training.accumulated(1 + worker);
}
inline void local_step(numbers& w, int worker) {
  for (std::size_t i = 0; i < count; ++i) w[i] -= rate * gradient(w[i], worker, i);
}
inline double furthest(std::span<double const> found, numbers const& right) {
  double most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::abs(found[i] - right[i]));
  return most;
}
/// Nesterov's outer step with the mean of the changes, by weights.
struct anchor {
  numbers x = numbers(count, 1), u = numbers(count, 0);
  void exchange(std::vector<numbers*> const& workers, std::vector<double> const& weights) {
    constexpr acco::sgd rule = acco::diloco.rule;
    double all = 0;
    for (const double each : weights) all += each;
    for (std::size_t i = 0; i < count; ++i) {
      double change = 0;
      for (std::size_t k = 0; k < workers.size(); ++k) change += weights[k] * (x[i] - (*workers[k])[i]) / all;
      u[i] = rule.momentum * u[i] + change;
      x[i] -= rule.learning_rate * (change + rule.momentum * u[i]);
      for (numbers* const each : workers) (*each)[i] = x[i];
    }
  }
};

}  // namespace by_hand
