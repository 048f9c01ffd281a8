// SPDX-License-Identifier: Apache-2.0
// Several update rules in one optimizer: each group of a layout says whose it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "acco/error.hpp"
#include "acco/rule/refuse_of_group.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

namespace of_rules {

template <class Rule>
inline constexpr bool branches = false;
template <class Rule>
  requires requires { Rule::scalar_only; }
inline constexpr bool branches<Rule> = Rule::scalar_only;

/// The constants of the `Index`-th rule.
template <std::size_t Index, class Rule>
struct constants_of {
  rule_constants<Rule> of = {};
};
template <class Indices, class... Rules>
struct all_constants;
template <std::size_t... Indices, class... Rules>
struct all_constants<std::index_sequence<Indices...>, Rules...> : constants_of<Indices, Rules>... {
  std::size_t rule = 0;
};

}  // namespace of_rules

/// AdamW for matrices, SGD for what is left, say: one optimizer, one round, one gradient norm, one clipping.
///
///   acco::parameter_layout layout;
///   const auto others = layout.add_group({.rule = 1});
///   layout.add("weight", {256, 64}).add("bias", {256}, others);
///   acco::optimizer training{schedule, acco::rules{acco::adamw{}, acco::sgd{.learning_rate = 0.1}}, storage, world, layout};
///
/// Is a rule itself (update_rule.hpp). Every parameter has the slots of the rule that has most.
template <class... Rules>
struct rules {
  static_assert(sizeof...(Rules) > 0 && (update_rule<Rules> && ...), "acco: rules{...} takes update rules");

  static constexpr std::size_t rule_count = sizeof...(Rules);
  static constexpr std::size_t slot_count = std::max({std::size_t{0}, std::size_t{Rules::slot_count}...});
  static constexpr bool bounded_step = (acco::bounded_step<Rules> && ...);
  static constexpr bool scalar_only = (of_rules::branches<Rules> || ...);
  using constants = of_rules::all_constants<std::index_sequence_for<Rules...>, Rules...>;

  constexpr explicit rules(Rules... given) : each(std::move(given)...) {}

  std::tuple<Rules...> each;

  [[nodiscard]] constexpr constants prepare(update_step const& step, update_group const& group) const {
    constants all{};
    all.rule = group.rule;
    with(group.rule, [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      static_cast<of_rules::constants_of<I, rule_at<I>>&>(all).of = std::get<I>(each).prepare(step, group);
    });
    return all;
  }

  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots, constants const& all) {
    with_own(all, slots, [&]<class Rule>(std::type_identity<Rule>, auto& own, auto const& constants) {
      if constexpr (has_apply<Rule>) Rule::apply(parameter, gradient, own, constants);
    });
  }

  // Matrices, where one of them is a rule for matrices (update_rule.hpp).

  static constexpr bool has_matrices = (matrix_rule<Rules> || ...);
  [[nodiscard]] static constexpr bool whole(update_group const& group) noexcept
    requires has_matrices
  {
    bool found = false;
    with(group.rule, [&]<std::size_t I>(std::integral_constant<std::size_t, I>) { found = updates_whole<rule_at<I>>(group); });
    return found;
  }
  [[nodiscard]] static constexpr std::size_t scratch_of(std::size_t rows, std::size_t columns) noexcept
    requires has_matrices
  {
    std::size_t most = 0;
    const auto ask = [&]<class Rule>(std::type_identity<Rule>) {
      if constexpr (matrix_rule<Rule>) most = std::max(most, Rule::scratch_of(rows, columns));
    };
    (ask(std::type_identity<Rules>()), ...);
    return most;
  }
  template <class Real>
    requires has_matrices
  static constexpr Real before_matrix(Real gradient, std::array<Real, slot_count>& slots, constants const& all) {
    Real element = gradient;
    with_own(all, slots, [&]<class Rule>(std::type_identity<Rule>, auto& own, auto const& constants) {
      if constexpr (matrix_rule<Rule>) element = Rule::before_matrix(gradient, own, constants);
    });
    return element;
  }
  template <class Real>
    requires has_matrices
  static void on_matrix(matrix_view<Real> const& matrix, constants const& all) {
    with(all.rule, [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      if constexpr (matrix_rule<rule_at<I>>) rule_at<I>::on_matrix(matrix, constants_at<I>(all));
    });
  }
  template <class Real>
    requires has_matrices
  static constexpr void after_matrix(Real& parameter, Real element, std::array<Real, slot_count>& slots, constants const& all) {
    with_own(all, slots, [&]<class Rule>(std::type_identity<Rule>, auto& own, auto const& constants) {
      if constexpr (matrix_rule<Rule>) Rule::after_matrix(parameter, element, own, constants);
    });
  }

  /// Throws what the rules throw.
  void check(error_place where = {}) const {
    for_each([&](std::size_t, auto const& rule) {
      if constexpr (requires { rule.check(where); }) {
        rule.check(where);
      } else if constexpr (requires { rule.check(); }) {
        rule.check();
      }
    });
  }
  /// Throws `usage_error` when there is no such rule, or what that rule throws.
  void check_group(update_group const& group, error_place where = {}) const {
    if (group.rule >= rule_count) {
      throw usage_error(where, text("a group names rule ", group.rule, " of ", rule_count),
                        text("Count from 0, in the order in which rules{...} got them"));
    }
    for_each([&](std::size_t k, auto const& rule) {
      if (k == group.rule) check_group_of(rule, group, where);
    });
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    for_each([&](std::size_t k, auto const& rule) {
      if constexpr (requires { rule.describe([](auto&&, auto) {}); })
        rule.describe([&](auto const& what, auto value) { visit(text(k, ".", what).view(), value); });
    });
  }

 private:
  template <std::size_t I>
  using rule_at = std::tuple_element_t<I, std::tuple<Rules...>>;

  template <std::size_t I>
  static constexpr rule_constants<rule_at<I>> const& constants_at(constants const& all) {
    return static_cast<of_rules::constants_of<I, rule_at<I>> const&>(all).of;
  }
  /// Calls action(type of the rule, its slots, its constants), and puts the slots back.
  template <class Real, class Action>
  static constexpr void with_own(constants const& all, std::array<Real, slot_count>& slots, Action&& action) {
    with(all.rule, [&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      std::array<Real, rule_at<I>::slot_count> own;
      for (std::size_t k = 0; k < own.size(); ++k) own[k] = slots[k];
      action(std::type_identity<rule_at<I>>(), own, constants_at<I>(all));
      for (std::size_t k = 0; k < own.size(); ++k) slots[k] = own[k];
    });
  }
  /// Calls action(I as a constant) for the rule of that number.
  template <class Action>
  static constexpr void with(std::size_t rule, Action&& action) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (void)((I == rule && (action(std::integral_constant<std::size_t, I>()), true)) || ...);
    }(std::index_sequence_for<Rules...>());
  }
  template <class Action>
  void for_each(Action&& action) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (action(I, std::get<I>(each)), ...);
    }(std::index_sequence_for<Rules...>());
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
