// SPDX-License-Identifier: Apache-2.0
// How a group of tensors deviates from the update rule's own hyperparameters.
#pragma once

#include <cstddef>
#include <optional>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

struct update_group {
  double learning_rate_scale = 1.0;         ///< multiplies the learning rate
  std::optional<double> weight_decay = {};  ///< replaces the rule's weight decay
  bool frozen = false;                      ///< never updated: no state, no traffic
  /// Of frozen tensors that the program itself writes, on each rank otherwise (running statistics of batch norms): no
  /// rank's take the place of another's, and a checkpoint has every rank's.
  bool per_rank = false;
  // Replace the rule's own, where it has them; a rule that has not is refused by the optimizer's constructor.
  std::optional<double> beta1 = {}, beta2 = {}, epsilon = {};  ///< adamw; lion has the betas
  std::optional<double> momentum = {};                         ///< sgd
  std::size_t rule = 0;  ///< which of several rules (rule/rules.hpp) updates the group; 0 where there is one
  /// Largest norm of the mean gradient of the group's tensors, together, instead of `options::clip_norm`, whose norm
  /// then leaves them out; 0: not clipped.
  std::optional<double> clip_norm = {};
  /// A tensor whose gradient is exactly zero, on every rank and in all its elements, is left alone in that step: no
  /// decay, no momentum, its state stays. Otherwise zero is a gradient like others.
  bool leave_without_gradient = false;
};

}  // namespace ACCO_NAMESPACE
