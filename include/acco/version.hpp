// SPDX-License-Identifier: Apache-2.0
// The version of the library and the inline namespace that carries it: two versions can live in one program.
#pragma once

#if __cplusplus < 202002L || (defined(__clang__) ? __clang_major__ < 17 : __GNUC__ < 12)
#error "acco needs C++20 (-std=c++20) and g++ 12, clang 17, or a newer one of them"
#include "acco stops here: the compiler is too old, or its flags are"  // one sentence, not a page of what it does not understand
#endif

#define ACCO_VERSION_MAJOR 0
#define ACCO_VERSION_MINOR 1
#define ACCO_VERSION_PATCH 0
#define ACCO_NAMESPACE acco::inline v0_1

namespace ACCO_NAMESPACE {

/// The version of these headers, as numbers.
struct version_number {
  int major, minor, patch;
  friend constexpr bool operator==(version_number, version_number) = default;
};
inline constexpr version_number version{ACCO_VERSION_MAJOR, ACCO_VERSION_MINOR, ACCO_VERSION_PATCH};

}  // namespace ACCO_NAMESPACE
