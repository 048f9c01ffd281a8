// SPDX-License-Identifier: Apache-2.0
// The last words of a process whose training an exception has ended.
#pragma once

#include <cstdio>
#include <exception>

#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Prints, on stderr, the exception that is being handled, with its rank.
inline void print_end(int rank) noexcept {
  const text place(rank < 0 ? text() : text("rank ", rank, ": "));
  try {
    throw;
  } catch (error const& e) {  // says "acco: " itself, and its rank where it knows it
    std::fprintf(stderr, "acco: %s%s\n", e.rank() < 0 ? place.c_str() : "", e.what() + sizeof("acco: ") - 1);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "acco: %sthe trainer threw: %s\n", place.c_str(), e.what());
  } catch (...) {
    std::fprintf(stderr, "acco: %sthe trainer threw an exception that is no std::exception\n", place.c_str());
  }
}

}  // namespace ACCO_SIMD_NAMESPACE
