// SPDX-License-Identifier: Apache-2.0
// The largest numbers of a block, and where they are.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/encoding/block_integer.hpp"
#include "acco/encoding/block_scale.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/number/pack.hpp"
#include "acco/opaque.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The bits of the `count`-th largest magnitude: found bit by bit, from the highest. Magnitudes as bits have the order of the
/// numbers; at_least(bits) says how many are not below.
template <class AtLeast>
[[nodiscard]] constexpr std::uint32_t bits_of_largest(std::size_t count, AtLeast&& at_least) {
  std::uint32_t found = 0;
  for (std::uint32_t bit = 1U << 30U; bit != 0; bit >>= 1U) {
    if (at_least(found | bit) >= count) found |= bit;
  }
  return found;
}

/// How many of a block's words, none of them above 0x7fffffff, are not below `bits`.
template <std::size_t Block>
[[nodiscard]] std::size_t count_at_least(std::uint32_t const* words, std::uint32_t bits) noexcept {
  using integers = pack<float>::vector_of<std::int32_t>::type;
  integers count = {};
  for (std::size_t i = 0; i < Block; i += pack<float>::lanes) {
    integers x;
    std::memcpy(&x, words + i, sizeof x);
    count -= x >= static_cast<std::int32_t>(bits);
  }
  std::int32_t total = 0;
  for (std::size_t k = 0; k < pack<float>::lanes; ++k) total += count[k];
  return static_cast<std::size_t>(total);
}

/// A block of 256 numbers is a scale (2 bytes), where its `Count` largest are (a byte each, ascending) and what they are (a byte
/// each, as `block_int8` has them; of equal magnitudes the first ones); the others arrive as 0: (2 + 2 Count) / 256 bytes a
/// number. As much of the energy arrives as the largest numbers hold, Count / 256 of it or more (Stich et al., arXiv 1809.07599):
/// for gradients with feedback.
template <std::size_t Count>
struct block_top {
  static_assert(Count >= 1 && Count < 256, "acco: block_top keeps 1 to 255 of a block's 256 numbers");
  static constexpr char const* name = "block_top";
  static constexpr bool loose = true;
  static constexpr bool biased = true;
  static constexpr std::size_t block_size = 256, kept = Count;
  static constexpr std::size_t block_bytes = block_scale::bytes + 2 * Count;
  using arithmetic = integer_code<8>;

  static void encode(float const* values, std::byte* bytes) noexcept {
    alignas(64) std::uint32_t magnitudes[block_size];
    std::memcpy(magnitudes, values, sizeof magnitudes);
    std::uint32_t most = 0;
    for (std::uint32_t& each : magnitudes) {
      each &= 0x7fffffffU;
      most = each > most ? each : most;
    }
    const std::int32_t scale_bits = arithmetic::scale_bits(static_cast<std::int32_t>(most));
    block_scale::put(static_cast<std::uint16_t>(scale_bits >> 16), bytes);
    bytes += block_scale::bytes;
    if (!arithmetic::has_codes(scale_bits)) {
      std::memset(bytes, 0, 2 * Count);
      return;
    }
    const std::uint32_t last =
        bits_of_largest(Count, [&](std::uint32_t bits) { return count_at_least<block_size>(magnitudes, bits); });
    std::size_t equal = Count - count_at_least<block_size>(magnitudes, last + 1);
    const auto scale = std::bit_cast<float>(scale_bits);
    std::size_t n = 0;
    for (std::size_t i = 0; i < block_size; ++i) {
      if (magnitudes[i] < last || (magnitudes[i] == last && equal == 0)) continue;
      if (magnitudes[i] == last) --equal;
      bytes[n] = static_cast<std::byte>(i);
      bytes[Count + n++] = static_cast<std::byte>(arithmetic::code(values[i], scale));
    }
  }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const std::int32_t scale_bits = block_scale::take(bytes) << 16;
    const auto scale = std::bit_cast<float>(opaque(scale_bits));
    const bool any = arithmetic::has_codes(scale_bits);
    for (std::size_t i = 0; i < block_size; i += pack<float>::lanes) pack<float>(any ? 0.0F : scale).store(values + i);
    bytes += block_scale::bytes;
    for (std::size_t n = 0; n < Count && any; ++n) {
      values[static_cast<std::uint8_t>(bytes[n])] = arithmetic::value(static_cast<std::int8_t>(bytes[Count + n]), scale);
    }
  }
};

static_assert(encoding<block_top<16>>);

}  // namespace ACCO_SIMD_NAMESPACE
