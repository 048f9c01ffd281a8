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
};

}  // namespace ACCO_NAMESPACE
