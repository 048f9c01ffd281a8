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
