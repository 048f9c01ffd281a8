// SPDX-License-Identifier: Apache-2.0
// A layer of experts with top-1 routing, after the Switch Transformer (Fedus et al., arXiv 2101.03961, section 2):
// forward and backward. Each rank of a group owns some of the experts; tokens travel to the owner of theirs, and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "../toy_gpt/layers.hpp"

namespace experts {

/// Equal parts of `in` go to the ranks of the group, part r to rank r; part r of `out` came from rank r.
template <class Real>
using token_exchange = std::function<void(std::span<Real const> in, std::span<Real> out)>;

/// Of each layer.
struct routing {
  std::size_t experts = 4;  ///< a multiple of `owners`
  std::size_t owners = 2;   ///< ranks of a group: rank r owns experts / owners of them, in order
  double capacity = 1.25;   ///< an expert takes so many times the tokens of equal shares, of each rank's micro-batch
  double auxiliary = 0.01;  ///< alpha of eq. 4

  [[nodiscard]] std::size_t own() const { return experts / owners; }
  /// Tokens of one rank's micro-batch that an expert takes, eq. 3.
  [[nodiscard]] std::size_t slots(std::size_t tokens) const {
    const auto all = static_cast<double>(tokens);
    return std::min(tokens, static_cast<std::size_t>(std::ceil(capacity * all / static_cast<double>(experts))));
  }
};

/// Where a linear layer's weight and bias begin; those of an expert, a GPT's MLP.
struct linear_at {
  std::size_t weight = 0, bias = 0;
};
struct expert_at {
  linear_at up, down;
};

template <class Real>
class switch_layer {
 public:
  switch_layer(routing const& how, std::size_t width, token_exchange<Real> travel)
      : how_(how), width_(width), travel_(std::move(travel)) {}

  /// Adds gate times expert of each row of `x` to that row of `out`; a token beyond its expert's capacity adds nothing:
  /// its residual stream goes on. Returns the auxiliary loss, eq. 4 without its alpha.
  double forward(Real const* x, std::size_t rows, Real const* router, Real const* parameters, std::span<expert_at const> own,
                 Real* out) {
    const std::size_t w = width_;
    reserve(rows);
    toy_gpt::linear_forward<Real>(x, router, nullptr, share_.data(), rows, w, how_.experts);
    const double auxiliary = route(rows);
    send(rows, [&](std::size_t r, Real* slot) { std::copy_n(x + r * w, w, slot); });
    travel_(sent_, arrived_);
    each_block(own, [&](expert_at const& at, std::size_t first) {  // empty slots, too: nobody reads what comes of them
      toy_gpt::linear_forward(&arrived_[first * w], parameters + at.up.weight, parameters + at.up.bias, &up_[first * 4 * w],
                              slots_, w, 4 * w);
      toy_gpt::gelu_forward(&up_[first * 4 * w], &gate_[first * 4 * w], &raised_[first * 4 * w], slots_ * 4 * w);
      toy_gpt::linear_forward(&raised_[first * 4 * w], parameters + at.down.weight, parameters + at.down.bias, &made_[first * w],
                              slots_, 4 * w, w);
    });
    travel_(made_, back_);
    for (std::size_t r = 0; r < rows; ++r) {
      if (slot_[r] == none) continue;
      for (std::size_t j = 0; j < w; ++j) out[r * w + j] += chosen(r) * back_[slot_[r] * w + j];
    }
    return auxiliary;
  }

  /// Of the same rows. Adds to the gradients of the router and of the own experts, for all tokens that came from the
  /// group; overwrites `d_x`.
  void backward(Real const* x, std::size_t rows, Real const* router, Real const* parameters, std::span<expert_at const> own,
                Real const* d_out, Real* d_x, Real* d_router, Real* gradients) {
    const std::size_t w = width_, n = how_.experts;
    send(rows, [&](std::size_t r, Real* slot) {
      for (std::size_t j = 0; j < w; ++j) slot[j] = chosen(r) * d_out[r * w + j];
    });
    travel_(sent_, d_made_);
    each_block(own, [&](expert_at const& at, std::size_t first) {  // an empty slot has a gradient of 0
      toy_gpt::linear_backward(&raised_[first * 4 * w], parameters + at.down.weight, &d_made_[first * w], &d_up_[first * 4 * w],
                               gradients + at.down.weight, gradients + at.down.bias, slots_, 4 * w, w);
      toy_gpt::gelu_backward(&up_[first * 4 * w], &gate_[first * 4 * w], &d_up_[first * 4 * w], slots_ * 4 * w);
      toy_gpt::linear_backward(&arrived_[first * w], parameters + at.up.weight, &d_up_[first * 4 * w], &made_[first * w],
                               gradients + at.up.weight, gradients + at.up.bias, slots_, w, 4 * w);
    });
    travel_(made_, sent_);
    for (std::size_t r = 0; r < rows; ++r) {  // of the shares, and through the softmax
      Real* const d = &d_share_[r * n];
      Real const* const p = &share_[r * n];
      for (std::size_t e = 0; e < n; ++e) d[e] = static_cast<Real>(how_.auxiliary) * static_cast<Real>(n) * part_[e];
      for (std::size_t j = 0; j < w && slot_[r] != none; ++j) d[expert_[r]] += d_out[r * w + j] * back_[slot_[r] * w + j];
      Real along = 0;
      for (std::size_t e = 0; e < n; ++e) along += p[e] * d[e];
      for (std::size_t e = 0; e < n; ++e) d[e] = p[e] * (d[e] - along);
    }
    toy_gpt::linear_backward<Real>(x, router, d_share_.data(), d_x, d_router, nullptr, rows, w, n);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t j = 0; j < w && slot_[r] != none; ++j) d_x[r * w + j] += sent_[slot_[r] * w + j];
    }
  }

  /// Tokens of the last micro-batch that chose each expert; those that found no slot.
  [[nodiscard]] std::span<std::size_t const> tokens() const { return tokens_; }
  [[nodiscard]] std::size_t dropped() const { return static_cast<std::size_t>(std::count(slot_.begin(), slot_.end(), none)); }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  void reserve(std::size_t rows) {
    if (rows == slot_.size()) return;
    slots_ = how_.slots(rows);
    const std::size_t all = how_.experts * slots_;  // as many as this rank sends, it gets: owners times own()
    share_.resize(rows * how_.experts);
    d_share_.resize(rows * how_.experts);
    part_.resize(how_.experts);
    expert_.resize(rows);
    slot_.resize(rows);
    for (auto* each : {&sent_, &arrived_, &made_, &back_, &d_made_}) each->resize(all * width_);
    for (auto* each : {&up_, &gate_, &raised_, &d_up_}) each->resize(all * 4 * width_);
  }

  /// Logits become shares; every token chooses its largest, and takes the expert's next slot while there is one.
  double route(std::size_t rows) {
    const std::size_t n = how_.experts;
    std::vector<double> mean(n, 0.0);
    tokens_.assign(n, 0);
    for (std::size_t r = 0; r < rows; ++r) {
      Real* const p = &share_[r * n];
      expert_[r] = static_cast<std::size_t>(std::max_element(p, p + n) - p);
      const Real largest = p[expert_[r]];
      Real sum = 0;
      for (std::size_t e = 0; e < n; ++e) sum += p[e] = toy_gpt::exponential(p[e] - largest);
      for (std::size_t e = 0; e < n; ++e) mean[e] += static_cast<double>(p[e] /= sum) / static_cast<double>(rows);
      const std::size_t place = tokens_[expert_[r]]++;
      slot_[r] = place < slots_ ? expert_[r] * slots_ + place : none;
    }
    double auxiliary = 0;
    for (std::size_t e = 0; e < n; ++e) {
      const double part = static_cast<double>(tokens_[e]) / static_cast<double>(rows);
      part_[e] = static_cast<Real>(part);
      auxiliary += static_cast<double>(n) * part * mean[e];
    }
    return auxiliary;
  }
  /// fill(row, its slot) for each token that has one; the others' slots are zeros.
  template <class Fill>
  void send(std::size_t rows, Fill&& fill) {
    std::fill(sent_.begin(), sent_.end(), Real(0));
    for (std::size_t r = 0; r < rows; ++r) {
      if (slot_[r] != none) fill(r, &sent_[slot_[r] * width_]);
    }
  }
  /// work(one of the own experts, its first slot) for the slots of each rank of the group.
  template <class Work>
  void each_block(std::span<expert_at const> own, Work&& work) const {
    for (std::size_t block = 0; block < how_.experts; ++block) work(own[block % own.size()], block * slots_);
  }
  [[nodiscard]] Real chosen(std::size_t r) const { return share_[r * how_.experts + expert_[r]]; }

  routing how_;
  std::size_t width_, slots_ = 0;
  token_exchange<Real> travel_;
  std::vector<std::size_t> expert_, slot_, tokens_;  // by token, by token, by expert
  std::vector<Real> share_, d_share_, part_;         // of the router
  std::vector<Real> sent_, back_;                    // [expert][slot][width]
  std::vector<Real> arrived_, made_, d_made_;        // [rank][own expert][slot][width]
  std::vector<Real> up_, gate_, raised_, d_up_;      // the same, four times as wide
};

}  // namespace experts
