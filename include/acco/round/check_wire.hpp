// SPDX-License-Identifier: Apache-2.0
// Settings of codes that no round can travel by: refused before anything is allocated.
#pragma once

#include "acco/encoding/describe_code.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/layout/update_group.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Throws `usage_error` where what travels does so by a code that has no 0, and a group has `leave_without_gradient`: a tensor
/// without gradient would get one, or be moved, where it shares a block with another.
template <encoding Wire>
void check_zeros(Wire const& wire, char const* what, parameter_layout const& layout, error_place const& where) {
  with_chosen(wire, [&]<class Chosen>(Chosen const&) {
    if constexpr (without_zero<Chosen>) {
      for (update_group const& group : layout.groups()) {
        if (group.frozen || !group.leave_without_gradient) continue;
        throw usage_error(
            where,
            text(what, " travel by ", Chosen::name,
                 ", which has no 0, and a group of tensors has leave_without_gradient: these would not be left alone"),
            text("Let the ", what, " travel by a code that keeps zeros (docs/encodings.md), or take leave_without_gradient out"));
      }
    }
  });
}

/// Both, of how a round's gradients and parameters are to travel.
template <class Gradients, class Parameters>
void check_wire(coded<Gradients, Parameters> const& wire, parameter_layout const& layout, error_place const& where) {
  check_choice(wire.gradients, where);
  check_choice(wire.parameters, where);
  if constexpr (encoding<Gradients>) check_zeros(wire.gradients, "gradients", layout, where);
  if constexpr (encoding<Parameters>) check_zeros(wire.parameters, "parameters", layout, where);
}

}  // namespace ACCO_SIMD_NAMESPACE
