// SPDX-License-Identifier: Apache-2.0
// Checksums of messages, where xxHash is.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(ACCO_WITH_XXHASH)
#include <xxhash.h>
#endif

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Of the bytes of a message; both ends compute it. All ranks have the same one; null: messages carry none.
using message_sum = std::uint64_t (*)(void const* from, std::size_t bytes) noexcept;

#if defined(ACCO_WITH_XXHASH)
/// XXH3, 64 bits. `acco::gloo` and `acco::mpi` define ACCO_WITH_XXHASH, and link xxHash, where CMake finds it.
[[nodiscard]] inline std::uint64_t xxh3(void const* from, std::size_t bytes) noexcept { return XXH3_64bits(from, bytes); }
inline constexpr message_sum usual_message_sum = xxh3;
#else
inline constexpr message_sum usual_message_sum = nullptr;
#endif

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
