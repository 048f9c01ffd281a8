// SPDX-License-Identifier: Apache-2.0
// What is wrong with an update rule, one sentence each.
#pragma once

#include <array>

#include "acco/number/pack.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// The requirements of `update_rule` one by one, and `apply` tried with a SIMD pack, unless the rule is `scalar_only`: each
/// failure is one sentence. Use as the first line of a class: `static_assert(check_update_rule<Rule>());`
template <class Rule>
consteval bool check_update_rule() {
  static_assert(has_slot_count<Rule>, "acco: the update rule lacks `static constexpr std::size_t slot_count`");
  if constexpr (has_slot_count<Rule>) {
    static_assert(
        has_prepare<Rule>,
        "acco: the update rule lacks `prepare(update_step, update_group) const` returning trivially copyable constants");
    if constexpr (has_prepare<Rule>) {
      static_assert(has_apply<Rule>,
                    "acco: the update rule lacks `static void apply(Real& parameter, Real gradient, std::array<Real, "
                    "slot_count>& slots, constants const&)`");
      if constexpr (has_apply<Rule> && !requires { requires Rule::scalar_only; }) {
        using real = pack<float>;
        using slots = std::array<real, Rule::slot_count>;
        (void)[](real & parameter, real gradient, slots & state, rule_constants<Rule> const& constants) {
          Rule::apply(parameter, gradient, state, constants);  // never called, but compiled
        };
      }
    }
  }
  return true;
}

}  // namespace ACCO_NAMESPACE
