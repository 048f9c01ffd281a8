// SPDX-License-Identifier: Apache-2.0
// The version of the library and the inline namespace that carries it: two versions can live in one program.
#pragma once

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
