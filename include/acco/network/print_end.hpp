// SPDX-License-Identifier: Apache-2.0
// The last words of a process whose training an exception has ended.
#pragma once

#include <cstdio>
#include <exception>
#include <string_view>

#include "acco/error.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Prints, on stderr, the exception that is being handled, with its rank.
inline void print_end(int rank) noexcept {
  char place[32] = "";
  if (rank >= 0) std::snprintf(place, sizeof place, "rank %d: ", rank);
  try {
    throw;
  } catch (error const& e) {
    std::string_view said(e.what());
    if (constexpr std::string_view name = "acco: "; e.rank() < 0 && said.starts_with(name)) said.remove_prefix(name.size());
    std::fprintf(stderr, "%s%s%.*s\n", e.rank() < 0 ? "acco: " : "", e.rank() < 0 ? place : "", static_cast<int>(said.size()),
                 said.data());
  } catch (std::exception const& e) {
    std::fprintf(stderr, "acco: %sthe trainer threw: %s\n", place, e.what());
  } catch (...) {
    std::fprintf(stderr, "acco: %sthe trainer threw an exception that is no std::exception\n", place);
  }
}

}  // namespace ACCO_SIMD_NAMESPACE
