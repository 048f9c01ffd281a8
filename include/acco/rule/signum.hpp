// SPDX-License-Identifier: Apache-2.0
// Signum: the sign of the momentum; without momentum signSGD, the sign of the gradient (Bernstein et al., arXiv 1802.04434,
// Algorithms 1 and 2), with decoupled weight decay.
#pragma once

#include "acco/number/demand.hpp"
#include "acco/number/real.hpp"
#include "acco/rule/refuse_of_group.hpp"
#include "acco/rule/update_rule.hpp"

namespace ACCO_NAMESPACE {

/// m <- momentum m + (1 - momentum) g;  p <- p (1 - lr wd) - lr sign(m), sign(0) = 0.
///
/// With momentum 0 it is signSGD: m is the gradient itself, whatever the slot held. Of a sum of votes (encoding/block_sign.hpp:
/// `sign_vote`) the sign is the majority's.
struct signum {
  double learning_rate = 1e-4;
  double momentum = 0.9;
  double weight_decay = 0.0;

  static constexpr char const* name = "signum";
  static constexpr bool bounded_step = true;
  static constexpr std::size_t slot_count = 1;  ///< the momentum

  struct constants {
    double momentum, keep, rate;
  };

  [[nodiscard, gnu::always_inline]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    const double rate = learning_rate * step.learning_rate_scale * group.learning_rate_scale;
    return {group.momentum.value_or(momentum), 1 - rate * group.weight_decay.value_or(weight_decay), rate};
  }

  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    slots[0] = Real(c.momentum) * slots[0] + Real(1 - c.momentum) * gradient;
    parameter = parameter * Real(c.keep) - Real(c.rate) * sign(slots[0]);
  }

  /// Throws `usage_error` unless learning_rate and weight_decay are finite and not negative, and momentum lies in [0, 1). The
  /// optimizer's constructor calls it.
  void check(error_place where = {}) const {
    demand_not_negative("signum::learning_rate", learning_rate, where);
    demand_share("signum::momentum", momentum, where);
    demand_not_negative("signum::weight_decay", weight_decay, where);
  }
  void check_group(update_group const& group, error_place where = {}) const {
    demand_share("update_group::momentum", group.momentum.value_or(momentum), where);
    if (group.beta1 || group.beta2) refuse_of_group("beta", name, where);
    if (group.epsilon) refuse_of_group("epsilon", name, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("learning_rate", learning_rate);
    visit("momentum", momentum);
    visit("weight_decay", weight_decay);
  }
};
static_assert(update_rule<signum>);

}  // namespace ACCO_NAMESPACE
