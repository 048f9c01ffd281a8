// SPDX-License-Identifier: Apache-2.0
// Loops over host arrays, written once over packs. The remainder goes through a padded pack, so that every element sees the same
// instructions wherever it lies: results do not depend on how a buffer was cut.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "acco/rule/update_rule.hpp"
#include "acco/storage/pack.hpp"

namespace ACCO_NAMESPACE::elementwise {

/// Calls body(index, n) for stretches of `lanes` elements, the last one with n < lanes when they do not divide.
template <std::size_t lanes, class Body>
inline void for_packs(std::size_t count, Body&& body) {
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, std::integral_constant<std::size_t, lanes>{});
  if (i < count) body(i, count - i);
}

template <class Pack, class U, class N>
[[nodiscard]] inline Pack load(U const* from, N n) {
  if constexpr (std::is_same_v<N, std::integral_constant<std::size_t, Pack::lanes>>) {
    return Pack::load(from);
  } else {
    U padded[Pack::lanes] = {};
    std::copy_n(from, n, padded);
    return Pack::load(padded);
  }
}

template <class Pack, class U, class N>
inline void store(Pack const& value, U* to, N n) {
  if constexpr (std::is_same_v<N, std::integral_constant<std::size_t, Pack::lanes>>) {
    value.store(to);
  } else {
    U padded[Pack::lanes];
    value.store(padded);
    std::copy_n(padded, n, to);
  }
}

/// The type in which two element types are combined: double if either is double, else float.
template <class A, class B>
using wider = std::conditional_t<std::is_same_v<A, double> || std::is_same_v<B, double>, double, float>;

/// to[i] = from[i], converted.
template <class From, class To>
inline void convert(From const* from, To* to, std::size_t count) {
  if constexpr (std::is_same_v<From, To>) {
    if (count != 0) std::memcpy(static_cast<void*>(to), from, count * sizeof(To));
  } else {
    using numbers = pack<wider<From, To>>;
    for_packs<numbers::lanes>(count, [&](std::size_t i, auto n) { store(load<numbers>(from + i, n), to + i, n); });
  }
}

/// to[i] += from[i], computed in the wider type.
template <class From, class To>
inline void add(From const* from, To* to, std::size_t count) {
  using numbers = pack<wider<From, To>>;
  for_packs<numbers::lanes>(
      count, [&](std::size_t i, auto n) { store(load<numbers>(to + i, n) + load<numbers>(from + i, n), to + i, n); });
}

/// out = (or +=) the sum of `sources` arrays in their order: ((s0 + s1) + s2) + ... in at least fp32; source(k) is the k-th
/// array. Works on cache-sized pieces, so that memory is passed once.
template <class Source, class To>
inline void sum_sources(int sources, Source source, To* out, std::size_t count, bool add_to_out) {
  using From = std::remove_cvref_t<decltype(*source(0))>;
  using total = wider<From, To>;
  constexpr std::size_t piece = 1024;
  alignas(64) total sums[piece];
  for (std::size_t i = 0; i < count; i += piece) {
    const std::size_t n = std::min(piece, count - i);
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

/// `before` plus the sum of squares, block by block: an array that is cut after whole blocks gives the same bits as the whole.
template <class From>
[[nodiscard]] inline double sum_of_squares(From const* from, std::size_t count, double before = 0) {
  for (std::size_t i = 0; i < count; i += square_block) before += squares_of_block(from + i, std::min(square_block, count - i));
  return before;
}

/// Whether none of `count` numbers is infinite or not a number.
template <std::size_t count>
[[nodiscard]] inline bool all_finite(float const* from) {
  using integers = pack<float>::vector_of<std::int32_t>::type;
  constexpr std::size_t lanes = pack<float>::lanes;
  constexpr std::int32_t infinite = 0x7f800000;
  integers bad{};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    integers bits;
    std::memcpy(&bits, from + i, sizeof bits);
    bad |= (bits & infinite) == infinite;
  }
  bool finite = true;
  for (std::size_t k = 0; k < lanes; ++k) finite = finite && bad[k] == 0;
  for (; i < count; ++i) finite = finite && std::isfinite(from[i]);
  return finite;
}

/// How many elements are infinite or not a number; `first` becomes the index of the first of them.
template <class From>
[[nodiscard]] inline std::size_t count_non_finite(From const* from, std::size_t count, std::size_t& first) {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(static_cast<double>(from[i])) && found++ == 0) first = i;
  }
  return found;
}

/// The slices of one rank that a rule works on.
template <class Master, class Sum, class Parameter, std::size_t Slots>
struct update_arguments {
  Master* master;
  std::array<Master*, Slots> slots;
  Sum const* gradient;  ///< the reduced sum; multiplied by `scale` before the rule sees it
  Parameter* out;       ///< what the ranks will get
  std::size_t count;
};

/// One pass over memory: unscale, rule, conversion. `kind` says what is written: predict writes `out` only, commit also master
/// and slots, commit_and_predict commits and writes the prediction of the step after (constants `next`) to `out`.
template <class Rule, update kind, class Master, class Sum, class Parameter>
inline void apply(rule_constants<Rule> const& now, rule_constants<Rule> const& next, double scale,
                  update_arguments<Master, Sum, Parameter, Rule::slot_count> const& a) {
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
  const auto constants_now = now;  // local copies: no store below can alias them
  const auto constants_next = next;
  const numbers factor(scale);
  for_packs<numbers::lanes>(a.count, [&](std::size_t i, auto n) {
    auto parameter = load<numbers>(a.master + i, n);
    const auto gradient = load<numbers>(a.gradient + i, n) * factor;
    std::array<numbers, slot_count> slots;
    for (std::size_t k = 0; k < slot_count; ++k) slots[k] = load<numbers>(a.slots[k] + i, n);
    run(parameter, gradient, slots, constants_now);
    if constexpr (kind != update::predict) {
      store(parameter, a.master + i, n);
      for (std::size_t k = 0; k < slot_count; ++k) store(slots[k], a.slots[k] + i, n);
    }
    if constexpr (kind == update::commit_and_predict) run(parameter, gradient, slots, constants_next);
    store(parameter, a.out + i, n);
  });
}

}  // namespace ACCO_NAMESPACE::elementwise
