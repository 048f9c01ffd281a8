// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

/// Whether all cases are tried where many are alike. Under a sanitizer, where a step costs ten, one of several stands for the
/// others, unless ACCO_THOROUGH is set in the environment: what this leaves out runs without a sanitizer every time.
inline bool thorough() {
#ifdef ACCO_SANITIZED
  static bool const asked = std::getenv("ACCO_THOROUGH") != nullptr;
  return asked;
#else
  return true;
#endif
}

/// Whether cases are repeated over types and worlds that say nothing of their own about what is under test (.ci/deep).
#ifdef ACCO_TEST_ALL
inline constexpr bool everything = true;
#define AND_IN_DEEP(...) , __VA_ARGS__  // at the end of a list of types
#else
inline constexpr bool everything = false;
#define AND_IN_DEEP(...)
#endif
