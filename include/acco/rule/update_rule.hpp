// SPDX-License-Identifier: Apache-2.0
// The concept of an update rule: one pure elementwise function. Commit, prediction, scalar loop, SIMD loop all come from it.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "acco/layout/update_group.hpp"
#include "acco/version.hpp"

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

/// A rule is an aggregate of hyperparameters (`double`) with
///  - `static constexpr std::size_t slot_count`: numbers of state per parameter (momenta ...), zero at the start;
///  - `prepare(update_step, update_group) const`: the trivially copyable constants of a step, computed once per step and group;
///  - `template <class Real> static constexpr void apply(Real& parameter, Real gradient, std::array<Real, slot_count>& slots,
///  constants const&)`:
///    the update of one element. `Real` is float, double or a SIMD pack: build constants with `Real(x)`, use number/real.hpp, do
///    not branch on values. A rule that must branch declares `static constexpr bool scalar_only = true`.
/// Optional: `static constexpr char const* name`; `describe(visit)`, so that ranks with other hyperparameters are found at
/// `initialize`; `check(error_place) const`, which the optimizer's constructor calls, and which throws `usage_error` on
/// hyperparameters that mean nothing (number/demand.hpp); `check_group(update_group const&, error_place) const`, the same for a
/// group's own betas, epsilon or momentum: without it a group that has any is refused.
template <class Rule>
concept update_rule = has_slot_count<Rule> && has_prepare<Rule> && has_apply<Rule>;

}  // namespace ACCO_NAMESPACE
