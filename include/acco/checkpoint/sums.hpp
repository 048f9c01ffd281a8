// SPDX-License-Identifier: Apache-2.0
// Sums by which damage is found, of chunks of which several ranks write a part each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <xxhash.h>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

inline constexpr std::uint64_t block_bytes = 4096;                     ///< that one rank writes whole
inline constexpr std::uint64_t chunk_bytes = std::uint64_t{1} << 20U;  ///< that have a sum in the manifest
inline constexpr std::uint64_t blocks_of_a_chunk = chunk_bytes / block_bytes;

/// XXH3, 64 bits.
[[nodiscard]] inline std::uint64_t sum_of(std::span<std::byte const> bytes, std::uint64_t seed = 0) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}
/// The sum of a chunk of data, or of whole blocks of it: modulo 2^64, of XXH3 of each block, with the block's number in
/// the data as the seed. `first` is the number of the first block.
[[nodiscard]] inline std::uint64_t sum_of_blocks(std::span<std::byte const> bytes, std::uint64_t first) noexcept {
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < bytes.size(); at += block_bytes, ++first)
    sum += sum_of(bytes.subspan(at, std::min<std::size_t>(block_bytes, bytes.size() - at)), first);
  return sum;
}

/// 16 digits.
[[nodiscard]] inline std::string hex(std::uint64_t number) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t k = 0; k < 16; ++k) text[15 - k] = digits[number >> (4 * k) & 15U];
  return text;
}
/// Whether it was a number in such digits.
[[nodiscard]] inline bool read_hex(std::string_view text, std::uint64_t& number) noexcept {
  if (text.size() != 16) return false;
  number = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    number = number << 4U | static_cast<unsigned>(digit);
  }
  return true;
}

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
