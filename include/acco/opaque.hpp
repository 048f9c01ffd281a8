// SPDX-License-Identifier: Apache-2.0
// Bits of a number of which the optimiser knows nothing.
#pragma once

#include <type_traits>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// `bits`, unchanged. Under -ffinite-math-only (-Ofast, -ffast-math) the compiler may assume that no number is infinite
/// or NaN, and follows the assumption into bits that were cast from a number, or will be cast into one: clang removes
/// the branch that makes a NaN. Not through here. Costs nothing without such a flag, and nothing on a device.
template <class Bits>
[[nodiscard, gnu::always_inline]] constexpr Bits opaque(Bits bits) noexcept {
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ && !defined(__CUDA_ARCH__)
  if (!std::is_constant_evaluated()) {
    if constexpr (sizeof(Bits) <= sizeof(void*)) {
      asm("" : "+r"(bits));
    } else {
      asm("" : "+m"(bits));  // a vector: which registers hold it depends on the processor
    }
  }
#endif
  return bits;
}

}  // namespace ACCO_NAMESPACE
