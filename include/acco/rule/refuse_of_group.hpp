// SPDX-License-Identifier: Apache-2.0
// What a group asks of a rule that does not have it.
#pragma once

#include "acco/error.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Throws `usage_error`.
[[noreturn]] inline void refuse_of_group(char const* what, char const* rule, error_place where) {
  throw usage_error(where, text("a group has a ", what, " of its own, which the rule ", rule, " does not take"),
                    text("Leave it out of the group, or choose a rule that has it"));
}

}  // namespace ACCO_NAMESPACE
