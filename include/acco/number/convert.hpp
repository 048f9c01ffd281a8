// SPDX-License-Identifier: Apache-2.0
// Loops over arrays of numbers, written once over packs. The remainder goes through a padded pack, so that every
// element sees the same instructions wherever it lies: results do not depend on how a buffer was divided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::elementwise {

/// Calls body(index, n) for ranges of `lanes` elements, the last one with n < lanes when they do not divide.
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

/// to[i] = from[i], converted, where to[i] converts to another number: a master keeps what its parameter does not show.
template <class From, class To>
inline void replace_edited(From const* from, To* to, std::size_t count) {
  constexpr std::size_t most = 256;
  From shown[most];
  for (std::size_t i = 0; i < count; i += most) {
    const std::size_t n = count - i < most ? count - i : most;
    convert(static_cast<To const*>(to + i), shown, n);
    for (std::size_t k = 0; k < n; ++k) {
      const auto wanted = static_cast<wider<From, To>>(from[i + k]);
      if (!(static_cast<wider<From, To>>(shown[k]) == wanted)) to[i + k] = static_cast<To>(wanted);
    }
  }
}

/// to[i] += from[i], computed in the wider type.
template <class From, class To>
inline void add(From const* from, To* to, std::size_t count) {
  using numbers = pack<wider<From, To>>;
  for_packs<numbers::lanes>(
      count, [&](std::size_t i, auto n) { store(load<numbers>(to + i, n) + load<numbers>(from + i, n), to + i, n); });
}

}  // namespace ACCO_SIMD_NAMESPACE::elementwise

#include "acco/restore_macros.hpp"
