// SPDX-License-Identifier: Apache-2.0
// Update rules of the outer level that are no optimizer's of their own: averaging, and momentum that is clipped. The
// others are those of rule/: `sgd` is heavy ball, and Nesterov's; the gradient is the mean change D of the anchor,
// downwards.
#pragma once

#include <array>
#include <cstddef>

#include "acco/number/real.hpp"
#include "acco/number/require.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// x <- x - D: the mean of the workers' parameters. Where the workers can send their parameters themselves (`of_means`,
/// which the level chooses), x <- mean, and a worker alone is not rounded.
struct averaging {
  bool of_means = false;  ///< the gradient is the mean of parameters, not of changes; set by the level

  static constexpr char const* name = "averaging";
  static constexpr std::size_t slot_count = 0;

  struct constants {
    double of_parameter, of_gradient;
  };

  [[nodiscard, gnu::always_inline]] constexpr constants prepare(update_step const&, update_group const&) const {
    return of_means ? constants{0.0, 1.0} : constants{1.0, -1.0};
  }

  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>&, constants const& c) {
    parameter = Real(c.of_parameter) * parameter + Real(c.of_gradient) * gradient;
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("of means", of_means);
  }
};
static_assert(update_rule<averaging>);

/// m <- clip(momentum m + D, -limit, limit), element by element, and kept so;  x <- x - lr m. CO2's outer update (arXiv
/// 2401.16265, Algorithm 1); in the authors' code the clipped value is dropped, so that nothing is ever clipped there.
struct clipped_momentum {
  double learning_rate = 0.7;
  double momentum = 0.2;
  double limit = 1.0;

  static constexpr char const* name = "clipped_momentum";
  static constexpr std::size_t slot_count = 1;  ///< the momentum

  struct constants {
    double momentum, limit, rate;
  };

  [[nodiscard, gnu::always_inline]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    return {momentum, limit, learning_rate * step.learning_rate_scale * group.learning_rate_scale};
  }

  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    const Real whole = Real(c.momentum) * slots[0] + gradient;
    slots[0] = maximum(-maximum(-whole, Real(-c.limit)), Real(-c.limit));
    parameter = parameter - Real(c.rate) * slots[0];
  }

  /// Throws `usage_error` unless learning_rate is finite and not negative, momentum lies in [0, 1), and limit is
  /// positive.
  void check(error_place where = {}) const {
    require_not_negative("clipped_momentum::learning_rate", learning_rate, where);
    require_share("clipped_momentum::momentum", momentum, where);
    require_positive("clipped_momentum::limit", limit, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("learning_rate", learning_rate);
    visit("momentum", momentum);
    visit("limit", limit);
  }
};
static_assert(update_rule<clipped_momentum>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
