// SPDX-License-Identifier: Apache-2.0
// AdamW: Adam with decoupled weight decay (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2).
#pragma once

#include "acco/number/real.hpp"
#include "acco/number/require.hpp"
#include "acco/rule/refuse_of_group.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// p <- p (1 - lr wd) - lr m^ / (sqrt(v^) + epsilon), with m^ and v^ the bias-corrected moments of the gradient.
struct adamw {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  static constexpr char const* name = "adamw";
  static constexpr std::size_t slot_count = 2;  ///< first and second moment
  static constexpr bool bounded_step = true;

  struct constants {
    double beta1, beta2, keep, step_size, second_moment_scale, epsilon;
  };

  [[nodiscard, gnu::always_inline]] constants prepare(update_step const& step, update_group const& group) const {
    const double rate = learning_rate * step.learning_rate_scale * group.learning_rate_scale;
    const double b1 = group.beta1.value_or(beta1), b2 = group.beta2.value_or(beta2);
    const double correction1 = 1 - __builtin_pow(b1, static_cast<double>(step.count));
    const double correction2 = 1 - __builtin_pow(b2, static_cast<double>(step.count));
    return {b1,
            b2,
            1 - rate * group.weight_decay.value_or(weight_decay),
            rate / correction1,
            1 / __builtin_sqrt(correction2),
            group.epsilon.value_or(epsilon)};
  }

  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    Real& first = slots[0];
    Real& second = slots[1];
    first = Real(c.beta1) * first + Real(1 - c.beta1) * gradient;
    second = Real(c.beta2) * second + Real(1 - c.beta2) * (gradient * gradient);
    const Real denominator = square_root(second) * Real(c.second_moment_scale) + Real(c.epsilon);
    parameter = parameter * Real(c.keep) - Real(c.step_size) * first / denominator;
  }

  /// Throws `usage_error` unless learning_rate and weight_decay are finite and not negative, betas lie in [0, 1),
  /// epsilon is positive (with 0, a parameter whose gradients are all 0 becomes NaN). The optimizer's constructor calls
  /// it.
  void check(error_place where = {}) const {
    require_not_negative("adamw::learning_rate", learning_rate, where);
    require_share("adamw::beta1", beta1, where);
    require_share("adamw::beta2", beta2, where);
    require_positive("adamw::epsilon", epsilon, where);
    require_not_negative("adamw::weight_decay", weight_decay, where);
  }
  void check_group(update_group const& group, error_place where = {}) const {
    require_share("update_group::beta1", group.beta1.value_or(beta1), where);
    require_share("update_group::beta2", group.beta2.value_or(beta2), where);
    require_positive("update_group::epsilon", group.epsilon.value_or(epsilon), where);
    if (group.momentum) refuse_of_group("momentum", name, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("learning_rate", learning_rate);
    visit("beta1", beta1);
    visit("beta2", beta2);
    visit("epsilon", epsilon);
    visit("weight_decay", weight_decay);
  }
};
static_assert(update_rule<adamw>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
