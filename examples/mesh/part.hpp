// SPDX-License-Identifier: Apache-2.0
// A part of toy_gpt's model: some of its blocks (a stage of a pipeline), and of each block some of its heads and of its
// MLP (a rank of a tensor group; Megatron-LM, arXiv 1909.08053, section 3).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <acco/layout/parameter_layout.hpp>

#include "gpt.hpp"
#include "shape.hpp"

extern template class toy_gpt::gpt<float>;  // the whole model, compiled beside the parts

namespace mesh {

/// How a tensor group shares a tensor of Y = X A, which lies as A^T.
enum class cut {
  copied,           ///< every rank has all of it
  column_parallel,  ///< each rank has some columns of A, which give some columns of Y
  row_parallel      ///< each rank has some rows of A, which give an addend of Y
};
[[nodiscard]] cut cut_of(std::string_view tensor);

/// Which part.
struct part {
  std::size_t first_block, end_block;
  std::size_t tensor_rank = 0, tensor_ranks = 1;
};

/// The tensors of a part. First come those that other parts have, too.
class part_layout {
 public:
  part_layout(toy_gpt::shape const& shape, part const& which);

  [[nodiscard]] acco::parameter_layout const& all() const { return all_; }
  /// Elements of the tensors that other parts have, too.
  [[nodiscard]] std::size_t copied() const { return copied_; }
  /// What an optimizer has: all, or what no other part has.
  [[nodiscard]] acco::parameter_layout trained(bool with_copied) const;
  /// This part of the whole model's numbers.
  [[nodiscard]] std::vector<float> taken_from(std::span<float const> whole) const;

 private:
  [[nodiscard]] bool holds(std::string_view tensor) const;
  [[nodiscard]] bool shares(std::string_view tensor) const;

  toy_gpt::shape shape_;
  part which_;
  acco::parameter_layout all_;
  std::size_t copied_ = 0;
};

/// Activations, forward and backward; parameters and gradients are the caller's, in the order of the layout.
class gpt_part {
 public:
  /// `sum` replaces numbers by their sums over the tensor group.
  gpt_part(toy_gpt::shape const& shape, part const& which, std::size_t sequences, std::function<void(std::span<float>)> sum = {});

  /// The residual stream: enters (where the first block is not here), and leaves (where the last one is not).
  [[nodiscard]] std::span<float> entering() { return blocks_.front().in; }
  [[nodiscard]] std::span<float> leaving() { return out_; }
  /// Its gradient: before `backward` of what left, after it of what entered.
  [[nodiscard]] std::span<float> d_stream() { return d_stream_; }

  /// Returns the sum over sequences of the mean loss per byte, where the last block is; else 0.
  double forward(toy_gpt::batch const& data, std::span<float const> parameters);
  /// Adds the gradient of that sum.
  void backward(toy_gpt::batch const& data, std::span<float const> parameters, std::span<float> gradients);

 private:
  struct activations {
    std::vector<float> in, norm1, mean1, inverse1, qkv, share, mixed, middle, norm2, mean2, inverse2, up, gate, raised;
  };
  [[nodiscard]] bool embeds() const { return which_.first_block == 0; }
  [[nodiscard]] bool predicts() const { return which_.end_block == shape_.layers; }
  void forward_block(activations& a, toy_gpt::block_offsets const& at, float const* p, std::span<float> out);
  void backward_block(activations const& a, toy_gpt::block_offsets const& at, float const* p, float* g);
  void sum(std::span<float> numbers) const {
    if (sum_) sum_(numbers);
  }

  toy_gpt::shape shape_;
  part which_;
  std::function<void(std::span<float>)> sum_;
  std::size_t sequences_, rows_, width_, own_width_, own_heads_;  // of the stream; of this rank's heads
  std::size_t embedding_ = 0, position_ = 0, norm_gain_ = 0, norm_bias_ = 0;
  std::vector<toy_gpt::block_offsets> at_;
  std::vector<activations> blocks_;
  std::vector<float> out_, norm_, mean_, inverse_, logits_;
  std::vector<float> d_stream_, d_branch_, d_mixed_, d_wide_, d_share_;
};

}  // namespace mesh
