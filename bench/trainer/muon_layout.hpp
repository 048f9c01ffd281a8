// SPDX-License-Identifier: Apache-2.0
// The model's elements as muon takes them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <acco/layout/parameter_layout.hpp>

namespace toy_gpt {

/// The same elements, of which muon takes the matrices of the blocks, queries, keys and values apart; AdamW has the
/// rest.
inline acco::parameter_layout for_muon(acco::parameter_layout const& of) {
  acco::parameter_layout layout;
  const auto others = layout.add_group({.rule = 1}), no_decay = layout.add_group({.weight_decay = 0.0, .rule = 1});
  for (std::size_t k = 0; k < of.tensor_count(); ++k) {
    auto const each = of[k];
    const bool decays = !of.groups()[each.group].weight_decay;
    if (each.shape.size() != 2 || !each.name.starts_with('h')) {
      layout.add(each.name, each.shape, decays ? others : no_decay);
    } else if (each.name.ends_with("attn.qkv")) {
      for (std::string_view const part : {"attn.q", "attn.k", "attn.v"})
        layout.add(std::string(each.name.substr(0, each.name.size() - 8)).append(part), {each.shape[0] / 3, each.shape[1]});
    } else {
      layout.add(each.name, each.shape);
    }
  }
  return layout;
}

}  // namespace toy_gpt
