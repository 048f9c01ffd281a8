// SPDX-License-Identifier: Apache-2.0
// Lion: the sign of an interpolated momentum (Chen et al., arXiv 2302.06675, algorithm 2), with decoupled weight decay.
#pragma once

#include "acco/number/real.hpp"
#include "acco/number/require.hpp"
#include "acco/rule/refuse_of_group.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// p <- p (1 - lr wd) - lr sign(beta1 m + (1 - beta1) g);  m <- beta2 m + (1 - beta2) g.
/// With equal betas it is Signum, with betas of 0 signSGD (Bernstein et al., arXiv 1802.04434, Algorithms 1 and 2).
struct lion {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;

  static constexpr char const* name = "lion";
  static constexpr std::size_t slot_count = 1;  ///< the momentum
  static constexpr bool bounded_step = true;

  struct constants {
    double beta1, beta2, keep, rate;
  };

  [[nodiscard, gnu::always_inline]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    const double rate = learning_rate * step.learning_rate_scale * group.learning_rate_scale;
    return {group.beta1.value_or(beta1), group.beta2.value_or(beta2), 1 - rate * group.weight_decay.value_or(weight_decay), rate};
  }

  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    const Real direction = sign(Real(c.beta1) * slots[0] + Real(1 - c.beta1) * gradient);
    slots[0] = Real(c.beta2) * slots[0] + Real(1 - c.beta2) * gradient;
    parameter = parameter * Real(c.keep) - Real(c.rate) * direction;
  }

  /// Throws `usage_error` unless learning_rate and weight_decay are finite and not negative, and betas lie in [0, 1).
  /// The optimizer's constructor calls it.
  void check(error_place where = {}) const {
    require_not_negative("lion::learning_rate", learning_rate, where);
    require_share("lion::beta1", beta1, where);
    require_share("lion::beta2", beta2, where);
    require_not_negative("lion::weight_decay", weight_decay, where);
  }
  void check_group(update_group const& group, error_place where = {}) const {
    require_share("update_group::beta1", group.beta1.value_or(beta1), where);
    require_share("update_group::beta2", group.beta2.value_or(beta2), where);
    if (group.epsilon) refuse_of_group("epsilon", name, where);
    if (group.momentum) refuse_of_group("momentum", name, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("learning_rate", learning_rate);
    visit("beta1", beta1);
    visit("beta2", beta2);
    visit("weight_decay", weight_decay);
  }
};
static_assert(update_rule<lion>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
