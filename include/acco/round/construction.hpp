// SPDX-License-Identifier: Apache-2.0
// What an optimizer was constructed from, in words: everything on which all ranks must agree (compared by
// round/agreement.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/round/agreement.hpp"
#include "acco/rule/refuse_of_group.hpp"
#include "acco/schedule/schedule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class Gradients, class Parameters>
void describe_wire(description& d, std::string const& of, coded<Gradients, Parameters> const& wire) {
  const auto name = [](auto const& each) {
    using type = std::remove_cvref_t<decltype(each)>;
    if constexpr (encoding<type>) {
      return text(type::name, ", blocks of ", type::block_size, " in ", type::block_bytes, " bytes");
    } else {
      return text(type::name);
    }
  };
  d.add(of + " gradients", name(wire.gradients).view());
  d.add_all(of + " gradients.", wire.gradients);
  if constexpr (feeds_back<Gradients>) {
    using policy = std::remove_cvref_t<decltype(wire.gradients.policy)>;
    d.add(of + " feedback", text(policy::name, looks_ahead<Gradients> ? ", ahead" : "").view());
    d.add_all(of + " feedback.", wire.gradients.policy);
    using store = typename Gradients::store;
    if constexpr (!std::is_same_v<store, full>) d.add(of + " feedback store", name_of_type<store>());
  }
  d.add(of + " parameters", name(wire.parameters).view());
  d.add_all(of + " parameters.", wire.parameters);
  d.add(of + " exact_every", wire.exact_every);
}

template <class Schedule>
void describe_schedule(description& d, Schedule const& schedule) {
  d.add("schedule", name_of_type<Schedule>());
  const schedule_period rounds = period_of(schedule);
  d.add("warm_up_rounds", rounds.warm_up);
  d.add("period", rounds.period);
  // schedules of one name may still have different tables
  for (std::size_t round = 0; round < rounds.rounds(); ++round) {
    const round_plan plan = schedule.plan(round);
    d.add("plan", text(static_cast<int>(plan.gradients), static_cast<int>(plan.parameters), static_cast<int>(plan.meanwhile),
                       static_cast<int>(plan.part), static_cast<int>(plan.keeps))
                      .view());
    if constexpr (chooses_wires<Schedule>) d.add("wire", static_cast<int>(plan.wire));
  }
  if constexpr (draws_rounds<Schedule>) d.add_all("drawn by ", schedule);
  if constexpr (requires { schedule.pace.name_of_kind(); }) {
    d.add("pace", schedule.pace.name_of_kind());
  } else {
    d.add("pace", name_of_type<std::remove_cvref_t<decltype(schedule.pace)>>());
  }
  for (const step_part part : {step_part::first, step_part::second}) {
    d.add(part == step_part::first ? "pace.first" : "pace.second",
          text(schedule.pace.minimum(part), " to ", schedule.pace.maximum(part)).view());
  }
  for (int part = 2; part < parts_of(schedule); ++part) {
    const auto length = static_cast<step_part>(part);
    d.add("pace.part", text(schedule.pace.minimum(length), " to ", schedule.pace.maximum(length)).view());
  }
  if constexpr (chooses_wires<Schedule>) {
    std::apply([&d](auto const&... each) { (describe_wire(d, "wire", each), ...); }, wires_of(schedule));
  } else {
    describe_wire(d, "estimate", estimate_wire(schedule));
    describe_wire(d, "commit", commit_wire(schedule));
  }
}

/// A rule's own check of its hyperparameters, where it has one: `check(error_place) const` or `check() const`, which
/// throws `usage_error`.
template <class Rule>
void check_rule(Rule const& rule, [[maybe_unused]] int rank) {
  if constexpr (requires { rule.check(error_place{.rank = rank}); }) {
    rule.check(error_place{.rank = rank});
  } else if constexpr (requires { rule.check(); }) {
    rule.check();
  }
}

/// In the masters' type a parameter whose gradients are all 0 stays finite: an epsilon may be 0 there that is not in
/// double.
template <class Master, class Rule>
void check_without_gradient(Rule const& rule, parameter_layout const& layout, int rank) {
  if constexpr (has_apply<Rule>) {
    for (update_group const& group : layout.groups()) {
      Master parameter = 1;
      std::array<Master, Rule::slot_count> slots{};
      Rule::apply(parameter, Master(0), slots, rule.prepare(update_step{}, group));
      if (is_finite(static_cast<double>(parameter))) continue;
      throw usage_error(
          {.rank = rank},
          text("the update of a parameter whose gradient is 0 is infinite or not a number in ", sizeof(Master) * 8, " bits"),
          text("An epsilon, the rule's or a group's, is 0 in the masters' type: give a larger one"));
    }
  }
}

/// The rule's own check of what the groups replace, and of the tensors that it takes for matrices.
template <class Rule>
void check_groups(Rule const& rule, parameter_layout const& layout, int rank) {
  const error_place where{.rank = rank};
  for (update_group const& group : layout.groups()) {
    if constexpr (!requires { Rule::rule_count; }) {
      if (group.rule != 0) {
        throw usage_error(where, text("a group names rule ", group.rule, ", and the optimizer has one rule, number 0"),
                          text("Give the optimizer acco::rules{...}"));
      }
    }
    check_group_of(rule, group, where);
  }
  for (std::size_t k = 0; matrix_rule<Rule> && k < layout.tensor_count(); ++k) {
    auto const each = layout[k];
    update_group const& group = layout.groups()[each.group];
    if (group.frozen || each.size == 0 || !updates_whole<Rule>(group)) continue;
    constexpr std::size_t most = 0xffffffffU;
    if (each.shape.size() < 2 || each.shape[0] > most || each.size / each.shape[0] > most) {
      throw usage_error(
          where,
          text("tensor '", each.name, "' has ", each.shape.size(), each.shape.size() == 1 ? " dimension" : " dimensions", " and ",
               each.size, " elements, and its rule updates matrices of less than 2^32 rows and columns"),
          text("Put it in a group with a rule for single elements: acco::rules{acco::muon{}, acco::adamw{}}, and "
               "add_group({.rule = 1})"));
    }
  }
}

/// Throws `usage_error` where `what` travels by a code that has no 0, and a group has `leave_without_gradient`.
template <class Wire>
void check_zeros(char const* what, parameter_layout const& layout, error_place const& where) {
  if constexpr (without_zero<Wire>) {
    for (update_group const& group : layout.groups()) {
      if (group.frozen || !group.leave_without_gradient) continue;
      throw usage_error(
          where,
          text(what, " travel by ", Wire::name,
               ", which has no 0, and a group of tensors has leave_without_gradient: these would not be left alone"),
          text("Let the ", what, " travel by a code that keeps zeros (docs/coarse.md), or take leave_without_gradient out"));
    }
  }
}

/// Everything but the schedule; `Rule` is a rule_in_use. `groups`: whose sums wires send; 0: none are.
template <class Storage, class Rule>
void describe_construction(description& d, Rule const& rule, options const& chosen, parameter_layout const& layout, int groups,
                           int ranks) {
  d.add("acco", text(ACCO_VERSION_MAJOR, ".", ACCO_VERSION_MINOR, ".", ACCO_VERSION_PATCH).view());
  if (groups != 0) d.add("groups", text(groups, " of ", ranks / groups, " ranks").view());
  d.add("parameters", layout.size());
  d.add("parameter type", name_of_type<typename Storage::parameter_type>());
  d.add("gradient type", name_of_type<typename Storage::gradient_type>());
  d.add("master type", name_of_type<typename Storage::master_type>());
  d.add("rule", rule.name());
  rule.describe(d);
  d.add_all("options.", chosen);
  d.add_all("layout: ", layout);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
