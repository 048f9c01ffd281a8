// SPDX-License-Identifier: Apache-2.0
// The concept of an update rule: one pure function, of an element or of a matrix. Commit, prediction, scalar loop, SIMD
// loop all come from it.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "acco/layout/update_group.hpp"
#include "acco/number/matrix.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// What a rule is told about the step it is preparing.
struct update_step {
  std::uint64_t count = 1;           ///< 1 for the first update; a prediction has the count of the coming commit
  double learning_rate_scale = 1.0;  ///< `options::learning_rate` at the samples committed so far
  bool late = false;                 ///< the gradients were computed before the last update was shown
};

/// What the update does, and what the ranks get to see.
enum class update {
  predict,             ///< Opt~(theta[t], g): the state is not written; the ranks get a prediction
  commit,              ///< theta[t+1] = Opt(theta[t], g): the state is written; the ranks get committed parameters
  commit_and_predict,  ///< theta[t+1] = Opt(theta[t], g), then the ranks get Opt~(theta[t+1], g)
  commit_and_show,     ///< theta[t+1] = Opt(theta[t], g), then the ranks get what the schedule's predictor makes of it
};

/// The constants of one step: whatever `prepare` returns.
template <class Rule>
using rule_constants = decltype(std::declval<Rule const&>().prepare(update_step{}, update_group{}));

template <class Rule>
concept has_slot_count = requires {
  { Rule::slot_count } -> std::convertible_to<std::size_t>;
};

template <class Rule>
concept has_prepare = requires(Rule const& rule) { rule.prepare(update_step{}, update_group{}); } &&
                      std::is_trivially_copyable_v<rule_constants<Rule>>;

template <class Rule>
concept has_apply = requires(float& parameter, std::array<float, Rule::slot_count>& slots,
                             rule_constants<Rule> const& constants) { Rule::apply(parameter, float{}, slots, constants); };

/// Of a rule that updates whole matrices, of which each lies whole on one rank. An update is three steps:
///  - `before_matrix(gradient, slots, constants) -> Real`, of one element: changes the slots, returns the matrix's
///    element;
///  - `on_matrix(matrix_view, constants)`: replaces the matrix, of fp32 or fp64 as the masters; its `scratch` has room
///    for `scratch_of(rows, columns)` numbers;
///  - `after_matrix(parameter, element, slots, constants)`, of one element: the update, by the replaced matrix's
///    element.
/// The elementwise steps are as `apply` below, and may be called more than once for an update. `whole(update_group)`
/// says whose tensors are matrices: all of a rule for matrices alone; where it is false, `apply` updates element by
/// element. A tensor of more than two dimensions is a matrix of as many rows as its first extent.
template <class Rule>
concept matrix_rule = has_slot_count<Rule> && has_prepare<Rule> &&
                      requires(float& number, std::array<float, Rule::slot_count>& slots, rule_constants<Rule> const& constants,
                               matrix_view<float> const& matrix) {
                        { Rule::before_matrix(float{}, slots, constants) } -> std::same_as<float>;
                        Rule::on_matrix(matrix, constants);
                        Rule::after_matrix(number, float{}, slots, constants);
                        { Rule::scratch_of(std::size_t{}, std::size_t{}) } -> std::convertible_to<std::size_t>;
                        { Rule::whole(update_group{}) } -> std::convertible_to<bool>;
                      };
/// Whether a group's tensors are matrices to the rule.
template <class Rule>
[[nodiscard]] constexpr bool updates_whole([[maybe_unused]] update_group const& group) noexcept {
  if constexpr (matrix_rule<Rule>) {
    return Rule::whole(group);
  } else {
    return false;
  }
}

/// Of a rule that a schedule has decorated (schedule/decorated_rule.hpp): it says what the ranks get after a commit.
template <class Rule>
concept shows = requires(float& number, std::array<float, Rule::slot_count>& slots, rule_constants<Rule> const& constants) {
  { Rule::show(number, number, slots, constants) } -> std::same_as<float>;
};
/// Likewise: its slot `moved_slot` holds by how much the last update has moved a parameter, and is 0 where none did.
template <class Rule>
concept remembers_moves = requires {
  { Rule::moved_slot } -> std::convertible_to<std::size_t>;
};
/// Likewise: rounds write the mean of the other ranks' last gradients into its slot `others_slot`; an update leaves it
/// alone.
template <class Rule>
concept remembers_others = requires {
  { Rule::others_slot } -> std::convertible_to<std::size_t>;
};
/// Likewise: rounds write the mean gradient at a reference point into its slot `reference_slot`, and 0 into the one
/// behind, which holds by how much that point lies ahead of a parameter.
template <class Rule>
concept remembers_reference = requires {
  { Rule::reference_slot } -> std::convertible_to<std::size_t>;
};

/// Of a rule that keeps an average of the parameters itself (rule/gpa.hpp): its slot `average_slot` holds by how much
/// the average lies ahead of a parameter.
template <class Rule>
concept keeps_average = requires {
  { Rule::average_slot } -> std::convertible_to<std::size_t>;
};

/// A rule is an aggregate of hyperparameters (`double`) with
///  - `static constexpr std::size_t slot_count`: numbers of state per parameter (momenta ...), zero at the start;
///  - `prepare(update_step, update_group) const`: the trivially copyable constants of a step, computed once per step
///    and group;
///  - `template <class Real> static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots,
///  constants const&)`:
///    the update of one element. `Real` is float, double or a SIMD pack: build constants with `Real(x)`, use number/real.hpp, do
///    not branch on values. A rule that must branch declares `static constexpr bool scalar_only = true`.
/// Optional: `static constexpr char const* name`; `describe(visit)`, so that ranks with other hyperparameters are found
/// at `initialize`; `check(error_place) const`, which the optimizer's constructor calls, and which throws `usage_error`
/// on hyperparameters that mean nothing (number/require.hpp); `check_group(update_group const&, error_place) const`,
/// the same for a group's own betas, epsilon or momentum: without it a group that has any is refused. A rule for
/// matrices has the steps of `matrix_rule` instead of `apply`, or beside it.
template <class Rule>
concept update_rule = has_slot_count<Rule> && has_prepare<Rule> && (has_apply<Rule> || matrix_rule<Rule>);

/// A rule that declares `static constexpr bool bounded_step = true`: however large gradients are, and however long they
/// point one way, an update moves a parameter by its learning rate, or a few of them, at most.
template <class Rule>
concept bounded_step = requires { requires Rule::bounded_step; };

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
