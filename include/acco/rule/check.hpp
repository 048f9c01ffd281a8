// SPDX-License-Identifier: Apache-2.0
// What is wrong with an update rule, one sentence each.
#pragma once

#include <array>

#include "acco/number/pack.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// The requirements of `update_rule` one by one, and its elementwise steps tried with a SIMD pack, unless the rule is
/// `scalar_only`: each failure is one sentence. Use as the first line of a class:
/// `static_assert(check_update_rule<Rule>());`
template <class Rule>
consteval bool check_update_rule() {
  static_assert(has_slot_count<Rule>, "acco: the update rule lacks `static constexpr std::size_t slot_count`");
  if constexpr (has_slot_count<Rule>) {
    static_assert(
        has_prepare<Rule>,
        "acco: the update rule lacks `prepare(update_step, update_group) const` returning trivially copyable constants");
    if constexpr (has_prepare<Rule>) {
      constexpr bool begins_matrices =
          requires(float number, std::array<float, Rule::slot_count>& slots, rule_constants<Rule> const& constants) {
            Rule::before_matrix(number, slots, constants);
          };
      static_assert(!begins_matrices || matrix_rule<Rule>,
                    "acco: the update rule has `before_matrix` for whole matrices and lacks one of the members beside it: "
                    "on_matrix, after_matrix, scratch_of, whole (rule/update_rule.hpp: matrix_rule)");
      static_assert(has_apply<Rule> || begins_matrices,
                    "acco: the update rule lacks `static void apply(Real& parameter, Real gradient, std::array<Real, "
                    "slot_count>& slots, constants const&)`");
      if constexpr (has_apply<Rule> && !requires { requires Rule::scalar_only; }) {
        using real = pack<float>;
        using slots = std::array<real, Rule::slot_count>;
        (void)[](real & parameter, real gradient, slots & state, rule_constants<Rule> const& constants) {
          Rule::apply(parameter, gradient, state, constants);  // never called, but compiled
        };
      }
      if constexpr (matrix_rule<Rule> && !requires { requires Rule::scalar_only; }) {
        using real = pack<float>;
        using slots = std::array<real, Rule::slot_count>;
        (void)[](real & parameter, real gradient, slots & state, rule_constants<Rule> const& constants) {
          const real element = Rule::before_matrix(gradient, state, constants);
          Rule::after_matrix(parameter, element, state, constants);
        };
      }
    }
  }
  return true;
}

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
