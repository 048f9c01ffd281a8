// SPDX-License-Identifier: Apache-2.0
// A matrix in memory, with room beside it.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Row by row. Owns nothing.
template <class Real>
struct matrix_view {
  Real* values;
  std::size_t rows, columns;
  Real* scratch;  ///< room for as many numbers as was asked for

  [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

}  // namespace ACCO_SIMD_NAMESPACE
