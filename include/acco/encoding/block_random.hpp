// SPDX-License-Identifier: Apache-2.0
// Some numbers of a block, chosen at random: where they are, every receiver finds out from a seed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/encoding/block_integer.hpp"
#include "acco/encoding/block_scale.hpp"
#include "acco/encoding/block_top.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/encoding/mix_bits.hpp"
#include "acco/number/pack.hpp"
#include "acco/opaque.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The arithmetic of one number, the same on host and device; `Words` is 32 bits, or a vector of them.
///
/// A seed is a pattern, its low byte, and a rotation, its high byte. A pattern gives each of 256 places a key, a hash with the
/// place in its low byte, so that no two are equal; the largest keys are chosen. Number i has the place (i + rotation) mod 256,
/// so over all seeds every number is chosen equally often.
struct random_code {
  static constexpr std::uint32_t places = 256, infinite = 0x7f800000U;
  static constexpr std::uint32_t negligible = integer_code<8>::negligible;  ///< what has no codes

  /// What the i-th number with these bits adds to the block's hash, modulo 2^32.
  template <class Words>
  [[nodiscard]] static constexpr Words term(Words bits, Words i) noexcept {
    return mix_bits(mix_bits(bits) ^ (i * 0x01000193U));
  }
  [[nodiscard]] static constexpr std::uint16_t seed(std::uint32_t sum_of_terms) noexcept {
    return static_cast<std::uint16_t>(mix_bits(sum_of_terms) >> 16U);
  }
  template <class Words>
  [[nodiscard]] static constexpr Words key(std::uint16_t seed, Words place) noexcept {
    return (mix_bits(place | (seed & 255U) << 8U) & 0x7fffff00U) | place;
  }
  [[nodiscard]] static constexpr std::uint32_t place_of(std::uint32_t i, std::uint16_t seed) noexcept {
    return (i + (seed >> 8U)) % places;
  }
  /// Of the same pattern, by which number i gets the place of the largest key: it is chosen, however few are.
  [[nodiscard]] static constexpr std::uint16_t turned_to(std::uint32_t i, std::uint32_t largest_key,
                                                         std::uint16_t seed) noexcept {
    return static_cast<std::uint16_t>((seed & 255U) | (largest_key - i) % places << 8U);
  }
};

/// Of a block of 256 numbers `Count` travel, chosen at random (random-k; Stich et al., arXiv 1809.07599): a scale (2 bytes), a
/// seed (2 bytes), and the chosen numbers, a byte each, in their order, as `block_int8` has them: 4 + Count bytes a block, and
/// one more where that is odd. The others arrive as 0. Nothing is scaled by 256 / Count: Count / 256 of the energy arrives on
/// average, as feedback needs it.
///
/// The seed is a hash of the block's own numbers: an encoding has no state, and a receiver needs no other. So where a block comes
/// again, unchanged, the same numbers are chosen again. With feedback, and for parameters, it does not: what has arrived is no
/// longer in it, and the next seed is another. It would, if all that is chosen were 0; then the pattern is turned so that the
/// block's largest number, the first of equal ones, is among the chosen. That and nothing else depends on how large numbers are.
template <std::size_t Count>
struct block_random {
  static_assert(Count >= 1 && Count < 256, "acco: block_random keeps 1 to 255 of a block's 256 numbers");
  static constexpr char const* name = "block_random";
  static constexpr bool loose = true;
  static constexpr bool biased = true;
  static constexpr std::size_t block_size = random_code::places, kept = Count;
  static constexpr std::size_t code_bytes = (Count + 1) / 2 * 2;
  static constexpr std::size_t block_bytes = block_scale::bytes + sizeof(std::uint16_t) + code_bytes;
  using arithmetic = integer_code<8>;
  using choice = random_code;

  static void encode(float const* values, std::byte* bytes) noexcept {
    std::memset(bytes, 0, block_bytes);
    const std::uint32_t most = largest_magnitude<block_size>(values);
    if (most >= choice::infinite) return block_scale::put(block_scale::not_a_number, bytes);
    if (most < choice::negligible) return;
    std::uint16_t seed = seed_of(values);
    chosen is(seed);
    std::uint32_t most_chosen = largest_of(values, is, seed);
    if (most_chosen < choice::negligible) {
      std::uint32_t i = 0;
      while (magnitude(values[i]) != most) ++i;
      seed = choice::turned_to(i, is.largest, seed);
      most_chosen = most;
    }
    const std::int32_t scale_bits = arithmetic::scale_bits(static_cast<std::int32_t>(most_chosen));
    const auto scale = std::bit_cast<float>(scale_bits);
    block_scale::put(static_cast<std::uint16_t>(scale_bits >> 16), bytes);
    block_scale::put(seed, bytes + block_scale::bytes);
    std::byte* to = bytes + block_scale::bytes + sizeof seed;
    for (std::uint32_t i = 0; i < block_size; ++i) {
      if (is(i, seed)) *to++ = static_cast<std::byte>(arithmetic::code(values[i], scale));
    }
  }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const std::int32_t scale_bits = block_scale::take(bytes) << 16;
    const auto scale = std::bit_cast<float>(opaque(scale_bits));
    const bool any = arithmetic::has_codes(scale_bits);
    for (std::size_t i = 0; i < block_size; i += lanes) pack<float>(any ? 0.0F : scale).store(values + i);
    if (!any) return;
    const std::uint16_t seed = block_scale::take(bytes + block_scale::bytes);
    const chosen is(seed);
    std::byte const* from = bytes + block_scale::bytes + sizeof seed;
    for (std::uint32_t i = 0; i < block_size; ++i) {
      if (is(i, seed)) values[i] = arithmetic::value(static_cast<std::int8_t>(*from++), scale);
    }
  }

  /// 15 and 16 numbers take the same bytes.
  template <class Visitor>
  static void describe(Visitor&& visit) {
    visit("kept", kept);
  }

 private:
  using words = pack<float>::vector_of<std::uint32_t>::type;
  static constexpr std::size_t lanes = pack<float>::lanes;

  [[nodiscard]] static std::uint32_t magnitude(float value) noexcept { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }
  [[nodiscard]] static words indices_from(std::uint32_t first) noexcept {
    words made = {};
    for (std::uint32_t k = 0; k < lanes; ++k) made[k] = first + k;
    return made;
  }
  [[nodiscard]] static std::uint16_t seed_of(float const* values) noexcept {
    words sums = {};
    for (std::size_t i = 0; i < block_size; i += lanes) {
      words bits;
      std::memcpy(&bits, values + i, sizeof bits);
      sums += choice::term(bits, indices_from(static_cast<std::uint32_t>(i)));
    }
    std::uint32_t sum = 0;
    for (std::size_t k = 0; k < lanes; ++k) sum += sums[k];
    return choice::seed(sum);
  }
  /// Which places a pattern chooses.
  struct chosen {
    alignas(64) std::uint32_t keys[block_size];
    std::uint32_t last, largest;
    explicit chosen(std::uint16_t seed) noexcept {
      for (std::size_t i = 0; i < block_size; i += lanes) {
        const words some = choice::key(seed, indices_from(static_cast<std::uint32_t>(i)));
        std::memcpy(keys + i, &some, sizeof some);
      }
      const auto at_least = [this](std::uint32_t bits) { return count_at_least<block_size>(keys, bits); };
      last = bits_of_largest(Count, at_least);
      largest = Count == 1 ? last : bits_of_largest(1, at_least);
    }
    [[nodiscard]] bool operator()(std::uint32_t i, std::uint16_t seed) const noexcept {
      return keys[choice::place_of(i, seed)] >= last;
    }
  };
  [[nodiscard]] static std::uint32_t largest_of(float const* values, chosen const& is, std::uint16_t seed) noexcept {
    std::uint32_t most = 0;
    for (std::uint32_t i = 0; i < block_size; ++i) {
      const std::uint32_t bits = is(i, seed) ? magnitude(values[i]) : 0;
      most = bits > most ? bits : most;
    }
    return most;
  }
};
static_assert(encoding<block_random<32>>);

}  // namespace ACCO_SIMD_NAMESPACE
