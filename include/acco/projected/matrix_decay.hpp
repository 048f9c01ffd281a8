// SPDX-License-Identifier: Apache-2.0
// Weight decay of matrices that are trained in bases: z decays by the rule, and W beside it.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/projected/projected_layout.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// By what an update without a gradient multiplies a parameter of a group, at a rate. Throws `usage_error` where nothing
/// is left: what has been shown is divided by it.
using kept_share = std::function<double(update_group const&, double)>;

/// That of a rule in the masters' type. Throws `usage_error` where updates of these matrices depend on the parameter
/// otherwise than by such a factor, which is asked at 0 and at 1: W could not follow.
template <class Real, class Rule>
[[nodiscard]] kept_share share_kept_by(Rule rule, projected_layout const& layout, error_place where) {
  const auto updated = [rule = std::move(rule)]<class T>(T parameter, T gradient, update_group const& group, double rate,
                                                         std::array<T, Rule::slot_count>& slots) {
    Rule::apply(parameter, gradient, slots, rule.prepare({.count = 1, .learning_rate_scale = rate}, group));
    return static_cast<double>(parameter);
  };
  const auto kept = [updated, where](update_group const& group, double rate) {
    std::array<Real, Rule::slot_count> slots{};
    const double keeps = updated(Real(1), Real(0), group, rate, slots);
    if (keeps > 0) return keeps;
    throw usage_error(where, text("galore: weight decay leaves ", keeps, " of a parameter in one update"),
                      text("Give a learning rate whose product with weight_decay is below 1"));
  };
  for (projected_matrix const& m : layout.matrices) {
    update_group const& group = layout.whole.groups()[m.group];
    std::array<double, Rule::slot_count> none{}, at_zero{}, at_one{};
    const double keeps = updated(1.0, 0.0, group, 1, none);
    const double moved = updated(0.0, 1.0, group, 1, at_zero);
    if (std::abs(updated(1.0, 1.0, group, 1, at_one) - moved - keeps) > 1e-9 || at_zero != at_one) {
      throw usage_error(where,
                        text("galore: the rule's update of tensor '", layout.whole[m.tensor].name,
                             "' depends on the parameter otherwise than by decoupled weight decay"),
                        text("Give a rule whose weight decay is decoupled: sgd{.weight_decay_kind = decay::decoupled}, adamw"));
    }
    if (keeps != 1 && group.leave_without_gradient) {
      throw usage_error(where,
                        text("galore: tensor '", layout.whole[m.tensor].name, "' decays, and is left alone without a gradient"),
                        text("Give its group weight_decay = 0, or leave_without_gradient = false; or do not project it"));
    }
  }
  return kept;
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
