// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include <acco/rule/muon.hpp>
#include <acco/rule/rules.hpp>

#include "on_threads.hpp"

namespace toy_gpt {
namespace {

/// The same elements, of which muon takes the matrices of the blocks, queries, keys and values apart; AdamW has the
/// rest.
acco::parameter_layout for_muon(acco::parameter_layout const& of) {
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

}  // namespace

acco::any_optimizer<float> make_with_muon(settings const& s, acco::host_storage<float> const& storage, threads_link const& world,
                                          acco::parameter_layout const& layout, acco::options const& options) {
  const acco::rules both{acco::muon{.learning_rate = s.rate()}, tuned(acco::adamw{}, s)};
  return acco::make<with_muon>(s.schedule, pace_of(s), both, storage, world, for_muon(layout), options);
}

}  // namespace toy_gpt
