// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

/// How many times longer than here a test waits for what must come: ACCO_TEST_PATIENCE in the environment. Deadlines
/// that a test looks at are seconds that it chose; all others are multiplied with this.
inline double patience() {
  char const* const asked = std::getenv("ACCO_TEST_PATIENCE");
  const double times = asked != nullptr ? std::atof(asked) : 1;
#ifdef ACCO_SANITIZED
  return times > 0 ? 4 * times : 4;
#else
  return times > 0 ? times : 1;
#endif
}
