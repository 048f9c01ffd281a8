// SPDX-License-Identifier: Apache-2.0
// The numbers of an optimizer's buffers: `allocate` lets each begin at another place of a page, so that arrays which
// are walked together do not meet in one set of the cache.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::stagger {

inline constexpr std::size_t accumulator = 0;  // four, full-size
inline constexpr std::size_t reduced = 4;      // two
inline constexpr std::size_t encoded = 6;      // two
inline constexpr std::size_t masters = 8;
inline constexpr std::size_t slots = 9;  // as many as the rule has, and averages

}  // namespace ACCO_SIMD_NAMESPACE::stagger

#include "acco/restore_macros.hpp"
