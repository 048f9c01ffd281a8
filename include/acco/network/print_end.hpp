// SPDX-License-Identifier: Apache-2.0
// The last words of a process whose training an exception has ended.
#pragma once

#include <cstdio>
#include <exception>

#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Prints, on stderr, the exception that is being handled. Those of acco say of themselves which rank they come from.
inline void print_end(int rank) noexcept {
  char place[32] = "";
  if (rank >= 0) std::snprintf(place, sizeof place, "rank %d: ", rank);
  try {
    throw;
  } catch (error const& e) {
    std::fprintf(stderr, "%s\n", e.what());
  } catch (std::exception const& e) {
    std::fprintf(stderr, "acco: %sthe trainer threw: %s\n", place, e.what());
  } catch (...) {
    std::fprintf(stderr, "acco: %sthe trainer threw an exception that is no std::exception\n", place);
  }
}

}  // namespace ACCO_SIMD_NAMESPACE
