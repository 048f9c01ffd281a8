// SPDX-License-Identifier: Apache-2.0
// What every rule must satisfy: the packed loops, of both master types and every remainder, equal the textbook; a
// prediction writes no state.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "support/reference.hpp"
#include "support/update_arrays.hpp"

namespace conformance {

/// Where a rule is tested: the arrays, and how it is applied.
struct host_memory {
  template <class T>
  using array = std::vector<T>;
  template <class Rule, acco::update kind, class Master, class Sum, class Parameter>
  static void apply(acco::rule_constants<Rule> const& now, acco::rule_constants<Rule> const& next, double scale,
                    acco::update_table<Rule, Master, Sum> const& arrays, Parameter* out, std::size_t count) {
    update_now<Rule, kind>(now, next, scale, arrays, out, count);
  }
};

template <class Memory, class Master, class Sum, class Parameter, class Rule>
void rule_matches_textbook(Rule const& rule, double tolerance) {
  constexpr std::size_t slots = Rule::slot_count;
  for (const std::size_t count : {1U, 3U, 4U, 15U, 16U, 17U, 31U, 64U, 101U}) {
    using masters = typename Memory::template array<Master>;
    masters master(count), kept;
    std::vector<masters> slot(slots, masters(count, Master(0)));
    typename Memory::template array<Sum> gradient(count);
    typename Memory::template array<Parameter> out(count);
    std::vector<double> p(count);
    std::vector<std::array<double, slots>> s(count, std::array<double, slots>{});
    for (std::size_t i = 0; i < count; ++i) {
      master[i] = static_cast<Master>(2 * problem::unit(i) - 1);
      p[i] = static_cast<double>(master[i]);
    }
    acco::update_table<Rule, Master, Sum> arguments{master.data(), {}, gradient.data()};
    for (std::size_t k = 0; k < slots; ++k) arguments.slots[k] = slot[k].data();
    constexpr double scale = 0.25;
    for (std::uint64_t t = 1; t <= 5; ++t) {
      for (std::size_t i = 0; i < count; ++i) gradient[i] = static_cast<Sum>(8 * problem::unit(i * 31 + t) - 4);
      const auto now = rule.prepare({.count = t, .learning_rate_scale = 0.5}, {.learning_rate_scale = 2, .weight_decay = 0.3});
      const auto next =
          rule.prepare({.count = t + 1, .learning_rate_scale = 0.25}, {.learning_rate_scale = 2, .weight_decay = 0.3});
      const reference::hyper first{rule.learning_rate, 0.3, false}, second{rule.learning_rate * 0.5, 0.3, false};

      kept = master;
      const auto slots_kept = slot;
      Memory::template apply<Rule, acco::update::predict>(now, next, scale, arguments, out.data(), count);
      CHECK(master == kept);
      CHECK(slot == slots_kept);
      const auto predicted = out;

      masters ahead;
      {  // commit_and_predict on copies: commits like commit, shows one step further
        auto m = master;
        auto sl = slot;
        auto a = arguments;
        a.master = m.data();
        for (std::size_t k = 0; k < slots; ++k) a.slots[k] = sl[k].data();
        Memory::template apply<Rule, acco::update::commit_and_predict>(now, next, scale, a, out.data(), count);
        ahead = m;
        for (std::size_t i = 0; i < count; ++i) {
          double q = p[i];
          auto state = s[i];
          reference::update(rule, q, static_cast<double>(gradient[i]) * scale, state.data(), static_cast<double>(t), first);
          reference::update(rule, q, static_cast<double>(gradient[i]) * scale, state.data(), static_cast<double>(t + 1), second);
          CHECK(std::abs(static_cast<double>(out[i]) - q) <= tolerance * 2 + (sizeof(Parameter) == 2 ? 8e-3 * std::abs(q) : 0));
        }
      }
      Memory::template apply<Rule, acco::update::commit>(now, next, scale, arguments, out.data(), count);
      CHECK(ahead == master);
      for (std::size_t i = 0; i < count; ++i) {
        reference::update(rule, p[i], static_cast<double>(gradient[i]) * scale, s[i].data(), static_cast<double>(t), first);
        CHECK(std::abs(static_cast<double>(master[i]) - p[i]) <= tolerance);
        for (std::size_t k = 0; k < slots; ++k) CHECK(std::abs(static_cast<double>(slot[k][i]) - s[i][k]) <= tolerance * 4);
        CHECK(static_cast<double>(predicted[i]) == static_cast<double>(out[i]));
        CHECK(static_cast<double>(out[i]) ==
              static_cast<double>(Parameter(static_cast<std::conditional_t<sizeof(Parameter) == 8, double, float>>(master[i]))));
      }
    }
  }
}

template <class Memory = host_memory, class Rule>
void rule_suite(Rule const& rule) {
  rule_matches_textbook<Memory, double, double, double>(rule, 1e-13);
  rule_matches_textbook<Memory, float, float, float>(rule, 4e-6);
  rule_matches_textbook<Memory, float, double, float>(rule, 4e-6);
  if constexpr (std::is_same_v<Memory, host_memory>) rule_matches_textbook<Memory, double, float, float>(rule, 1e-6);
  rule_matches_textbook<Memory, float, float, acco::bfloat16>(rule, 4e-6);
  static_assert(std::is_trivially_copyable_v<acco::rule_constants<Rule>>);
}

}  // namespace conformance
