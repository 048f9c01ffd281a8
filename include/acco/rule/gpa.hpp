// SPDX-License-Identifier: Apache-2.0
// Generalized primal averaging around a rule (Defazio et al., "Smoothing DiLoCo with Primal Averaging for Faster
// Training of LLMs", arXiv 2512.17131): what an outer Nesterov step over one worker does every few steps, in every
// step.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/number/require.hpp"
#include "acco/rule/adamw.hpp"
#include "acco/rule/decorated.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// The two constants of `gpa`.
struct primal_averaging {
  double interpolation = 0.7;     ///< mu_y: the average's part of where gradients are computed; 0: the rule
  double average_decay = 0.9967;  ///< mu_x: how much of the average an update keeps; mu^(1/H) is like an outer step
                                  ///< of momentum mu every H steps

  /// Both lie in [0, 1).
  void check(error_place where = {}) const {
    require_share("primal_averaging::interpolation", interpolation, where);
    require_share("primal_averaging::average_decay", average_decay, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("interpolation", interpolation);
    visit("average_decay", average_decay);
  }
};

/// z <- rule(z, gradient at y);  x <- mu_x x + (1 - mu_x) z;  y <- mu_y x + (1 - mu_y) z.
///
///   acco::optimizer training{acco::two_phase{}, acco::gpa{acco::adamw{.learning_rate = 2e-3}}, storage, world, layout};
///
/// y are the parameters that the ranks see, predict and commit; x, which evaluates best, is `gather_average`. Costs one
/// slot behind the rule's: by how much x lies ahead of y. So whatever replaces parameters (`set_parameters`) moves x
/// and z along. Decoupled weight decay is that of z. Around `rules{...}` all of them are averaged; as one of several, x
/// of its group is not told. Not within local updates, whose anchor has no such average.
template <update_rule Rule>
struct gpa : Rule {
  static_assert(!std::is_final_v<Rule>, "acco: gpa becomes part of the rule, by inheritance: the rule must not be final");
  static_assert(!keeps_average<Rule>, "acco: this rule keeps an average already");

  explicit gpa(Rule rule = {}, primal_averaging given = {}) : Rule(std::move(rule)), averaging(given) {}

  primal_averaging averaging;

  using undecorated = Rule;
  [[nodiscard]] static constexpr char const* decoration() noexcept { return "primal average"; }
  static constexpr std::size_t average_slot = Rule::slot_count, slot_count = average_slot + 1;
  struct constants {
    rule_constants<Rule> of_rule;
    double behind;  ///< z = y - behind (x - y)
    double keeps, ahead;
  };
  [[nodiscard]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    const double ahead = 1 - averaging.interpolation;
    return {Rule::prepare(step, group), averaging.interpolation / ahead, averaging.average_decay, ahead};
  }
  template <class Real>
    requires has_apply<Rule>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    const Real before = base_point(parameter, slots, c);
    parameter = before;
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::apply(parameter, gradient, own, c.of_rule); });
    average(parameter, before, slots, c);
  }
  template <class Real>
    requires matrix_rule<Rule>
  static constexpr Real before_matrix(Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    Real element = gradient;
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { element = Rule::before_matrix(gradient, own, c.of_rule); });
    return element;
  }
  template <class Real>
    requires matrix_rule<Rule>
  static void on_matrix(matrix_view<Real> const& matrix, constants const& c) {
    Rule::on_matrix(matrix, c.of_rule);
  }
  template <class Real>
    requires matrix_rule<Rule>
  static constexpr void after_matrix(Real& parameter, Real element, std::array<Real, slot_count>& slots, constants const& c) {
    const Real before = base_point(parameter, slots, c);
    parameter = before;
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::after_matrix(parameter, element, own, c.of_rule); });
    average(parameter, before, slots, c);
  }
  void check(error_place where = {}) const {
    decorated::check(static_cast<Rule const&>(*this), where);
    averaging.check(where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    decorated::describe(static_cast<Rule const&>(*this), visit);
    averaging.describe(visit);
  }

 private:
  /// z of y.
  template <class Real>
  static constexpr Real base_point(Real y, std::array<Real, slot_count> const& slots, constants const& c) {
    return y - Real(c.behind) * slots[average_slot];
  }
  /// x follows z, which the rule has moved; then z becomes y.
  template <class Real>
  static constexpr void average(Real& z, Real before, std::array<Real, slot_count>& slots, constants const& c) {
    slots[average_slot] = Real(c.keeps) * (slots[average_slot] - Real(c.ahead) * (z - before));
    z = z + Real(c.behind) * slots[average_slot];
  }
};
static_assert(update_rule<gpa<adamw>> && keeps_average<gpa<adamw>>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
