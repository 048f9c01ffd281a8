// SPDX-License-Identifier: Apache-2.0
// What becomes part of a rule, by inheritance, has its numbers behind the rule's slots: what all such decorations use.
#pragma once

#include <array>
#include <cstddef>

#include "acco/error.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

namespace decorated {

template <class Real, std::size_t Count, std::size_t All>
constexpr std::array<Real, Count> part(std::array<Real, All> const& slots, std::size_t from) {
  std::array<Real, Count> some{};
  for (Real& each : some) each = slots[from++];
  return some;
}
template <class Real, std::size_t Count, std::size_t All>
constexpr void put(std::array<Real, Count> const& some, std::array<Real, All>& slots, std::size_t from) {
  for (Real const& each : some) slots[from++] = each;
}
/// action(the rule's slots, the first of all), which are put back.
template <class Rule, class Real, std::size_t All, class Action>
constexpr void with_slots_of(std::array<Real, All>& slots, Action&& action) {
  auto own = part<Real, Rule::slot_count>(slots, 0);
  action(own);
  put(own, slots, 0);
}
template <class Object>
void check(Object const& object, error_place where) {
  if constexpr (requires { object.check(where); }) {
    object.check(where);
  } else if constexpr (requires { object.check(); }) {
    object.check();
  }
}
template <class Object, class Visitor>
void describe(Object const& object, Visitor& visit) {
  if constexpr (requires { object.describe(visit); }) object.describe(visit);
}
template <class Object>
[[nodiscard]] constexpr char const* name_of() {
  if constexpr (requires { Object::name; }) {
    return Object::name;
  } else {
    return "of_the_trainer";
  }
}
template <class Object>
[[nodiscard]] consteval bool branches() {
  if constexpr (requires { Object::scalar_only; }) {
    return Object::scalar_only;
  } else {
    return false;
  }
}

}  // namespace decorated

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
