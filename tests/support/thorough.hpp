// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

/// Whether all cases are tried where many are alike: where ACCO_THOROUGH is set in the environment. Otherwise some of them, the
/// same ones every time, stand for the others.
inline bool thorough() {
  static bool const asked = std::getenv("ACCO_THOROUGH") != nullptr;
  return asked;
}
