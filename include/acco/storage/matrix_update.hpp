// SPDX-License-Identifier: Apache-2.0
// The update of a matrix in host memory, by a rule that works on it whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "acco/number/convert.hpp"
#include "acco/number/matrix.hpp"
#include "acco/number/pack.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/update_table.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::matrices {

/// One update by constants that are given: `kind` says what is written.
template <class Rule, update kind, class Master, class Sum, class Parameter>
inline void apply_by(update_table<Rule, Master, Sum> const& a, update_matrix const& m, rule_constants<Rule> const& constants,
                     Parameter* out) {
  constexpr bool scalar_only = requires { requires Rule::scalar_only; };
  using numbers = std::conditional_t<scalar_only, Master, pack<Master>>;
  const auto for_numbers = [](std::size_t total, auto&& body) {
    if constexpr (scalar_only) {
      for (std::size_t i = 0; i < total; ++i) body(i, std::size_t{1});
    } else {
      elementwise::for_packs<numbers::lanes>(total, body);
    }
  };
  const auto load = [](auto const* from, auto n) {
    if constexpr (scalar_only) {
      return Master(pack<Master, 1>::load(from).value[0]);
    } else {
      return elementwise::load<numbers>(from, n);
    }
  };
  const auto store = [](numbers const& value, auto* to, auto n) {
    if constexpr (scalar_only) {
      pack<Master, 1>(value).store(to);
    } else {
      elementwise::store(value, to, n);
    }
  };
  constexpr std::size_t slot_count = Rule::slot_count;
  const std::size_t count = std::size_t{m.rows} * m.columns;
  const numbers factor(static_cast<Master>(a.decided[m.region].scale));
  Master* const master = a.master + m.begin;
  Sum const* const gradients = a.gradient + m.begin;
  Parameter* const to = out + m.begin;
  Master* const matrix = a.scratch;
  std::array<Master*, slot_count> slot;
  for (std::size_t k = 0; k < slot_count; ++k) slot[k] = a.slots[k] + m.begin;
  const auto begin_at = [&](std::size_t i, auto n, std::array<numbers, slot_count>& slots) {
    for (std::size_t k = 0; k < slot_count; ++k) slots[k] = load(slot[k] + i, n);
    return Rule::before_matrix(load(gradients + i, n) * factor, slots, constants);
  };
  for_numbers(count, [&](std::size_t i, auto n) {
    std::array<numbers, slot_count> slots;
    store(begin_at(i, n, slots), matrix + i, n);
  });
  Rule::on_matrix(matrix_view<Master>{matrix, m.rows, m.columns, matrix + count}, constants);
  for_numbers(count, [&](std::size_t i, auto n) {
    std::array<numbers, slot_count> slots;
    begin_at(i, n, slots);  // the slots as they have become: nothing was written
    auto parameter = load(master + i, n);
    [[maybe_unused]] const auto before = parameter;
    Rule::after_matrix(parameter, load(matrix + i, n), slots, constants);
    auto shown = parameter;
    if constexpr (kind == update::commit_and_show) shown = Rule::show(before, parameter, slots, constants);
    if constexpr (kind != update::predict) {
      store(parameter, master + i, n);
      for (std::size_t k = 0; k < slot_count; ++k) store(slots[k], slot[k] + i, n);
    }
    store(shown, to + i, n);
  });
}

/// The update of a matrix, or, where none is wanted, its masters for the ranks.
template <class Rule, update kind, class Master, class Sum, class Parameter>
inline void apply(update_table<Rule, Master, Sum> const& a, update_matrix const& m, Parameter* out) {
  if (!a.decided[m.region].wanted) {
    const std::size_t count = std::size_t{m.rows} * m.columns;
    if constexpr (kind != update::predict && remembers_moves<Rule>)
      std::fill_n(a.slots[Rule::moved_slot] + m.begin, count, Master(0));
    elementwise::convert(a.master + m.begin, out + m.begin, count);
  } else if constexpr (kind == update::commit_and_predict) {
    apply_by<Rule, update::commit>(a, m, a.now[m.region], out);
    apply_by<Rule, update::predict>(a, m, a.next[m.region], out);
  } else {
    apply_by<Rule, kind>(a, m, a.now[m.region], out);
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::matrices

#include "acco/restore_macros.hpp"
