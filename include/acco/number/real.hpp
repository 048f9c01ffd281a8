// SPDX-License-Identifier: Apache-2.0
// The few functions that a rule may need beside + - * /. A rule is written once for a generic `Real`: float, double,
// or a SIMD pack (number/pack.hpp), whose overloads are found by argument-dependent lookup.
#pragma once

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class Real>
concept scalar_real = __is_same(Real, float) || __is_same(Real, double);

template <scalar_real Real>
constexpr Real square_root(Real x) {
#if defined(__CUDA_ARCH__)
  return ::sqrt(x);
#else
  if constexpr (sizeof(Real) == sizeof(float)) {
    return __builtin_sqrtf(x);
  } else {
    return __builtin_sqrt(x);
  }
#endif
}

/// -1, 0 or 1.
template <scalar_real Real>
constexpr Real sign(Real x) {
  return x > Real(0) ? Real(1) : x < Real(0) ? Real(-1) : Real(0);
}

template <scalar_real Real>
constexpr Real maximum(Real a, Real b) {
  return a < b ? b : a;
}

template <scalar_real Real>
constexpr Real absolute(Real x) {
  return x < Real(0) ? -x : x;
}

}  // namespace ACCO_SIMD_NAMESPACE
