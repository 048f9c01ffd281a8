// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

/// Whether ACCO_THOROUGH is set: all that there is to try, in hours rather than minutes.
inline bool by_night() {
  static bool const asked = std::getenv("ACCO_THOROUGH") != nullptr;
  return asked;
}

/// Whether all cases are tried where many are alike. Under a sanitizer, where a step costs ten, one of several stands for the
/// others, unless ACCO_THOROUGH is set in the environment: what this leaves out runs without a sanitizer every time.
inline bool thorough() {
#ifdef ACCO_SANITIZED
  return by_night();
#else
  return true;
#endif
}
