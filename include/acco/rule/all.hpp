// SPDX-License-Identifier: Apache-2.0
// Every rule that updates element by element. Tests, benchmarks, the C interface and the site's reference go through
// this list.
#pragma once

#include <string_view>

#include "acco/rule/adamw.hpp"  // IWYU pragma: export
#include "acco/rule/lion.hpp"   // IWYU pragma: export
#include "acco/rule/sgd.hpp"    // IWYU pragma: export
#include "acco/type_list.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// In the order of the C interface's numbers. `muon` updates matrices, beside one of these (rule/rules.hpp).
using all_rules = type_list<adamw, sgd, lion>;

/// Calls visit(rule) with the rule of that name and returns its result. What `visit` does is compiled for every rule of
/// `Rules`. Throws `usage_error`, which has all names, where there is none.
template <class Rules = all_rules, class Visit>
decltype(auto) with_rule(std::string_view name, Visit&& visit) {
  return visit_at(Rules{}, require_name("rule", Rules{}, name), visit);
}

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
