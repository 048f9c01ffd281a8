// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include <acco/rule/muon.hpp>
#include <acco/rule/rules.hpp>
#include <acco/schedule/compensation.hpp>
#include <acco/schedule/predictor.hpp>

#include "on_threads.hpp"

namespace toy_gpt {
namespace {

/// The same elements, of which muon takes the matrices of the blocks, queries, keys and values apart; AdamW has the rest.
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

acco::any_optimizer<float> decorated_schedules<acco::host_storage<float>, threads_link>::make(
    settings const& s, acco::host_storage<float> const& storage, threads_link const& world, acco::parameter_layout const& layout,
    acco::options const& options) {
  const chosen_pace pace{s.first, s.second, s.elastic ? std::max(64U, s.first) : 0};
  const chosen_split split{pace, {.micro_batches = s.auto_pace ? s.first + (s.second != 0 ? s.second : s.first) : 0}};
  const acco::adamw adamw{.learning_rate = s.rate(), .beta2 = 0.99, .weight_decay = 0.1};
  if (s.rule == "muon") {
    const auto with = [&](auto schedule) -> acco::any_optimizer<float> {
      return acco::optimizer{
          schedule, acco::rules{acco::muon{.learning_rate = s.rate()}, adamw}, storage, world, for_muon(layout), options};
    };
    const acco::fixed_pace fixed{.first = s.first, .second = s.second};
    if (s.schedule == "synchronous") return with(acco::synchronous{.pace = fixed});
    if (s.schedule == "two_phase") return with(acco::two_phase{.pace = split});
    return with(acco::delayed{.pace = pace});
  }
  const auto with = [&](auto schedule) -> acco::any_optimizer<float> {
    return acco::optimizer{schedule, adamw, storage, world, layout, options};
  };
  if (s.schedule == "extrapolation") return with(acco::delayed{.pace = pace, .predictor = acco::extrapolation{}});
  if (s.schedule == "two_phase") return with(acco::two_phase{.estimate = acco::own_corrected{}, .pace = split});
  if (s.schedule == "velocity") return with(acco::delayed{.pace = pace, .predictor = acco::velocity{}});
  return with(acco::delayed{.pace = pace, .compensation = acco::adaptive_delay_compensation{}});
}

}  // namespace toy_gpt
