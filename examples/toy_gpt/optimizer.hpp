// SPDX-License-Identifier: Apache-2.0
// The optimizer that the command line names: schedule, pace and rule become types here, over any storage and backend.
#pragma once

#include <algorithm>

#include <acco/make.hpp>

#include "schedules.hpp"
#include "settings.hpp"

namespace toy_gpt {

template <class Storage>
using training_of = acco::any_optimizer<typename Storage::parameter_type, typename Storage::gradient_type>;

inline acco::any_pace pace_of(settings const& s) {
  if (s.elastic) return acco::elastic_pace{.at_least = s.first, .at_most = std::max(64U, s.first)};
  if (s.auto_pace && s.schedule == "two_phase")
    return acco::auto_pace{.micro_batches = s.first + (s.second != 0 ? s.second : s.first)};
  return acco::fixed_pace{.first = s.first, .second = s.second};
}

/// A rule at the learning rate of the settings, and with what suits a small GPT.
template <class Rule>
Rule tuned(Rule rule, settings const& s) {
  rule.learning_rate = s.rate();
  if constexpr (requires { rule.beta2; }) rule.beta2 = 0.99, rule.weight_decay = 0.1;
  if constexpr (requires { rule.momentum; }) rule.momentum = 0.9;
  return rule;
}

template <class Storage, class World>
training_of<Storage> make_training(settings const& s, Storage const& storage, World const& world,
                                   acco::parameter_layout const& layout, acco::options const& options) {
  return acco::with_rule(s.rule, [&](auto const& rule) -> training_of<Storage> {
    return acco::make<shared_engine>(s.label(), pace_of(s), tuned(rule, s), storage, world, layout, options);
  });
}

}  // namespace toy_gpt
