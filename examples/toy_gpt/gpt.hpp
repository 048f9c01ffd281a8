// SPDX-License-Identifier: Apache-2.0
// GPT-2's architecture over bytes: learned positions, pre-LayerNorm blocks, causal attention, GELU, output tied to the
// embedding. The model owns activations only; parameters and gradients are flat spans that belong to somebody else.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <acco/layout/parameter_layout.hpp>

#include "layers.hpp"
#include "shape.hpp"

namespace toy_gpt {

/// Where the tensors of one block begin in the flat buffers.
struct block_offsets {
  std::size_t norm1_gain, norm1_bias, qkv, qkv_bias, project, project_bias, norm2_gain, norm2_bias, up, up_bias, down, down_bias;
};

/// Names, shapes and places of all tensors; biases and norms do not decay.
struct gpt_layout {
  explicit gpt_layout(shape const& s) {
    const std::size_t no_decay = layout.add_group({.weight_decay = 0.0});
    const auto add = [&](std::string const& name, std::initializer_list<std::size_t> extents, std::size_t group = 0) {
      layout.add(name, extents, group);
      return layout[layout.tensor_count() - 1].offset;
    };
    const std::size_t w = s.width;
    embedding = add("wte", {shape::vocabulary, w});
    position = add("wpe", {s.context, w});
    for (std::size_t l = 0; l < s.layers; ++l) {
      const std::string h = std::string("h").append(std::to_string(l)).append(".");
      blocks.push_back(
          {add(h + "ln_1.gain", {w}, no_decay), add(h + "ln_1.bias", {w}, no_decay), add(h + "attn.qkv", {3 * w, w}),
           add(h + "attn.qkv.bias", {3 * w}, no_decay), add(h + "attn.proj", {w, w}), add(h + "attn.proj.bias", {w}, no_decay),
           add(h + "ln_2.gain", {w}, no_decay), add(h + "ln_2.bias", {w}, no_decay), add(h + "mlp.up", {4 * w, w}),
           add(h + "mlp.up.bias", {4 * w}, no_decay), add(h + "mlp.down", {w, 4 * w}), add(h + "mlp.down.bias", {w}, no_decay)});
    }
    norm_gain = add("ln_f.gain", {w}, no_decay);
    norm_bias = add("ln_f.bias", {w}, no_decay);
  }

  acco::parameter_layout layout;
  std::size_t embedding, position, norm_gain, norm_bias;
  std::vector<block_offsets> blocks;
};

template <class Real>
class gpt {
 public:
  explicit gpt(shape const& s) : shape_(s), at_(s) {}

  [[nodiscard]] acco::parameter_layout const& layout() const { return at_.layout; }

  /// Normal numbers of deviation 0.02 (projections into the residual stream smaller by sqrt(2 layers)), ones for gains,
  /// zeros for biases.
  [[nodiscard]] std::vector<Real> initial(std::uint64_t seed) const {
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> normal(0.0, 0.02);
    std::vector<Real> values(at_.layout.size(), Real(0));
    for (std::size_t k = 0; k < at_.layout.tensor_count(); ++k) {
      auto const tensor = at_.layout[k];
      const bool matrix = tensor.shape.size() == 2;
      const bool gain = tensor.name.ends_with(".gain");
      const bool into_residual = tensor.name.ends_with(".proj") || tensor.name.ends_with(".down");
      const double scale = into_residual ? 1 / std::sqrt(2.0 * static_cast<double>(shape_.layers)) : 1.0;
      for (std::size_t i = 0; i < tensor.size; ++i) {
        values[tensor.offset + i] = gain ? Real(1) : matrix ? static_cast<Real>(normal(generator) * scale) : Real(0);
      }
    }
    return values;
  }

  /// Adds the gradient of the SUM over sequences of the mean loss per byte; returns that sum.
  double add_gradients(batch const& data, std::span<Real const> parameters, std::span<Real> gradients) {
    forward(data, parameters);
    const double losses = cross_entropy(logits_.data(), std::span<unsigned char const>(data.targets), shape::vocabulary,
                                        Real(1) / static_cast<Real>(shape_.context));
    backward(data, parameters, gradients);
    return losses / static_cast<double>(shape_.context);
  }

  /// The same sum without gradients.
  double loss(batch const& data, std::span<Real const> parameters) {
    forward(data, parameters);
    return cross_entropy(logits_.data(), std::span<unsigned char const>(data.targets), shape::vocabulary, Real(0)) /
           static_cast<double>(shape_.context);
  }

  /// Logits of what follows each position of one sequence of at most `context` bytes; the last `vocabulary` of them
  /// matter for sampling.
  std::span<Real const> logits_after(std::span<unsigned char const> text, std::span<Real const> parameters) {
    batch one{1, std::vector<unsigned char>(shape_.context, ' '), {}};
    std::copy(text.begin(), text.end(), one.inputs.begin());
    forward(one, parameters);
    return std::span<Real const>(logits_).subspan((text.size() - 1) * shape::vocabulary, shape::vocabulary);
  }

  /// Called before every layer, forward and backward: the place to poll a network that makes no progress by itself.
  std::function<void()> between_layers;

 private:
  struct block_activations {
    std::vector<Real> in, norm1, mean1, inverse1, qkv, share, mixed, middle, norm2, mean2, inverse2, up, gate, raised;
  };

  void reserve(std::size_t sequences) {
    if (sequences == sequences_) return;
    sequences_ = sequences;
    const std::size_t rows = sequences * shape_.context, w = shape_.width;
    blocks_.resize(shape_.layers);
    for (block_activations& a : blocks_) {
      for (auto* wide : {&a.in, &a.norm1, &a.mixed, &a.middle, &a.norm2}) wide->resize(rows * w);
      for (auto* narrow : {&a.mean1, &a.inverse1, &a.mean2, &a.inverse2}) narrow->resize(rows);
      for (auto* tall : {&a.up, &a.gate, &a.raised}) tall->resize(rows * 4 * w);
      a.qkv.resize(rows * 3 * w);
      a.share.resize(sequences * shape_.heads * shape_.context * shape_.context);
    }
    for (auto* wide : {&out_, &norm_, &d_stream_, &d_branch_, &d_mixed_}) wide->resize(rows * w);
    for (auto* narrow : {&mean_, &inverse_}) narrow->resize(rows);
    d_wide_.resize(rows * 4 * w);
    d_share_.resize(shape_.context * shape_.context);
    logits_.resize(rows * shape::vocabulary);
  }

  void forward(batch const& data, std::span<Real const> parameters) {
    reserve(data.sequences);
    const std::size_t rows = data.sequences * shape_.context, w = shape_.width;
    Real const* const p = parameters.data();
    std::vector<Real>* stream = shape_.layers > 0 ? &blocks_[0].in : &out_;
    for (std::size_t r = 0; r < rows; ++r) {
      Real const* const token = p + at_.embedding + data.inputs[r] * w;
      Real const* const place = p + at_.position + r % shape_.context * w;
      for (std::size_t j = 0; j < w; ++j) (*stream)[r * w + j] = token[j] + place[j];
    }
    for (std::size_t l = 0; l < shape_.layers; ++l) {
      if (between_layers) between_layers();
      block_activations& a = blocks_[l];
      block_offsets const& at = at_.blocks[l];
      std::vector<Real>& out = l + 1 < shape_.layers ? blocks_[l + 1].in : out_;
      normalise_forward(a.in.data(), p + at.norm1_gain, p + at.norm1_bias, a.norm1.data(), a.mean1.data(), a.inverse1.data(),
                        rows, w);
      linear_forward(a.norm1.data(), p + at.qkv, p + at.qkv_bias, a.qkv.data(), rows, w, 3 * w);
      attention_forward(a.qkv.data(), a.share.data(), a.mixed.data(), data.sequences, shape_.context, w, shape_.heads);
      linear_forward(a.mixed.data(), p + at.project, p + at.project_bias, a.middle.data(), rows, w, w);
      for (std::size_t i = 0; i < rows * w; ++i) a.middle[i] += a.in[i];
      normalise_forward(a.middle.data(), p + at.norm2_gain, p + at.norm2_bias, a.norm2.data(), a.mean2.data(), a.inverse2.data(),
                        rows, w);
      linear_forward(a.norm2.data(), p + at.up, p + at.up_bias, a.up.data(), rows, w, 4 * w);
      gelu_forward(a.up.data(), a.gate.data(), a.raised.data(), rows * 4 * w);
      linear_forward(a.raised.data(), p + at.down, p + at.down_bias, out.data(), rows, 4 * w, w);
      for (std::size_t i = 0; i < rows * w; ++i) out[i] += a.middle[i];
    }
    normalise_forward(out_.data(), p + at_.norm_gain, p + at_.norm_bias, norm_.data(), mean_.data(), inverse_.data(), rows, w);
    linear_forward<Real>(norm_.data(), p + at_.embedding, nullptr, logits_.data(), rows, w, shape::vocabulary);
  }

  /// `logits_` holds the gradient of the logits. `d_stream_` is the gradient of the residual stream, from the top down.
  void backward(batch const& data, std::span<Real const> parameters, std::span<Real> gradients) {
    const std::size_t rows = data.sequences * shape_.context, w = shape_.width;
    Real const* const p = parameters.data();
    Real* const g = gradients.data();
    std::fill(d_stream_.begin(), d_stream_.end(), Real(0));
    linear_backward<Real>(norm_.data(), p + at_.embedding, logits_.data(), d_branch_.data(), g + at_.embedding, nullptr, rows, w,
                          shape::vocabulary);
    normalise_backward(out_.data(), p + at_.norm_gain, mean_.data(), inverse_.data(), d_branch_.data(), d_stream_.data(),
                       g + at_.norm_gain, g + at_.norm_bias, rows, w);
    for (std::size_t l = shape_.layers; l-- > 0;) {
      if (between_layers) between_layers();
      block_activations const& a = blocks_[l];
      block_offsets const& at = at_.blocks[l];
      linear_backward(a.raised.data(), p + at.down, d_stream_.data(), d_wide_.data(), g + at.down, g + at.down_bias, rows, 4 * w,
                      w);
      gelu_backward(a.up.data(), a.gate.data(), d_wide_.data(), rows * 4 * w);
      linear_backward(a.norm2.data(), p + at.up, d_wide_.data(), d_branch_.data(), g + at.up, g + at.up_bias, rows, w, 4 * w);
      normalise_backward(a.middle.data(), p + at.norm2_gain, a.mean2.data(), a.inverse2.data(), d_branch_.data(),
                         d_stream_.data(), g + at.norm2_gain, g + at.norm2_bias, rows, w);
      linear_backward(a.mixed.data(), p + at.project, d_stream_.data(), d_mixed_.data(), g + at.project, g + at.project_bias,
                      rows, w, w);
      attention_backward(a.qkv.data(), a.share.data(), d_mixed_.data(), d_wide_.data(), d_share_.data(), data.sequences,
                         shape_.context, w, shape_.heads);
      linear_backward(a.norm1.data(), p + at.qkv, d_wide_.data(), d_branch_.data(), g + at.qkv, g + at.qkv_bias, rows, w, 3 * w);
      normalise_backward(a.in.data(), p + at.norm1_gain, a.mean1.data(), a.inverse1.data(), d_branch_.data(), d_stream_.data(),
                         g + at.norm1_gain, g + at.norm1_bias, rows, w);
    }
    for (std::size_t r = 0; r < rows; ++r) {
      Real* const token = g + at_.embedding + data.inputs[r] * w;
      Real* const place = g + at_.position + r % shape_.context * w;
      for (std::size_t j = 0; j < w; ++j) {
        token[j] += d_stream_[r * w + j];
        place[j] += d_stream_[r * w + j];
      }
    }
  }

  shape shape_;
  gpt_layout at_;
  std::size_t sequences_ = 0;
  std::vector<block_activations> blocks_;
  std::vector<Real> out_, norm_, mean_, inverse_, logits_;
  std::vector<Real> d_stream_, d_branch_, d_mixed_, d_wide_, d_share_;
};

}  // namespace toy_gpt
