// SPDX-License-Identifier: Apache-2.0
#include <acco/rule/lion.hpp>

#include "engine.hpp"

acco::any_optimizer<float> acco_c::make_lion(acco_rule const& rule, acco_schedule const& schedule,
                                             std::shared_ptr<carrier> const& over, acco::parameter_layout const& layout,
                                             acco::options const& options) {
  return make(
      acco::lion{
          .learning_rate = rule.learning_rate, .beta1 = rule.beta1, .beta2 = rule.beta2, .weight_decay = rule.weight_decay},
      schedule, over, layout, options);
}
