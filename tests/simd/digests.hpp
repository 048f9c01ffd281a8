// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// What codes are called, and a digest of the bytes that they make of numbers and of what these decode to.
struct digest {
  char const* code;
  std::uint64_t of_bytes, of_numbers;
  bool operator==(digest const&) const = default;
};
using numbers = std::span<float const>;

/// The same file, compiled for registers of 16, 32 and as many bytes as this machine has.
std::vector<digest> digests_of_baseline(numbers values);
std::vector<digest> digests_of_haswell(numbers values);
std::vector<digest> digests_of_native(numbers values);
