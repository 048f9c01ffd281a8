// SPDX-License-Identifier: Apache-2.0
#include "part.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "layers.hpp"

template class toy_gpt::gpt<float>;

namespace mesh {

using namespace toy_gpt;

cut cut_of(std::string_view tensor) {
  const auto is = [&](std::string_view end) { return tensor.ends_with(end); };
  if (is(".qkv") || is(".qkv.bias") || is(".up") || is(".up.bias")) return cut::column_parallel;
  return is(".proj") || is(".down") ? cut::row_parallel : cut::copied;
}

part_layout::part_layout(shape const& shape, part const& which) : shape_(shape), which_(which) {
  const gpt_layout whole(shape);
  for (acco::update_group const& group : whole.layout.groups().subspan(1)) all_.add_group(group);
  for (const bool shared : {true, false}) {
    for (std::size_t k = 0; k < whole.layout.tensor_count(); ++k) {
      auto const tensor = whole.layout[k];
      if (!holds(tensor.name) || shares(tensor.name) != shared) continue;
      std::vector<std::size_t> extents(tensor.shape.begin(), tensor.shape.end());
      const cut how = cut_of(tensor.name);
      if (how != cut::copied) extents[how == cut::row_parallel ? 1 : 0] /= which.tensor_ranks;
      all_.add(tensor.name, extents, tensor.group);
    }
    if (shared) copied_ = all_.size();
  }
}

bool part_layout::holds(std::string_view tensor) const {
  if (tensor.starts_with("h")) {
    const std::size_t block = std::stoul(std::string(tensor.substr(1)));
    return which_.first_block <= block && block < which_.end_block;
  }
  const bool first = which_.first_block == 0, last = which_.end_block == shape_.layers;
  return tensor == "wte" ? first || last : tensor == "wpe" ? first : last;
}

bool part_layout::shares(std::string_view tensor) const {
  if (which_.tensor_ranks > 1) return cut_of(tensor) == cut::copied;
  return tensor == "wte" && which_.end_block - which_.first_block < shape_.layers;  // the output is tied to it
}

acco::parameter_layout part_layout::trained(bool with_copied) const {
  acco::parameter_layout result;
  for (acco::update_group const& group : all_.groups().subspan(1)) result.add_group(group);
  for (std::size_t k = 0; k < all_.tensor_count(); ++k) {
    auto const tensor = all_[k];
    if (with_copied || tensor.offset >= copied_) result.add(tensor.name, tensor.shape, tensor.group);
  }
  return result;
}

std::vector<float> part_layout::taken_from(std::span<float const> whole) const {
  const gpt_layout of_whole(shape_);
  std::vector<float> mine;
  mine.reserve(all_.size());
  for (std::size_t k = 0; k < all_.tensor_count(); ++k) {
    auto const tensor = of_whole.layout[all_[k].name];
    const std::size_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1, rows = tensor.size / columns;
    const std::size_t stacked = tensor.name.find(".qkv") != std::string_view::npos ? 3 : 1;  // queries, keys, values
    const cut how = cut_of(tensor.name);
    for (std::size_t i = 0; i < tensor.size; ++i) {
      const std::size_t row = i / columns % (rows / stacked), column = i % columns;
      const std::size_t holder = how == cut::column_parallel ? row * which_.tensor_ranks / (rows / stacked)
                                 : how == cut::row_parallel  ? column * which_.tensor_ranks / columns
                                                             : which_.tensor_rank;
      if (holder == which_.tensor_rank) mine.push_back(whole[tensor.offset + i]);
    }
  }
  return mine;
}

gpt_part::gpt_part(shape const& shape, part const& which, std::size_t sequences, std::function<void(std::span<float>)> sum)
    : shape_(shape),
      which_(which),
      sum_(std::move(sum)),
      sequences_(sequences),
      rows_(sequences * shape.context),
      width_(shape.width),
      own_width_(shape.width / which.tensor_ranks),
      own_heads_(shape.heads / which.tensor_ranks) {
  const acco::parameter_layout layout = part_layout(shape, which).all();
  const auto at = [&](std::string const& name) { return layout[name].offset; };
  if (embeds() || predicts()) embedding_ = at("wte");
  if (embeds()) position_ = at("wpe");
  if (predicts()) norm_gain_ = at("ln_f.gain"), norm_bias_ = at("ln_f.bias");
  for (std::size_t l = which.first_block; l < which.end_block; ++l) {
    const std::string h = std::string("h").append(std::to_string(l)).append(".");
    at_.push_back({at(h + "ln_1.gain"), at(h + "ln_1.bias"), at(h + "attn.qkv"), at(h + "attn.qkv.bias"), at(h + "attn.proj"),
                   at(h + "attn.proj.bias"), at(h + "ln_2.gain"), at(h + "ln_2.bias"), at(h + "mlp.up"), at(h + "mlp.up.bias"),
                   at(h + "mlp.down"), at(h + "mlp.down.bias")});
    activations& a = blocks_.emplace_back();
    for (auto* wide : {&a.in, &a.norm1, &a.middle, &a.norm2}) wide->resize(rows_ * width_);
    for (auto* narrow : {&a.mean1, &a.inverse1, &a.mean2, &a.inverse2}) narrow->resize(rows_);
    for (auto* tall : {&a.up, &a.gate, &a.raised}) tall->resize(rows_ * 4 * own_width_);
    a.mixed.resize(rows_ * own_width_);
    a.qkv.resize(rows_ * 3 * own_width_);
    a.share.resize(rows_ * own_heads_ * shape.context);
  }
  for (auto* wide : {&out_, &norm_, &d_stream_, &d_branch_}) wide->resize(rows_ * width_);
  for (auto* narrow : {&mean_, &inverse_}) narrow->resize(rows_);
  d_mixed_.resize(rows_ * own_width_);
  d_wide_.resize(rows_ * 4 * own_width_);
  d_share_.resize(shape.context * shape.context);
  logits_.resize(predicts() ? rows_ * shape::vocabulary : 0);
}

double gpt_part::forward(batch const& data, std::span<float const> parameters) {
  float const* const p = parameters.data();
  for (std::size_t r = 0; embeds() && r < rows_; ++r) {
    for (std::size_t j = 0; j < width_; ++j)
      entering()[r * width_ + j] = p[embedding_ + data.inputs[r] * width_ + j] + p[position_ + r % shape_.context * width_ + j];
  }
  for (std::size_t l = 0; l < blocks_.size(); ++l)
    forward_block(blocks_[l], at_[l], p, l + 1 < blocks_.size() ? blocks_[l + 1].in : out_);
  if (!predicts()) return 0;
  normalise_forward(out_.data(), p + norm_gain_, p + norm_bias_, norm_.data(), mean_.data(), inverse_.data(), rows_, width_);
  linear_forward<float>(norm_.data(), p + embedding_, nullptr, logits_.data(), rows_, width_, shape::vocabulary);
  const auto context = static_cast<float>(shape_.context);
  return cross_entropy(logits_.data(), std::span(data.targets), shape::vocabulary, 1 / context) / static_cast<double>(context);
}

void gpt_part::backward(batch const& data, std::span<float const> parameters, std::span<float> gradients) {
  float const* const p = parameters.data();
  float* const g = gradients.data();
  if (predicts()) {
    std::fill(d_stream_.begin(), d_stream_.end(), 0.0F);
    linear_backward<float>(norm_.data(), p + embedding_, logits_.data(), d_branch_.data(), g + embedding_, nullptr, rows_, width_,
                           shape::vocabulary);
    normalise_backward(out_.data(), p + norm_gain_, mean_.data(), inverse_.data(), d_branch_.data(), d_stream_.data(),
                       g + norm_gain_, g + norm_bias_, rows_, width_);
  }
  for (std::size_t l = blocks_.size(); l-- > 0;) backward_block(blocks_[l], at_[l], p, g);
  for (std::size_t r = 0; embeds() && r < rows_; ++r) {
    for (std::size_t j = 0; j < width_; ++j) {
      g[embedding_ + data.inputs[r] * width_ + j] += d_stream_[r * width_ + j];
      g[position_ + r % shape_.context * width_ + j] += d_stream_[r * width_ + j];
    }
  }
}

// [forward]
/// A column-parallel product needs nobody; the row-parallel one behind it leaves addends, which are summed ("g"). Its
/// bias is added once, behind the sum.
void gpt_part::forward_block(activations& a, block_offsets const& at, float const* p, std::span<float> out) {
  const auto add = [&](std::span<float> to, float const* bias, std::vector<float> const& stream) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += bias[i % width_] + stream[i];
  };
  normalise_forward(a.in.data(), p + at.norm1_gain, p + at.norm1_bias, a.norm1.data(), a.mean1.data(), a.inverse1.data(), rows_,
                    width_);
  linear_forward(a.norm1.data(), p + at.qkv, p + at.qkv_bias, a.qkv.data(), rows_, width_, 3 * own_width_);
  attention_forward(a.qkv.data(), a.share.data(), a.mixed.data(), sequences_, shape_.context, own_width_, own_heads_);
  linear_forward<float>(a.mixed.data(), p + at.project, nullptr, a.middle.data(), rows_, own_width_, width_);
  sum(a.middle);
  add(a.middle, p + at.project_bias, a.in);
  normalise_forward(a.middle.data(), p + at.norm2_gain, p + at.norm2_bias, a.norm2.data(), a.mean2.data(), a.inverse2.data(),
                    rows_, width_);
  linear_forward(a.norm2.data(), p + at.up, p + at.up_bias, a.up.data(), rows_, width_, 4 * own_width_);
  gelu_forward(a.up.data(), a.gate.data(), a.raised.data(), a.up.size());
  linear_forward<float>(a.raised.data(), p + at.down, nullptr, out.data(), rows_, 4 * own_width_, width_);
  sum(out);
  add(out, p + at.down_bias, a.middle);
}
// [forward]

/// Backward each rank has an addend of the gradient in front of a column-parallel product ("f").
void gpt_part::backward_block(activations const& a, block_offsets const& at, float const* p, float* g) {
  linear_backward(a.raised.data(), p + at.down, d_stream_.data(), d_wide_.data(), g + at.down, g + at.down_bias, rows_,
                  4 * own_width_, width_);
  gelu_backward(a.up.data(), a.gate.data(), d_wide_.data(), a.up.size());
  linear_backward(a.norm2.data(), p + at.up, d_wide_.data(), d_branch_.data(), g + at.up, g + at.up_bias, rows_, width_,
                  4 * own_width_);
  sum(d_branch_);
  normalise_backward(a.middle.data(), p + at.norm2_gain, a.mean2.data(), a.inverse2.data(), d_branch_.data(), d_stream_.data(),
                     g + at.norm2_gain, g + at.norm2_bias, rows_, width_);
  linear_backward(a.mixed.data(), p + at.project, d_stream_.data(), d_mixed_.data(), g + at.project, g + at.project_bias, rows_,
                  own_width_, width_);
  attention_backward(a.qkv.data(), a.share.data(), d_mixed_.data(), d_wide_.data(), d_share_.data(), sequences_, shape_.context,
                     own_width_, own_heads_);
  linear_backward(a.norm1.data(), p + at.qkv, d_wide_.data(), d_branch_.data(), g + at.qkv, g + at.qkv_bias, rows_, width_,
                  3 * own_width_);
  sum(d_branch_);
  normalise_backward(a.in.data(), p + at.norm1_gain, a.mean1.data(), a.inverse1.data(), d_branch_.data(), d_stream_.data(),
                     g + at.norm1_gain, g + at.norm1_bias, rows_, width_);
}

}  // namespace mesh
