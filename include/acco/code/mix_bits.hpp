// SPDX-License-Identifier: Apache-2.0
// A hash of 32 bits: choices that look random, and are the same on every rank.
#pragma once

#include <cstdint>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The finaliser of MurmurHash3 of `bits` + 2^32 / phi: a permutation of all words, or of each of a vector of unsigned
/// 32-bit words.
template <class Words>
[[nodiscard]] constexpr Words mix_bits(Words bits) noexcept {
  Words h = bits + 0x9e3779b9U;
  h = (h ^ (h >> 16U)) * 0x85ebca6bU;
  h = (h ^ (h >> 13U)) * 0xc2b2ae35U;
  return h ^ (h >> 16U);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
