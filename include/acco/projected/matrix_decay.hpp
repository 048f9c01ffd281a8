// SPDX-License-Identifier: Apache-2.0
// Weight decay of matrices that are trained in bases: z decays by the rule, and B beside it, so that W does.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/projection.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a rule does to a parameter beside its gradient: B can only follow where that is a factor.
template <class Rule>
class matrix_decay {
 public:
  explicit matrix_decay(Rule rule) : rule_(std::move(rule)) {}

  /// By what an update without a gradient multiplies a parameter of this group.
  [[nodiscard]] double kept(update_group const& group, double rate) const { return updated(1, 0, group, rate).parameter; }
  /// Throws `usage_error` where updates of these matrices depend on the parameter otherwise than by such a factor: asked at 0 and
  /// at 1.
  void check(parameter_layout const& layout, std::vector<projected_matrix> const& matrices, error_place where) const {
    for (projected_matrix const& m : matrices) {
      update_group const& group = layout.groups()[m.group];
      const element at_zero = updated(0, 1, group, 1), at_one = updated(1, 1, group, 1);
      const double keeps = kept(group, 1);
      if (at_zero.slots != at_one.slots || std::abs(at_one.parameter - at_zero.parameter - keeps) > 1e-9) {
        throw usage_error(where,
                          text("galore: the rule's update of tensor '", layout[m.tensor].name,
                               "' depends on the parameter otherwise than by decoupled weight decay"),
                          text("Give a rule whose weight decay is decoupled: sgd{.weight_decay_kind = decay::decoupled}, adamw"));
      }
      if (keeps != 1 && group.leave_without_gradient) {
        throw usage_error(where,
                          text("galore: tensor '", layout[m.tensor].name, "' decays, and is left alone without a gradient"),
                          text("Give its group weight_decay = 0, or leave_without_gradient = false; or do not project it"));
      }
    }
  }

 private:
  struct element {
    double parameter = 0;
    std::array<double, Rule::slot_count> slots{};
  };
  [[nodiscard]] element updated(double parameter, double gradient, update_group const& group, double rate) const {
    element made{.parameter = parameter};
    const auto constants = rule_.prepare({.count = 1, .learning_rate_scale = rate}, group);
    Rule::apply(made.parameter, gradient, made.slots, constants);
    return made;
  }

  Rule rule_;
};

}  // namespace ACCO_SIMD_NAMESPACE
