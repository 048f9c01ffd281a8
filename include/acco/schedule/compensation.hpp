// SPDX-License-Identifier: Apache-2.0
// What is done to gradients that come a step late under the delayed update: compensations.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/number/require.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Nothing: they are used as they are.
struct no_compensation {
  static constexpr char const* name = "none";
};

/// g + strength g g (theta[t] - theta[t-1]): a first-order correction from where g was computed to where it is used,
/// with g g in place of the Hessian's diagonal (DC-ASGD with constant lambda, arXiv 1609.08326, equation 10;
/// SAPipe-DC). g is the mean gradient of all ranks, after clipping. Costs one slot.
struct delay_compensation {
  double strength = 0.04;  ///< lambda; 0: none

  static constexpr char const* name = "delay_compensation";
  static constexpr std::size_t slot_count = 0;
  struct constants {
    double strength;
  };
  [[nodiscard]] constexpr constants prepare(update_step const& step) const { return {step.late ? strength : 0.0}; }
  template <class Real>
  static constexpr Real correct(Real gradient, Real moved, std::array<Real, slot_count>&, constants const& c) {
    return gradient + Real(c.strength) * gradient * (gradient * moved);  // no square alone: it may overflow
  }
  /// `strength` is finite and not negative.
  void check(error_place where = {}) const { require_not_negative("delay_compensation::strength", strength, where); }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("compensation.strength", strength);
  }
};

/// The constants of one step: whatever `prepare` returns.
template <class Compensation>
using compensation_constants = decltype(std::declval<Compensation const&>().prepare(update_step{}));

/// A compensation of one's own changes a late gradient, element by element:
///  - `static constexpr std::size_t slot_count`: numbers of its own for each parameter, 0 at the start;
///  - `prepare(update_step) const`: trivially copyable constants of a step. Where `update_step::late` is false the
///    gradients are those of the parameters that they update: they need no correction;
///  - `template <class Real> static constexpr Real correct(Real gradient, Real moved, std::array<Real, slot_count>& slots,
///    constants const&)`: `moved` is by how much the parameter has moved since the gradient was computed.
/// Optional, as of a rule: `name`, `check(error_place) const`, `describe(visit) const`.
template <class Compensation>
concept elementwise_compensation =
    requires {
      { Compensation::slot_count } -> std::convertible_to<std::size_t>;
      requires std::is_trivially_copyable_v<compensation_constants<Compensation>>;
    } && requires(float number, std::array<float, Compensation::slot_count>& slots,
                  compensation_constants<Compensation> const& constants) {
      { Compensation::correct(number, number, slots, constants) } -> std::same_as<float>;
    };
template <class Compensation>
concept compensation = std::same_as<Compensation, no_compensation> || elementwise_compensation<Compensation>;
static_assert(elementwise_compensation<delay_compensation>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
