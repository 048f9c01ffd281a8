// SPDX-License-Identifier: Apache-2.0
// A schedule's predictor and compensation are elementwise, like the rule: they become part of it. So their numbers are
// slots of the state, in memory tables, digests and checkpoints alike, and the update stays one pass, on the host and
// on a GPU. What estimates remember of other ranks' gradients is such a slot, too.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/error.hpp"
#include "acco/number/require.hpp"
#include "acco/rule/decorated.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/schedule/compensation.hpp"
#include "acco/schedule/predictor.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// The rule, and behind its slots those of the predictor.
template <update_rule Rule, elementwise_predictor Predictor>
struct predicting : Rule {
  predicting(Rule rule, Predictor given) : Rule(std::move(rule)), predictor(std::move(given)) {}

  Predictor predictor;

  using undecorated = Rule;
  [[nodiscard]] static constexpr char const* decoration() noexcept { return decorated::name_of<Predictor>(); }
  static constexpr bool scalar_only = decorated::branches<Rule>() || decorated::branches<Predictor>();
  static constexpr std::size_t slot_count = Rule::slot_count + Predictor::slot_count;
  struct constants {
    rule_constants<Rule> of_rule;
    predictor_constants<Predictor> of_predictor;
  };
  [[nodiscard]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    return {Rule::prepare(step, group), predictor.prepare(step)};
  }
  template <class Real>
    requires has_apply<Rule>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::apply(parameter, gradient, own, c.of_rule); });
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
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::after_matrix(parameter, element, own, c.of_rule); });
  }
  template <class Real>
  static constexpr Real show(Real before, Real after, std::array<Real, slot_count>& slots, constants const& c) {
    auto own = decorated::part<Real, Predictor::slot_count>(slots, Rule::slot_count);
    const Real shown = Predictor::show(before, after, own, c.of_predictor);
    decorated::put(own, slots, Rule::slot_count);
    return shown;
  }
  void check(error_place where = {}) const {
    decorated::check(static_cast<Rule const&>(*this), where);
    decorated::check(predictor, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    decorated::describe(static_cast<Rule const&>(*this), visit);
    visit("predictor", decorated::name_of<Predictor>());
    decorated::describe(predictor, visit);
  }
};

/// The rule, and behind its slots those of the compensation, and by how much the last update has moved the parameter.
template <update_rule Rule, elementwise_compensation Compensation>
struct compensating : Rule {
  compensating(Rule rule, Compensation given) : Rule(std::move(rule)), compensation(std::move(given)) {}

  Compensation compensation;

  using undecorated = Rule;
  [[nodiscard]] static constexpr char const* decoration() noexcept { return decorated::name_of<Compensation>(); }
  static constexpr bool scalar_only = decorated::branches<Rule>() || decorated::branches<Compensation>();
  static constexpr std::size_t moved_slot = Rule::slot_count + Compensation::slot_count, slot_count = moved_slot + 1;
  struct constants {
    rule_constants<Rule> of_rule;
    compensation_constants<Compensation> of_compensation;
  };
  [[nodiscard]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    return {Rule::prepare(step, group), compensation.prepare(step)};
  }
  template <class Real>
    requires has_apply<Rule>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    auto of_compensation = decorated::part<Real, Compensation::slot_count>(slots, Rule::slot_count);
    const Real corrected = Compensation::correct(gradient, slots[moved_slot], of_compensation, c.of_compensation);
    decorated::put(of_compensation, slots, Rule::slot_count);
    const Real before = parameter;
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::apply(parameter, corrected, own, c.of_rule); });
    slots[moved_slot] = parameter - before;
  }
  template <class Real>
    requires matrix_rule<Rule>
  static constexpr Real before_matrix(Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    auto of_compensation = decorated::part<Real, Compensation::slot_count>(slots, Rule::slot_count);
    const Real corrected = Compensation::correct(gradient, slots[moved_slot], of_compensation, c.of_compensation);
    decorated::put(of_compensation, slots, Rule::slot_count);
    Real element = corrected;
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { element = Rule::before_matrix(corrected, own, c.of_rule); });
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
    const Real before = parameter;
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::after_matrix(parameter, element, own, c.of_rule); });
    slots[moved_slot] = parameter - before;
  }
  void check(error_place where = {}) const {
    decorated::check(static_cast<Rule const&>(*this), where);
    decorated::check(compensation, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    decorated::describe(static_cast<Rule const&>(*this), visit);
    visit("compensation", decorated::name_of<Compensation>());
    decorated::describe(compensation, visit);
  }
};

/// The rule, and behind its slots one for the mean of the other ranks' last gradients.
template <update_rule Rule>
struct remembering_others : Rule {
  explicit remembering_others(Rule rule) : Rule(std::move(rule)) {}

  using undecorated = Rule;
  [[nodiscard]] static constexpr char const* decoration() noexcept { return "others' mean gradient"; }
  static constexpr std::size_t others_slot = Rule::slot_count, slot_count = others_slot + 1;
  template <class Real>
    requires has_apply<Rule>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots,
                              rule_constants<Rule> const& c) {
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::apply(parameter, gradient, own, c); });
  }
  template <class Real>
    requires matrix_rule<Rule>
  static constexpr Real before_matrix(Real gradient, std::array<Real, slot_count>& slots, rule_constants<Rule> const& c) {
    Real element = gradient;
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { element = Rule::before_matrix(gradient, own, c); });
    return element;
  }
  template <class Real>
    requires matrix_rule<Rule>
  static constexpr void after_matrix(Real& parameter, Real element, std::array<Real, slot_count>& slots,
                                     rule_constants<Rule> const& c) {
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::after_matrix(parameter, element, own, c); });
  }
};

/// The rule, from a point between the parameter and the reference point (masha.hpp): behind its slots are the mean
/// gradient at the reference point, and by how much that point lies ahead of the parameter. Both are 0 before there is
/// one: then it is the rule.
template <update_rule Rule>
struct extrapolating : Rule {
  static_assert(has_apply<Rule> && !matrix_rule<Rule>, "acco: a schedule with a reference point takes rules of elements");
  extrapolating(Rule rule, double given) : Rule(std::move(rule)), tau(given) {}

  double tau;

  using undecorated = Rule;
  [[nodiscard]] static constexpr char const* decoration() noexcept { return "reference point"; }
  static constexpr bool scalar_only = decorated::branches<Rule>();
  static constexpr std::size_t reference_slot = Rule::slot_count, ahead_slot = reference_slot + 1, slot_count = ahead_slot + 1;
  struct constants {
    rule_constants<Rule> of_rule;
    double toward;
  };
  [[nodiscard]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    return {Rule::prepare(step, group), 1 - tau};
  }
  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    const Real before = parameter;
    parameter += Real(c.toward) * slots[ahead_slot];
    decorated::with_slots_of<Rule>(slots, [&](auto& own) { Rule::apply(parameter, gradient, own, c.of_rule); });
    slots[ahead_slot] += before - parameter;
  }
  template <class Real>
  static constexpr Real show(Real, Real after, std::array<Real, slot_count>& slots, constants const& c) {
    auto own = decorated::part<Real, Rule::slot_count>(slots, 0);
    Real shown = after + Real(c.toward) * slots[ahead_slot];
    Rule::apply(shown, slots[reference_slot], own, c.of_rule);
    return shown;
  }
  void check(error_place where = {}) const {
    decorated::check(static_cast<Rule const&>(*this), where);
    require_share("masha::tau", tau, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    decorated::describe(static_cast<Rule const&>(*this), visit);
    visit("tau", tau);
  }
};

/// The rule as the schedule's rounds apply it: decorated by what the schedule has of a data member `predictor` or
/// `compensation`, or by what its estimates need.
template <class Schedule, class Rule>
[[nodiscard]] constexpr auto rule_under(Schedule const& schedule, Rule rule) {
  constexpr bool predicts = has_predictor<Schedule>, compensates = has_compensation<Schedule>;
  static_assert(
      !(predicts || compensates || estimates_with_others<Schedule> || has_reference<Schedule>) || !std::is_final_v<Rule>,
      "acco: a predictor, a compensation, or what own_corrected or masha remembers becomes part of the rule, by "
      "inheritance: the rule must not be final");
  if constexpr (estimates_with_others<Schedule> && !remembers_others<Rule>) {
    return rule_under(schedule, remembering_others<Rule>(std::move(rule)));
  } else if constexpr (predicts) {
    return predicting<Rule, std::remove_cvref_t<decltype(schedule.predictor)>>(std::move(rule), schedule.predictor);
  } else if constexpr (compensates) {
    return compensating<Rule, std::remove_cvref_t<decltype(schedule.compensation)>>(std::move(rule), schedule.compensation);
  } else if constexpr (has_reference<Schedule>) {
    return extrapolating<Rule>(std::move(rule), schedule.tau);
  } else {
    return rule;
  }
}
template <class Schedule, class Rule>
using decorated_rule = decltype(rule_under(std::declval<Schedule const&>(), std::declval<Rule>()));

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
