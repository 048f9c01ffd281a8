// SPDX-License-Identifier: Apache-2.0
// Trainings at the best of a few rates, and lists of numbers on a command line.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace toy_gpt {

/// What trainings at one rate, one a seed, ended with. An `Outcome` has a `loss`.
template <class Outcome>
struct tuned {
  double rate = 0;
  std::vector<Outcome> of_seeds;

  [[nodiscard]] double mean(double Outcome::* number) const {
    double sum = 0;
    for (Outcome const& each : of_seeds) sum += each.*number;
    return sum / static_cast<double>(of_seeds.size());
  }
  /// The largest loss less the least.
  [[nodiscard]] double spread() const {
    const auto [least, most] =
        std::minmax_element(of_seeds.begin(), of_seeds.end(), [](Outcome const& a, Outcome const& b) { return a.loss < b.loss; });
    return most->loss - least->loss;
  }
};

/// Trains the first seed at every rate, and the other seeds at the rate with the least loss. A loss that is not finite
/// is worse than any other. `train(rate, seed)` returns an `Outcome`.
template <class Train>
auto tune(std::vector<double> const& rates, std::vector<std::uint64_t> const& seeds, Train&& train) {
  tuned<decltype(train(rates[0], seeds[0]))> best;
  for (const double rate : rates) {
    auto now = train(rate, seeds[0]);
    if (!best.of_seeds.empty() && !(now.loss < best.of_seeds[0].loss || !std::isfinite(best.of_seeds[0].loss))) continue;
    best = {rate, {std::move(now)}};
  }
  for (std::size_t k = 1; k < seeds.size(); ++k) best.of_seeds.push_back(train(best.rate, seeds[k]));
  return best;
}

/// Of a list like 1e-3,3e-3.
template <class Number>
std::vector<Number> numbers_of(std::string const& list) {
  std::vector<Number> found;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) found.push_back(static_cast<Number>(std::stod(word)));
  return found;
}

}  // namespace toy_gpt
