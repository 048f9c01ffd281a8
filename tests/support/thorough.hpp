// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

/// Whether all cases are tried where many are alike: where ACCO_THOROUGH is set in the environment. Otherwise some of
/// them, the same ones every time, stand for the others.
inline bool thorough() {
  static bool const asked = std::getenv("ACCO_THOROUGH") != nullptr;
  return asked;
}

/// Whether cases are repeated over types and worlds that say nothing of their own about what is under test (.ci/deep).
#ifdef ACCO_TEST_ALL
inline constexpr bool everything = true;
#define AND_IN_DEEP(...) , __VA_ARGS__  // at the end of a list of types
#else
inline constexpr bool everything = false;
#define AND_IN_DEEP(...)
#endif
