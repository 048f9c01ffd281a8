// SPDX-License-Identifier: Apache-2.0
// Between the numbers and structs of C and the types of C++.
#pragma once

#include <acco/rule/all.hpp>
#include <acco/schedule/named.hpp>

#include "acco.h"

namespace acco_c {

/// How rounds travel, by ACCO_FULL and its kin.
using wires = acco::type_list<acco::full, acco::bfloat16_wire, acco::block_int8<>, acco::block_int4<>,
                              acco::coded<acco::block_int8<>, acco::block_int4<>>, acco::coded_commit>;

/// The defaults of a rule, in the members that it has.
template <class Rule>
acco_rule usual_of() {
  const Rule its{};
  acco_rule rule{};
  rule.learning_rate = its.learning_rate;
  rule.weight_decay = its.weight_decay;
  if constexpr (requires { its.beta1; }) rule.beta1 = its.beta1, rule.beta2 = its.beta2;
  if constexpr (requires { its.epsilon; }) rule.epsilon = its.epsilon;
  if constexpr (requires { its.momentum; }) rule.momentum = its.momentum, rule.nesterov = its.nesterov ? 1 : 0;
  return rule;
}

template <class Rule>
Rule rule_of(acco_rule const& rule) {
  Rule its{};
  its.learning_rate = rule.learning_rate;
  its.weight_decay = rule.weight_decay;
  if constexpr (requires { its.beta1; }) its.beta1 = rule.beta1, its.beta2 = rule.beta2;
  if constexpr (requires { its.epsilon; }) its.epsilon = rule.epsilon;
  if constexpr (requires { its.momentum; }) its.momentum = rule.momentum, its.nesterov = rule.nesterov != 0;
  if constexpr (requires { its.weight_decay_kind; }) {
    its.weight_decay_kind = rule.classic_decay != 0 ? acco::decay::classic : acco::decay::decoupled;
  }
  return its;
}

}  // namespace acco_c
