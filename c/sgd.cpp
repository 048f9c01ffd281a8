// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/sgd.hpp>

#include "engine.hpp"

acco::any_optimizer<float> acco_c::make_sgd(acco_rule const& rule, acco_schedule const& schedule,
                                            std::shared_ptr<carrier> const& over, acco::parameter_layout const& layout,
                                            acco::options const& options) {
  return make(acco::sgd{.learning_rate = rule.learning_rate,
                        .momentum = rule.momentum,
                        .weight_decay = rule.weight_decay,
                        .nesterov = rule.nesterov != 0,
                        .weight_decay_kind = rule.classic_decay != 0 ? acco::decay::classic : acco::decay::decoupled},
              schedule, over, layout, options);
}
