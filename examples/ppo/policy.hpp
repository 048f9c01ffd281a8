// SPDX-License-Identifier: Apache-2.0
// A network of tanh layers with its gradients written by hand, and the distribution over actions that its outputs are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <acco/acco.hpp>

#include "environment.hpp"

namespace ppo {

/// Of one sample: the input, and every layer's outputs.
using activations = std::vector<std::vector<double>>;

class network {
  std::vector<std::size_t> widths_;  // of the input and of each layer

 public:
  explicit network(std::vector<std::size_t> widths) : widths_(std::move(widths)) {}

  [[nodiscard]] acco::parameter_layout layout() const {
    acco::parameter_layout all;
    for (std::size_t k = 1; k < widths_.size(); ++k) {
      const std::string layer = "layer" + std::to_string(k);
      all.add(layer + ".weight", {widths_[k], widths_[k - 1]}).add(layer + ".bias", {widths_[k]});
    }
    return all;
  }
  /// Weights of variance 1 / inputs, of the last layer `last` times that deviation; no biases.
  [[nodiscard]] std::vector<double> initial(std::uint64_t seed, double last) const {
    std::vector<double> values;
    random_numbers random(seed);
    for (std::size_t k = 1; k < widths_.size(); ++k) {
      const double reach = std::sqrt(3.0 / static_cast<double>(widths_[k - 1])) * (k + 1 == widths_.size() ? last : 1);
      for (std::size_t i = 0; i < widths_[k] * widths_[k - 1]; ++i) values.push_back(random.between(-reach, reach));
      values.resize(values.size() + widths_[k], 0.0);
    }
    return values;
  }

  /// The last layer's outputs, which are not squashed.
  std::vector<double> const& forward(std::span<double const> parameters, std::span<double const> input, activations& of) const {
    of.resize(widths_.size());
    of[0].assign(input.begin(), input.end());
    double const* weights = parameters.data();
    for (std::size_t k = 1; k < widths_.size(); ++k) {
      std::size_t const rows = widths_[k], columns = widths_[k - 1];
      double const *const bias = weights + rows * columns, *const in = of[k - 1].data();
      of[k].resize(rows);
      for (std::size_t j = 0; j < rows; ++j, weights += columns) {
        const double sum = std::inner_product(weights, weights + columns, in, bias[j]);
        of[k][j] = k + 1 == widths_.size() ? sum : std::tanh(sum);
      }
      weights = bias + rows;
    }
    return of.back();
  }

  /// ADDS the gradient of a loss whose derivatives by the outputs are `slopes`.
  void backward(std::span<double const> parameters, activations const& of, std::vector<double> slopes,
                std::span<double> gradients) const {
    std::size_t offset = parameters.size();
    for (std::size_t k = widths_.size() - 1; k != 0; --k) {
      std::size_t const rows = widths_[k], columns = widths_[k - 1];
      offset -= rows * (columns + 1);
      double const *weights = parameters.data() + offset, *const in = of[k - 1].data();
      double *to = gradients.data() + offset, *const bias = to + rows * columns;
      std::vector<double> below(columns, 0.0);
      for (std::size_t j = 0; j < rows; ++j, weights += columns, to += columns) {
        const double slope = slopes[j];
        bias[j] += slope;
        for (std::size_t i = 0; i < columns; ++i) {
          to[i] += slope * in[i];
          below[i] += slope * weights[i];
        }
      }
      for (std::size_t i = 0; i < columns; ++i) below[i] *= 1 - in[i] * in[i];
      slopes = std::move(below);
    }
  }
};

/// Logarithms of the probabilities that logits stand for.
inline std::vector<double> log_probabilities(std::vector<double> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double each : logits) sum += std::exp(each - most);
  for (double& each : logits) each -= most + std::log(sum);
  return logits;
}

inline std::size_t draw(std::vector<double> const& log_probabilities, random_numbers& random) {
  double left = random.uniform();
  std::size_t action = 0;
  while (action + 1 < log_probabilities.size() && (left -= std::exp(log_probabilities[action])) >= 0) ++action;
  return action;
}

}  // namespace ppo
