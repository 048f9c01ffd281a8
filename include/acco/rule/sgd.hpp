// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum, Nesterov's variant, and either kind of weight decay.
#pragma once

#include "acco/number/real.hpp"
#include "acco/number/require.hpp"
#include "acco/rule/refuse_of_group.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// How weight decay enters: `decoupled` shrinks the parameter beside the step (SGDW, arXiv 1711.05101, algorithm 1
/// without its schedule multiplier); `classic` adds wd * p to the gradient before momentum (L2 regularisation; what
/// PyTorch's SGD does).
enum class decay { decoupled, classic };

/// b <- momentum b + g;  p <- p - lr b  (Nesterov: p - lr (g + momentum b)).
struct sgd {
  double learning_rate = 1e-2;
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  decay weight_decay_kind = decay::decoupled;

  static constexpr char const* name = "sgd";
  static constexpr std::size_t slot_count = 1;  ///< the momentum buffer

  struct constants {
    double momentum, keep, coupled_decay, rate_of_gradient, rate_of_momentum;
  };

  [[nodiscard, gnu::always_inline]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    const double rate = learning_rate * step.learning_rate_scale * group.learning_rate_scale;
    const double strength = group.weight_decay.value_or(weight_decay);
    const double kept = group.momentum.value_or(momentum);
    const bool decoupled = weight_decay_kind == decay::decoupled;
    return {kept, decoupled ? 1 - rate * strength : 1.0, decoupled ? 0.0 : strength, nesterov ? rate : 0.0,
            nesterov ? rate * kept : rate};
  }

  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    const Real total = gradient + Real(c.coupled_decay) * parameter;
    slots[0] = Real(c.momentum) * slots[0] + total;
    parameter = parameter * Real(c.keep) - (Real(c.rate_of_gradient) * total + Real(c.rate_of_momentum) * slots[0]);
  }

  /// Throws `usage_error` unless learning_rate and weight_decay are finite and not negative, and momentum lies in [0,
  /// 1). The optimizer's constructor calls it.
  void check(error_place where = {}) const {
    require_not_negative("sgd::learning_rate", learning_rate, where);
    require_share("sgd::momentum", momentum, where);
    require_not_negative("sgd::weight_decay", weight_decay, where);
  }
  void check_group(update_group const& group, error_place where = {}) const {
    require_share("update_group::momentum", group.momentum.value_or(momentum), where);
    if (group.beta1 || group.beta2) refuse_of_group("beta", name, where);
    if (group.epsilon) refuse_of_group("epsilon", name, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("learning_rate", learning_rate);
    visit("momentum", momentum);
    visit("weight_decay", weight_decay);
    visit("nesterov", nesterov);
    visit("decoupled weight decay", weight_decay_kind == decay::decoupled);
  }
};
static_assert(update_rule<sgd>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
