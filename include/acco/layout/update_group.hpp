// SPDX-License-Identifier: Apache-2.0
// How a group of tensors deviates from the update rule's own hyperparameters.
#pragma once

#include <optional>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

struct update_group {
  double learning_rate_scale = 1.0;         ///< multiplies the learning rate
  std::optional<double> weight_decay = {};  ///< replaces the rule's weight decay
  bool frozen = false;                      ///< never updated: no state, no traffic
  // Replace the rule's own, where it has them; a rule that has not is refused by the optimizer's constructor.
  std::optional<double> beta1 = {}, beta2 = {}, epsilon = {};  ///< adamw; lion has the betas
  std::optional<double> momentum = {};                         ///< sgd
};

}  // namespace ACCO_NAMESPACE
