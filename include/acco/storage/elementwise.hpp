// SPDX-License-Identifier: Apache-2.0
// Loops over host arrays of a rank: sums over ranks, squares, the update.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "acco/number/convert.hpp"
#include "acco/number/finite_arrays.hpp"
#include "acco/number/pack.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/update_table.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::elementwise {

/// out = (or +=) the sum of `sources` arrays in their order: ((s0 + s1) + s2) + ... in at least fp32; source(k) is the
/// k-th array. Works on cache-sized chunks, so that memory is passed once.
template <class Source, class To>
inline void sum_sources(int sources, Source source, To* out, std::size_t count, bool add_to_out) {
  using From = std::remove_cvref_t<decltype(*source(0))>;
  using total = wider<From, To>;
  constexpr std::size_t chunk = 1024;
  alignas(64) total sums[chunk];
  for (std::size_t i = 0; i < count; i += chunk) {
    const std::size_t n = std::min(chunk, count - i);
    convert(source(0) + i, sums, n);
    for (int k = 1; k < sources; ++k) add(source(k) + i, sums, n);
    add_to_out ? add(sums, out + i, n) : convert(sums, out + i, n);
  }
}

/// Squares are summed in blocks of this many elements.
inline constexpr std::size_t square_block = 1024;

/// The sum of squares of one block, in double.
template <class From>
[[nodiscard]] inline double squares_of_block(From const* from, std::size_t count) {
  using numbers = pack<double>;
  numbers sums[4] = {numbers(0.0), numbers(0.0), numbers(0.0), numbers(0.0)};
  std::size_t i = 0;
  for (; i + 4 * numbers::lanes <= count; i += 4 * numbers::lanes) {
    for (std::size_t k = 0; k < 4; ++k) {
      const auto x = numbers::load(from + i + k * numbers::lanes);
      sums[k] += x * x;
    }
  }
  for_packs<numbers::lanes>(count - i, [&](std::size_t j, auto n) {
    const auto x = load<numbers>(from + i + j, n);
    sums[0] += x * x;
  });
  double lanes[numbers::lanes];
  ((sums[0] + sums[1]) + (sums[2] + sums[3])).store(lanes);
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

/// The sum of squares, block by block.
template <class From>
[[nodiscard]] inline double sum_of_squares(From const* from, std::size_t count) {
  double before = 0;
  for (std::size_t i = 0; i < count; i += square_block) before += squares_of_block(from + i, std::min(square_block, count - i));
  return before;
}

/// to = keep to + (1 - keep) from: an exponential moving average.
template <class Master>
inline void average(Master const* from, Master* to, std::size_t count, double keep) {
  using numbers = pack<Master>;
  const numbers old(keep), fresh(1 - keep);
  for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) {
    store(old * load<numbers>(to + i, n) + fresh * load<numbers>(from + i, n), to + i, n);
  });
}

/// to = first a + second b, computed in the widest type.
template <class A, class B, class To>
inline void combine(double first, A const* a, double second, B const* b, To* to, std::size_t count) {
  using numbers = pack<wider<wider<A, B>, To>>;
  const numbers of_a(first), of_b(second);
  for_packs<numbers::lanes>(
      count, [&](std::size_t i, auto n) { store(of_a * load<numbers>(a + i, n) + of_b * load<numbers>(b + i, n), to + i, n); });
}

/// One pass over a block's memory: unscale, rule, conversion. `kind` says what is written: predict writes `out` only,
/// commit also master and slots, commit_and_predict commits and writes the prediction of the step after (constants
/// `next`) to `out`, which is indexed like the slice; commit_and_show commits and writes what the rule shows.
template <class Rule, update kind, class Master, class Sum, class Parameter>
inline void apply(update_table<Rule, Master, Sum> const& a, update_block const& block, Parameter* out) {
  constexpr std::size_t slot_count = Rule::slot_count;
  constexpr bool scalar_only = requires { requires Rule::scalar_only; };
  using numbers = pack<Master, scalar_only ? 1 : simd_bytes / sizeof(Master)>;
  const auto run = [](numbers& parameter, numbers const& gradient, std::array<numbers, slot_count>& slots,
                      rule_constants<Rule> const& constants) {
    if constexpr (scalar_only) {
      Master p = parameter.value[0];
      std::array<Master, slot_count> s;
      for (std::size_t k = 0; k < slot_count; ++k) s[k] = slots[k].value[0];
      Rule::apply(p, static_cast<Master>(gradient.value[0]), s, constants);
      parameter.value[0] = p;
      for (std::size_t k = 0; k < slot_count; ++k) slots[k].value[0] = s[k];
    } else {
      Rule::apply(parameter, gradient, slots, constants);
    }
  };
  const auto show = []([[maybe_unused]] numbers const& before, numbers const& after,
                       [[maybe_unused]] std::array<numbers, slot_count>& slots,
                       [[maybe_unused]] rule_constants<Rule> const& constants) {
    if constexpr (kind != update::commit_and_show) {
      return after;
    } else if constexpr (scalar_only) {
      std::array<Master, slot_count> s;
      for (std::size_t k = 0; k < slot_count; ++k) s[k] = slots[k].value[0];
      numbers shown = after;
      shown.value[0] = Rule::show(Master(before.value[0]), Master(after.value[0]), s, constants);
      for (std::size_t k = 0; k < slot_count; ++k) slots[k].value[0] = s[k];
      return shown;
    } else {
      return Rule::show(before, after, slots, constants);
    }
  };
  const auto constants_now = a.now[block.region];  // local copies: no store below can alias them
  const auto constants_next = a.next[block.region];
  const numbers factor(a.decided[block.region].scale);
  Master* const master = a.master + block.begin;
  Sum const* const gradients = a.gradient + block.begin;
  Parameter* const to = out + block.begin;
  std::array<Master*, slot_count> slot;
  for (std::size_t k = 0; k < slot_count; ++k) slot[k] = a.slots[k] + block.begin;
  for_packs<numbers::lanes>(block.count, [&](std::size_t i, auto n) {
    auto parameter = load<numbers>(master + i, n);
    const auto gradient = load<numbers>(gradients + i, n) * factor;
    std::array<numbers, slot_count> slots;
    for (std::size_t k = 0; k < slot_count; ++k) slots[k] = load<numbers>(slot[k] + i, n);
    const auto before = parameter;
    run(parameter, gradient, slots, constants_now);
    const auto shown = show(before, parameter, slots, constants_now);
    if constexpr (kind != update::predict) {
      store(parameter, master + i, n);
      for (std::size_t k = 0; k < slot_count; ++k) store(slots[k], slot[k] + i, n);
    }
    if constexpr (kind == update::commit_and_predict) run(parameter, gradient, slots, constants_next);
    store(kind == update::commit_and_show ? shown : parameter, to + i, n);
  });
}

/// A block that is not updated, though others may be: the ranks get its masters.
template <class Rule, update kind, class Master, class Sum, class Parameter>
inline void stand_still(update_table<Rule, Master, Sum> const& a, update_block const& block, Parameter* out) {
  if constexpr (kind != update::predict && remembers_moves<Rule>)
    std::fill_n(a.slots[Rule::moved_slot] + block.begin, block.count, Master(0));
  convert(a.master + block.begin, out + block.begin, block.count);
}

}  // namespace ACCO_SIMD_NAMESPACE::elementwise

#include "acco/restore_macros.hpp"
