// SPDX-License-Identifier: Apache-2.0
// The GPT of examples/toy_gpt with a layer of experts in place of each MLP. Parameters lie in two places: dense ones,
// which all ranks share, and those of the experts that this rank owns. One expert makes it a dense GPT.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <acco/layout/parameter_layout.hpp>

#include "../toy_gpt/layers.hpp"
#include "../toy_gpt/shape.hpp"
#include "switch_layer.hpp"

namespace experts {

struct shape {
  toy_gpt::shape trunk = {.context = 32, .layers = 2, .width = 32, .heads = 4};
  routing experts = {};
};

/// Where the tensors begin: experts' in the one layout, all others in the other; both may be the same.
class tensors {
 public:
  /// `owner` is this rank's place in its group.
  tensors(shape const& s, std::size_t owner, acco::parameter_layout& dense, acco::parameter_layout& own) {
    if (s.experts.owners == 0 || s.experts.experts % s.experts.owners != 0) {
      throw std::invalid_argument(std::to_string(s.experts.experts) + " experts cannot be divided among " +
                                  std::to_string(s.experts.owners) + " ranks: take a multiple");
    }
    const std::size_t w = s.trunk.width, no_decay = dense.add_group({.weight_decay = 0.0});
    // an expert that gets no token on any rank in a step keeps its parameters, and its rule's slots
    const std::size_t idle = own.add_group({.leave_without_gradient = true});
    const std::size_t idle_bias = own.add_group({.weight_decay = 0.0, .leave_without_gradient = true});
    const auto norm = [&](std::string const& name) {
      return linear_at{add(dense, name + ".gain", {w}, no_decay), add(dense, name + ".bias", {w}, no_decay)};
    };
    const auto linear = [](acco::parameter_layout& to, std::string const& name, std::size_t out, std::size_t in,
                           std::size_t group, std::size_t of_bias) {
      return linear_at{add(to, name, {out, in}, group), add(to, name + ".bias", {out}, of_bias)};
    };
    embedding = add(dense, "wte", {toy_gpt::shape::vocabulary, w}, 0);
    position = add(dense, "wpe", {s.trunk.context, w}, 0);
    for (std::size_t l = 0; l < s.trunk.layers; ++l) {
      const std::string h = std::string("h").append(std::to_string(l)).append(".");
      block b{.norm1 = norm(h + "ln_1"),
              .qkv = linear(dense, h + "attn.qkv", 3 * w, w, 0, no_decay),
              .project = linear(dense, h + "attn.proj", w, w, 0, no_decay),
              .norm2 = norm(h + "ln_2"),
              .router = add(dense, h + "router", {s.experts.experts, w}, 0),
              .own = {}};
      for (std::size_t k = 0; k < s.experts.own(); ++k) {
        const std::string e = h + "expert" + std::to_string(owner * s.experts.own() + k) + ".";
        b.own.push_back({linear(own, e + "up", 4 * w, w, idle, idle_bias), linear(own, e + "down", w, 4 * w, idle, idle_bias)});
      }
      blocks.push_back(b);
    }
    last = norm("ln_f");
  }

  struct block {
    linear_at norm1, qkv, project, norm2;
    std::size_t router;
    std::vector<expert_at> own;
  };
  std::size_t embedding, position;
  std::vector<block> blocks;
  linear_at last;

 private:
  static std::size_t add(acco::parameter_layout& to, std::string const& name, std::vector<std::size_t> const& extents,
                         std::size_t group) {
    to.add(name, extents, group);
    return to[to.tensor_count() - 1].offset;
  }
};

/// GPT-2's: deviation 0.02, projections into the residual stream smaller by sqrt(2 layers). A tensor's values follow
/// from the seed and its name: an expert's are the same whoever owns it.
template <class Real>
std::vector<Real> initial(acco::parameter_layout const& layout, std::size_t layers, std::uint64_t seed) {
  std::vector<Real> values(layout.size(), Real(0));
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const tensor = layout[k];
    std::uint64_t h = seed;
    for (const char c : tensor.name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;  // FNV-1a
    std::mt19937_64 generator(h);
    std::normal_distribution<double> normal(0.0, 0.02);
    const bool into_residual = tensor.name.ends_with(".proj") || tensor.name.ends_with(".down");
    const double scale = into_residual ? 1 / std::sqrt(2.0 * static_cast<double>(layers)) : 1.0;
    for (std::size_t i = 0; i < tensor.size; ++i) {
      values[tensor.offset + i] = tensor.name.ends_with(".gain") ? Real(1)
                                  : tensor.shape.size() == 2     ? static_cast<Real>(normal(generator) * scale)
                                                                 : Real(0);
    }
  }
  return values;
}

template <class Real>
class model {
 public:
  /// `travel` is asked four times a layer and micro-batch; every rank of the group has micro-batches of as many tokens.
  model(shape const& s, tensors at, token_exchange<Real> const& travel) : shape_(s), at_(std::move(at)) {
    for (std::size_t l = 0; l < s.trunk.layers; ++l) blocks_.push_back({.mlp = {s.experts, s.trunk.width, travel}});
  }

  /// Adds the gradients of the SUM over tokens of cross-entropy and alpha times the auxiliary losses; returns the sum
  /// of the cross-entropies. Tokens of the whole group are in the gradients of `d_own`.
  double add_gradients(toy_gpt::batch const& data, std::span<Real const> dense, std::span<Real const> own,
                       std::span<Real> d_dense, std::span<Real> d_own) {
    forward(data, dense.data(), own.data());
    const double loss = toy_gpt::cross_entropy(logits_.data(), std::span(data.targets), toy_gpt::shape::vocabulary, Real(1));
    backward(data, dense.data(), own.data(), d_dense.data(), d_own.data());
    return loss;
  }
  /// The same sum without gradients.
  double loss(toy_gpt::batch const& data, std::span<Real const> dense, std::span<Real const> own) {
    forward(data, dense.data(), own.data());
    return toy_gpt::cross_entropy(logits_.data(), std::span(data.targets), toy_gpt::shape::vocabulary, Real(0));
  }

  /// Of the last micro-batch: the sum of all layers' auxiliary losses; how its tokens were routed.
  [[nodiscard]] double auxiliary() const { return auxiliary_; }
  [[nodiscard]] switch_layer<Real> const& experts_of(std::size_t layer) const { return blocks_[layer].mlp; }

 private:
  struct activations {
    switch_layer<Real> mlp;
    std::vector<Real> in{}, norm1{}, mean1{}, inverse1{}, qkv{}, share{}, mixed{}, middle{}, norm2{}, mean2{}, inverse2{};
  };

  void reserve(std::size_t sequences) {
    if (sequences == sequences_) return;
    sequences_ = sequences;
    const std::size_t rows = sequences * shape_.trunk.context, w = shape_.trunk.width;
    for (activations& a : blocks_) {
      for (auto* each : {&a.in, &a.norm1, &a.mixed, &a.middle, &a.norm2}) each->resize(rows * w);
      for (auto* each : {&a.mean1, &a.inverse1, &a.mean2, &a.inverse2}) each->resize(rows);
      a.qkv.resize(rows * 3 * w);
      a.share.resize(rows * shape_.trunk.heads * shape_.trunk.context);
    }
    for (auto* each : {&out_, &norm_, &d_stream_, &d_branch_, &d_mixed_}) each->resize(rows * w);
    for (auto* each : {&mean_, &inverse_}) each->resize(rows);
    d_qkv_.resize(rows * 3 * w);
    d_share_.resize(shape_.trunk.context * shape_.trunk.context);
    logits_.resize(rows * toy_gpt::shape::vocabulary);
  }

  void forward(toy_gpt::batch const& data, Real const* p, Real const* own) {
    using namespace toy_gpt;
    reserve(data.sequences);
    const std::size_t rows = data.inputs.size(), w = shape_.trunk.width, context = shape_.trunk.context;
    auxiliary_ = 0;
    std::vector<Real>& first = blocks_.empty() ? out_ : blocks_[0].in;
    for (std::size_t i = 0; i < rows * w; ++i)
      first[i] = p[at_.embedding + data.inputs[i / w] * w + i % w] + p[at_.position + i / w % context * w + i % w];
    for (std::size_t l = 0; l < blocks_.size(); ++l) {
      activations& a = blocks_[l];
      tensors::block const& at = at_.blocks[l];
      normalise_forward(a.in.data(), p + at.norm1.weight, p + at.norm1.bias, a.norm1.data(), a.mean1.data(), a.inverse1.data(),
                        rows, w);
      linear_forward(a.norm1.data(), p + at.qkv.weight, p + at.qkv.bias, a.qkv.data(), rows, w, 3 * w);
      attention_forward(a.qkv.data(), a.share.data(), a.mixed.data(), data.sequences, context, w, shape_.trunk.heads);
      linear_forward(a.mixed.data(), p + at.project.weight, p + at.project.bias, a.middle.data(), rows, w, w);
      for (std::size_t i = 0; i < rows * w; ++i) a.middle[i] += a.in[i];
      normalise_forward(a.middle.data(), p + at.norm2.weight, p + at.norm2.bias, a.norm2.data(), a.mean2.data(),
                        a.inverse2.data(), rows, w);
      std::vector<Real>& out = l + 1 < blocks_.size() ? blocks_[l + 1].in : out_;
      out = a.middle;
      auxiliary_ += a.mlp.forward(a.norm2.data(), rows, p + at.router, own, at.own, out.data());
    }
    normalise_forward(out_.data(), p + at_.last.weight, p + at_.last.bias, norm_.data(), mean_.data(), inverse_.data(), rows, w);
    linear_forward<Real>(norm_.data(), p + at_.embedding, nullptr, logits_.data(), rows, w, toy_gpt::shape::vocabulary);
  }

  /// `logits_` holds their gradient; `d_stream_` is that of the residual stream, from the top down.
  void backward(toy_gpt::batch const& data, Real const* p, Real const* own, Real* g, Real* d_own) {
    using namespace toy_gpt;
    const std::size_t rows = data.inputs.size(), w = shape_.trunk.width, context = shape_.trunk.context;
    std::fill(d_stream_.begin(), d_stream_.end(), Real(0));
    linear_backward<Real>(norm_.data(), p + at_.embedding, logits_.data(), d_branch_.data(), g + at_.embedding, nullptr, rows, w,
                          toy_gpt::shape::vocabulary);
    normalise_backward(out_.data(), p + at_.last.weight, mean_.data(), inverse_.data(), d_branch_.data(), d_stream_.data(),
                       g + at_.last.weight, g + at_.last.bias, rows, w);
    for (std::size_t l = blocks_.size(); l-- > 0;) {
      activations& a = blocks_[l];
      tensors::block const& at = at_.blocks[l];
      a.mlp.backward(a.norm2.data(), rows, p + at.router, own, at.own, d_stream_.data(), d_branch_.data(), g + at.router, d_own);
      normalise_backward(a.middle.data(), p + at.norm2.weight, a.mean2.data(), a.inverse2.data(), d_branch_.data(),
                         d_stream_.data(), g + at.norm2.weight, g + at.norm2.bias, rows, w);
      linear_backward(a.mixed.data(), p + at.project.weight, d_stream_.data(), d_mixed_.data(), g + at.project.weight,
                      g + at.project.bias, rows, w, w);
      attention_backward(a.qkv.data(), a.share.data(), d_mixed_.data(), d_qkv_.data(), d_share_.data(), data.sequences, context,
                         w, shape_.trunk.heads);
      linear_backward(a.norm1.data(), p + at.qkv.weight, d_qkv_.data(), d_branch_.data(), g + at.qkv.weight, g + at.qkv.bias,
                      rows, w, 3 * w);
      normalise_backward(a.in.data(), p + at.norm1.weight, a.mean1.data(), a.inverse1.data(), d_branch_.data(), d_stream_.data(),
                         g + at.norm1.weight, g + at.norm1.bias, rows, w);
    }
    for (std::size_t i = 0; i < rows * w; ++i) {
      g[at_.embedding + data.inputs[i / w] * w + i % w] += d_stream_[i];
      g[at_.position + i / w % context * w + i % w] += d_stream_[i];
    }
  }

  shape shape_;
  tensors at_;
  std::size_t sequences_ = 0;
  double auxiliary_ = 0;
  std::vector<activations> blocks_;
  std::vector<Real> out_, norm_, mean_, inverse_, logits_;
  std::vector<Real> d_stream_, d_branch_, d_mixed_, d_qkv_, d_share_;
};

}  // namespace experts
