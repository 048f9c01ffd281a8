// SPDX-License-Identifier: Apache-2.0
// What ranks must agree on of a code before one of them decodes what another has encoded.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Throws `usage_error` where a choice between several encodings (`one_of`) is none of them, or a plan's budget is no share.
template <class Wire>
void check_choice([[maybe_unused]] Wire const& wire, [[maybe_unused]] error_place const& where) {
  if constexpr (plans<Wire>) {
    if (!(wire.budget >= 0 && wire.budget <= 1)) {
      throw usage_error(where, text("planned_encoding::budget is ", wire.budget),
                        text("Give the part of the gradients' squares that may be lost, 0 to 1: 0.02, say"));
    }
    if (wire.first >= Wire::count) {
      throw usage_error(where, text("planned_encoding::first is ", wire.first, ", and there are ", Wire::count, " encodings"),
                        text("Count from 0"));
    }
  }
  if constexpr (chooses<Wire>) {
    if (wire.which < Wire::count) return;
    throw usage_error(where, text("one_of::which is ", wire.which, ", and there are ", Wire::count, " encodings"),
                      text("Count from 0; one_of<...>::find gives the number of a name, or their count where none has it"));
  }
}

/// Calls visit(what, words or number) for everything by which a code differs from another on the wire: its name and its blocks,
/// and what it tells itself (`describe`, encoding.hpp); of a choice (`one_of`) the number that was chosen, and all of these of
/// every encoding in the list, in their order, because ranks tell each other numbers. `of` is what the code is for. What is no
/// encoding (`full`, `own_slice`) has a name.
template <class Code, class Visitor>
void describe_code(std::string_view of, Code const& code, Visitor&& visit) {
  if constexpr (chooses<Code>) {
    visit(of, text(Code::name, ": ", code.chosen_name(), ", number ", code.which, " of ", Code::count).view());
    Code each = code;
    for (each.which = 0; each.which < Code::count; ++each.which)
      each.visit([&](auto const& one) { describe_code(text(of, " ", each.which).view(), one, visit); });
  } else if constexpr (encoding<Code>) {
    visit(of, text(Code::name, ", blocks of ", Code::block_size, " in ", Code::block_bytes, " bytes").view());
    const auto own = [&](std::string_view what, auto value) { visit(text(of, ": ", what).view(), value); };
    if constexpr (requires { code.describe(own); }) code.describe(own);
  } else {
    visit(of, std::string_view(Code::name));
  }
}

}  // namespace ACCO_SIMD_NAMESPACE
