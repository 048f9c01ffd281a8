// SPDX-License-Identifier: Apache-2.0
// A code for the slow links of a world of two levels.
#pragma once

#include <concepts>

#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Over a backend of two levels (collective/hierarchical.hpp): a group's ranks sum their gradients in full, and what
/// travels between groups is the code of that sum (the second hop of qgZ in ZeRO++, arXiv 2306.10209, section 3.3; its
/// first one is exact here). `Wire` is an encoding of blocks, with feedback or without: as in a world of as many ranks
/// as there are groups, each of which brings what a group's ranks bring together.
///
///   synchronous{.commit = coded<between_groups<with_error_feedback<block_gauss2>>, block_gauss3>{}, ...}
///
/// Alone it stands for both directions: parameters in a code take the same way back, and cost as much between groups
/// with and without this word. Whose gradients it encodes is a matter of groups: a group sends what its feedback keeps
/// also in rounds to which none of its ranks brings samples. Not with `options::in_place`'s kept gradients, and for
/// storages whose gradients have the sums' type.
template <encoding Wire>
struct between_groups : Wire {
  static_assert(!wants_tiles<Wire> && !means_senders<Wire> && !looks_ahead<Wire> && !takes_differences<Wire>,
                "acco: between_groups takes an encoding of blocks of neighbours, with a feedback or none: not one of tiles or "
                "of means over senders, no with_feedback_ahead and no against_reference");
  static constexpr bool sums_groups = true;
  using of_sums = Wire;
};
template <class Wire>
between_groups(Wire) -> between_groups<Wire>;

/// Its sender is a group.
template <class Wire>
concept sums_groups = requires { requires Wire::sums_groups; };

/// A code for both directions.
template <class Wire>
[[nodiscard]] constexpr auto as_coded(between_groups<Wire> const& both) noexcept {
  auto const parameters = as_coded(static_cast<Wire const&>(both)).parameters;
  return coded<between_groups<Wire>, std::remove_const_t<decltype(parameters)>>{both, parameters};
}

}  // namespace ACCO_SIMD_NAMESPACE
