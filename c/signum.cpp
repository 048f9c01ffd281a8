// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/signum.hpp>

#include "engine.hpp"

acco::any_optimizer<float> acco_c::make_signum(acco_rule const& rule, acco_schedule const& schedule,
                                               std::shared_ptr<carrier> const& over, acco::parameter_layout const& layout,
                                               acco::options const& options) {
  return make(acco::signum{.learning_rate = rule.learning_rate, .momentum = rule.momentum, .weight_decay = rule.weight_decay},
              schedule, over, layout, options);
}
