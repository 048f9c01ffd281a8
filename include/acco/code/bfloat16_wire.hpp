// SPDX-License-Identifier: Apache-2.0
// Half the bytes of fp32, with its range.
#pragma once

#include <cstddef>
#include <cstring>

#include "acco/bfloat16.hpp"
#include "acco/code/encoding.hpp"
#include "acco/number/convert.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Numbers travel as bfloat16, rounded to nearest even: relative error at most 2^-8.
struct bfloat16_wire {
  static constexpr char const* name = "bfloat16_wire";
  static constexpr std::size_t block_size = 256;
  static constexpr std::size_t block_bytes = block_size * sizeof(bfloat16);

  static void encode(float const* values, std::byte* bytes) noexcept {
    bfloat16 narrow[block_size];
    elementwise::convert(values, narrow, block_size);
    std::memcpy(bytes, narrow, sizeof narrow);
  }
  static void decode(std::byte const* bytes, float* values) noexcept {
    bfloat16 narrow[block_size];
    std::memcpy(static_cast<void*>(narrow), bytes, sizeof narrow);
    elementwise::convert(static_cast<bfloat16 const*>(narrow), values, block_size);
  }
};
static_assert(encoding<bfloat16_wire>);

}  // namespace ACCO_SIMD_NAMESPACE
