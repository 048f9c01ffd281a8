// SPDX-License-Identifier: Apache-2.0
// Two models that are no GPT: one whose best value is known, and one without attention.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <acco/layout/parameter_layout.hpp>

#include "matrix.hpp"
#include "text.hpp"

namespace other_models {

/// Logits of a row become its gradient of the cross-entropy; returns that loss.
inline double to_gradient(std::span<float> logits, unsigned char target) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float& each : logits) sum += static_cast<double>(each = std::exp(each - most));
  const double loss = std::log(sum) - std::log(std::max(1e-30, static_cast<double>(logits[target])));
  for (float& each : logits) each = static_cast<float>(static_cast<double>(each) / sum);
  logits[target] -= 1;
  return loss;
}

/// The next byte by the one before alone: a table of logits, softmax regression. Convex; the least value over a text is the
/// entropy of a byte given the one before, by the text's own frequencies.
class bigram {
 public:
  static constexpr std::size_t bytes = 256;

  [[nodiscard]] static acco::parameter_layout layout() {
    acco::parameter_layout made;
    made.add("logits", {bytes, bytes});
    return made;
  }
  [[nodiscard]] static std::vector<float> initial(std::uint64_t) { return std::vector<float>(bytes * bytes, 0.0F); }

  /// Adds the gradient of the loss, summed over sequences, each the mean of its bytes; returns that sum.
  double add_gradients(toy_gpt::batch const& data, std::span<float const> parameters, std::span<float> gradients) {
    const auto share = static_cast<float>(data.sequences) / static_cast<float>(data.inputs.size());
    double loss = 0;
    for (std::size_t k = 0; k < data.inputs.size(); ++k) {
      const std::size_t row = data.inputs[k] * bytes;
      std::copy_n(parameters.begin() + static_cast<std::ptrdiff_t>(row), bytes, row_.begin());
      loss += to_gradient(row_, data.targets[k]);
      for (std::size_t j = 0; j < bytes; ++j) gradients[row + j] += share * row_[j];
    }
    return loss * static_cast<double>(share);
  }
  /// Over a whole text, above the least.
  [[nodiscard]] static double above_least(std::string const& text, std::span<float const> parameters) {
    std::vector<double> pairs(bytes * bytes);
    for (std::size_t k = 1; k < text.size(); ++k)
      ++pairs[static_cast<unsigned char>(text[k - 1]) * bytes + static_cast<unsigned char>(text[k])];
    double above = 0, all = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      double const* const of = pairs.data() + i * bytes;
      float const* const logits = parameters.data() + i * bytes;
      double count = 0, sum = 0;
      for (std::size_t j = 0; j < bytes; ++j) count += of[j];
      for (std::size_t j = 0; j < bytes; ++j) sum += std::exp(static_cast<double>(logits[j]));
      for (std::size_t j = 0; j < bytes; ++j) {
        if (of[j] > 0) above += of[j] * (std::log(of[j] / count) - static_cast<double>(logits[j]) + std::log(sum));
      }
      all += count;
    }
    return above / all;
  }

 private:
  std::array<float, bytes> row_{};
};

/// The next byte by the last eight, embedded side by side, and one layer of tanh: Bengio et al. (2003).
class window_mlp {
 public:
  static constexpr std::size_t bytes = 256, window = 8, width = 16, inputs = window * width, hidden = 96;

  [[nodiscard]] static acco::parameter_layout layout() {
    acco::parameter_layout made;
    made.add("embedding", {bytes, width});
    made.add("in.weight", {hidden, inputs});
    made.add("in.bias", {hidden});
    made.add("out.weight", {bytes, hidden});
    made.add("out.bias", {bytes});
    return made;
  }
  [[nodiscard]] static std::vector<float> initial(std::uint64_t seed) {
    const acco::parameter_layout layout = window_mlp::layout();
    std::vector<float> made(layout.size(), 0.0F);
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal;
    for (std::size_t t = 0; t < layout.tensor_count(); ++t) {
      auto const& each = layout[t];
      if (each.shape.size() != 2) continue;
      const float scale = t == 0 ? 1 : 1 / std::sqrt(static_cast<float>(each.shape[1]));
      for (std::size_t i = 0; i < each.size; ++i) made[each.offset + i] = scale * normal(generator);
    }
    return made;
  }

  /// As that of `bigram`, over the bytes that have a whole window before them.
  double add_gradients(toy_gpt::batch const& data, std::span<float const> parameters, std::span<float> gradients) {
    return run(data, parameters, gradients);
  }
  double loss(toy_gpt::batch const& data, std::span<float const> parameters) { return run(data, parameters, {}); }

 private:
  using form = toy_gpt::form;
  template <class Real>
  using matrix = toy_gpt::matrix<Real>;

  double run(toy_gpt::batch const& data, std::span<float const> parameters, std::span<float> gradients) {
    const std::size_t context = data.inputs.size() / data.sequences, each = context - window + 1, rows = data.sequences * each;
    x_.resize(rows * inputs);
    h_.resize(rows * hidden);
    y_.resize(rows * bytes);
    float const *const embedding = parameters.data(), *const in = embedding + bytes * width,
                       *const in_bias = in + hidden * inputs, *const out = in_bias + hidden,
                       *const out_bias = out + bytes * hidden;
    const auto first = [&](std::size_t row) { return data.inputs.data() + row / each * context + row % each; };
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t w = 0; w < window; ++w)
        std::copy_n(embedding + first(r)[w] * width, width, x_.data() + r * inputs + w * width);
      std::copy_n(in_bias, hidden, h_.data() + r * hidden);
      std::copy_n(out_bias, bytes, y_.data() + r * bytes);
    }
    toy_gpt::multiply<float>(form::plain, form::transposed, rows, hidden, inputs, 1, {x_.data(), inputs}, {in, inputs}, 1,
                             {h_.data(), hidden});
    for (float& h : h_) h = std::tanh(h);
    toy_gpt::multiply<float>(form::plain, form::transposed, rows, bytes, hidden, 1, {h_.data(), hidden}, {out, hidden}, 1,
                             {y_.data(), bytes});
    double loss = 0;
    for (std::size_t r = 0; r < rows; ++r)
      loss += to_gradient({y_.data() + r * bytes, bytes},
                          data.targets[static_cast<std::size_t>(first(r) - data.inputs.data()) + window - 1]);
    const auto share = 1 / static_cast<float>(each);
    if (!gradients.empty()) {
      float *const embedding_g = gradients.data(), *const in_g = embedding_g + bytes * width,
                   *const in_bias_g = in_g + hidden * inputs, *const out_g = in_bias_g + hidden,
                   *const out_bias_g = out_g + bytes * hidden;
      for (float& y : y_) y *= share;
      toy_gpt::multiply<float>(form::transposed, form::plain, bytes, hidden, rows, 1, {y_.data(), bytes}, {h_.data(), hidden}, 1,
                               {out_g, hidden});
      d_.resize(rows * hidden);
      toy_gpt::multiply<float>(form::plain, form::plain, rows, hidden, bytes, 1, {y_.data(), bytes}, {out, hidden}, 0,
                               {d_.data(), hidden});
      for (std::size_t i = 0; i < d_.size(); ++i) d_[i] *= 1 - h_[i] * h_[i];
      toy_gpt::multiply<float>(form::transposed, form::plain, hidden, inputs, rows, 1, {d_.data(), hidden}, {x_.data(), inputs},
                               1, {in_g, inputs});
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t j = 0; j < hidden; ++j) in_bias_g[j] += d_[r * hidden + j];
        for (std::size_t j = 0; j < bytes; ++j) out_bias_g[j] += y_[r * bytes + j];
      }
      toy_gpt::multiply<float>(form::plain, form::plain, rows, inputs, hidden, 1, {d_.data(), hidden}, {in, inputs}, 0,
                               {x_.data(), inputs});
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < inputs; ++i) embedding_g[first(r)[i / width] * width + i % width] += x_[r * inputs + i];
      }
    }
    return loss * static_cast<double>(share);
  }

  std::vector<float> x_, h_, y_, d_;
};

}  // namespace other_models
