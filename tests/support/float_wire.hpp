// SPDX-License-Identifier: Apache-2.0
// An encoding that loses nothing but double precision: rounds that travel encoded must then train like those that do
// not.
#pragma once

#include <cstddef>
#include <cstring>

#include <acco/code/encoding.hpp>

/// Numbers travel as they are, in blocks of 64.
struct float_wire {
  static constexpr char const* name = "float_wire";
  static constexpr std::size_t block_size = 64, block_bytes = block_size * sizeof(float);
  static void encode(float const* values, std::byte* bytes) { std::memcpy(bytes, values, block_bytes); }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
};
