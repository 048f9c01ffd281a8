// SPDX-License-Identifier: Apache-2.0
// What a group asks of a rule that does not have it.
#pragma once

#include "acco/error.hpp"
#include "acco/layout/update_group.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Throws `usage_error`.
[[noreturn]] inline void refuse_of_group(char const* what, char const* rule, error_place where) {
  throw usage_error(where, text("a group has a ", what, " of its own, which the rule ", rule, " does not take"),
                    text("Leave it out of the group, or choose a rule that has it"));
}

/// The rule's own check of what a group replaces; a rule that has none takes no betas, epsilon or momentum.
template <class Rule>
void check_group_of(Rule const& rule, update_group const& group, error_place where) {
  if constexpr (requires { rule.check_group(group, where); }) {
    rule.check_group(group, where);
  } else if (group.beta1 || group.beta2 || group.epsilon || group.momentum) {
    if constexpr (requires { text(Rule::name); }) {
      refuse_of_group("beta, epsilon or momentum", Rule::name, where);
    } else {
      refuse_of_group("beta, epsilon or momentum", "that was given", where);
    }
  }
}

}  // namespace ACCO_NAMESPACE
