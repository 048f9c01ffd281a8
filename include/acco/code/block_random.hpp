// SPDX-License-Identifier: Apache-2.0
// Some numbers of a block, chosen at random: where they are, every receiver finds out from a seed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "acco/code/block_integer.hpp"
#include "acco/code/block_scale.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/mix_bits.hpp"
#include "acco/number/pack.hpp"
#include "acco/opaque.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Which numbers of a block a seed chooses; the same on host and device. The seed's upper bits are a rotation, the
/// others a pattern: a permutation of the block's places, made of multiplications by odd numbers and shifts. The n-th
/// number that is chosen is the n-th of the permutation, turned by the rotation. So over all seeds every number is
/// chosen equally often.
template <std::size_t Block>
class random_places {
 public:
  using seed_type = std::conditional_t<Block == 256, std::uint16_t, std::uint32_t>;

  explicit constexpr random_places(seed_type seed) noexcept
      : keys_{mix_bits(pattern(seed)), mix_bits(pattern(seed) + 0x10000000U), mix_bits(pattern(seed) + 0x20000000U)},
        rotation_(static_cast<std::uint32_t>(seed) >> pattern_bits) {}
  [[nodiscard]] constexpr std::uint32_t operator[](std::uint32_t n) const noexcept { return (permuted(n) + rotation_) % Block; }
  /// The seed of the same pattern that chooses `place` first.
  [[nodiscard]] static constexpr seed_type turned_to(std::uint32_t place, seed_type seed) noexcept {
    const std::uint32_t turned = (place - random_places(seed).permuted(0)) % Block;
    return static_cast<seed_type>(pattern(seed) | turned << pattern_bits);
  }
  [[nodiscard]] static constexpr seed_type seed_of(std::uint32_t hash) noexcept {
    return static_cast<seed_type>(mix_bits(hash) >> (32 - 8 * sizeof(seed_type)));
  }
  /// What a number with these bits adds to the hash of a block, modulo 2^32: of one number, or of a vector.
  template <class Words>
  [[nodiscard]] static constexpr Words term(Words bits, Words factor) noexcept {
    return (bits ^ (bits >> 15U) ^ (bits >> 24U)) * factor;
  }
  [[nodiscard]] static constexpr std::uint32_t factor(std::uint32_t i) noexcept { return mix_bits(i) | 1U; }

 private:
  static constexpr std::uint32_t place_bits = Block == 256 ? 8 : 12, pattern_bits = 8 * sizeof(seed_type) - place_bits;
  static constexpr std::uint32_t pattern(seed_type seed) noexcept { return seed & ((1U << pattern_bits) - 1); }
  [[nodiscard]] constexpr std::uint32_t permuted(std::uint32_t n) const noexcept {
    for (std::uint32_t const key : keys_) {
      n = (n * (key | 1U) + (key >> 16U)) % Block;
      n ^= n >> (place_bits / 2);
    }
    return n;
  }

  std::uint32_t keys_[3], rotation_;
};

/// Of a block of 256 or 4096 numbers `Count` travel, chosen at random (random-k; Stich et al., arXiv 1809.07599): a
/// scale (2 bytes), a seed (2 or 4 bytes), and the chosen numbers, a byte each, as `block_int8` has them; an even
/// number of bytes. The others arrive as 0. Nothing is scaled by Block / Count: Count / Block of the energy arrives on
/// average, as feedback needs it; `scaled_random` is the unbiased one.
///
/// The seed is a hash of the block's own numbers: an encoding has no state, and a receiver needs no other. So where a
/// block comes again, unchanged, the same numbers are chosen again. With feedback, and for parameters, it does not:
/// what has arrived is no longer in it, and the next seed is another. It would, if all that is chosen were 0; then the
/// pattern is turned so that the block's largest number, the first of equal ones, is chosen. That and nothing else
/// depends on how large numbers are.
template <std::size_t Count, std::size_t Block = 256>
struct block_random {
  static_assert(Block == 256 || Block == 4096, "acco: a block of which few numbers are kept has 256 or 4096 numbers");
  static_assert(Count >= 1 && Count <= Block, "acco: a code keeps 1 to all of a block's numbers");
  static constexpr char const* name = "block_random";
  using says = block_random;
  static constexpr bool loose = true;
  static constexpr bool biased = true;
  using choice = random_places<Block>;
  using seed_type = typename choice::seed_type;
  using arithmetic = integer_code<8>;
  static constexpr std::size_t block_size = Block, kept = Count;
  static constexpr std::size_t codes_at = block_scale::bytes + sizeof(seed_type);
  static constexpr std::size_t block_bytes = codes_at + (Count + 1) / 2 * 2;
  static constexpr auto negligible = static_cast<std::uint32_t>(arithmetic::negligible);

  static void encode(float const* values, std::byte* bytes) noexcept {
    const std::uint32_t most = largest_magnitude<Block>(values);
    if (most >= 0x7f800000U) return put(bytes, block_scale::not_a_number, 0);
    if (most < negligible) return put(bytes, 0, 0);
    seed_type seed = seed_of(values);
    std::uint32_t chosen = largest_chosen(values, choice(seed));
    if (chosen < negligible) {
      std::uint32_t first = 0;
      while (magnitude(values[first]) != most) ++first;
      seed = choice::turned_to(first, seed);
      chosen = most;
    }
    const float scale = put_scale(bytes, chosen, seed);
    const choice places(seed);
    for (std::uint32_t n = 0; n < Count; ++n)
      bytes[codes_at + n] = static_cast<std::byte>(arithmetic::code(values[places[n]], scale));
  }
  static bool says_non_finite(std::byte const* bytes) noexcept { return block_scale::says_non_finite(bytes); }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const std::int32_t scale_bits = block_scale::take(bytes) << 16;
    const auto scale = std::bit_cast<float>(opaque(scale_bits));
    const bool any = arithmetic::has_codes(scale_bits);
    std::fill_n(values, Block, any ? 0.0F : scale);
    if (!any) return;
    seed_type seed = 0;
    std::memcpy(&seed, bytes + block_scale::bytes, sizeof seed);
    const choice places(seed);
    for (std::uint32_t n = 0; n < Count; ++n)
      values[places[n]] = arithmetic::value(static_cast<std::int8_t>(bytes[codes_at + n]), scale);
  }

  /// 15 and 16 numbers take the same bytes.
  template <class Visitor>
  static void describe(Visitor&& visit) {
    visit("kept", kept);
  }

 protected:
  static constexpr std::size_t lanes = pack<float>::lanes;

  [[nodiscard]] static std::uint32_t magnitude(float value) noexcept { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }
  [[nodiscard]] static seed_type seed_of(float const* values) noexcept {
    using words = pack<float>::vector_of<std::uint32_t>::type;
    struct table {
      alignas(64) std::uint32_t factor[Block] = {};
      constexpr table() {
        for (std::uint32_t i = 0; i < Block; ++i) factor[i] = choice::factor(i);
      }
    };
    static constexpr table made;
    words sums = {};
    for (std::size_t i = 0; i < Block; i += lanes) {
      words bits, factor;
      std::memcpy(&bits, values + i, sizeof bits);
      std::memcpy(&factor, made.factor + i, sizeof factor);
      sums += choice::term(bits, factor);
    }
    std::uint32_t sum = 0;
    for (std::size_t k = 0; k < lanes; ++k) sum += sums[k];
    return choice::seed_of(sum);
  }
  [[nodiscard]] static std::uint32_t largest_chosen(float const* values, choice const& places) noexcept {
    std::uint32_t most = 0;
    for (std::uint32_t n = 0; n < Count; ++n) {
      const std::uint32_t bits = magnitude(values[places[n]]);
      most = bits > most ? bits : most;
    }
    return most;
  }
  /// The word and the seed; no codes.
  static void put(std::byte* bytes, std::uint16_t word, seed_type seed) noexcept {
    std::memset(bytes, 0, block_bytes);
    block_scale::put(word, bytes);
    std::memcpy(bytes + block_scale::bytes, &seed, sizeof seed);
  }
  static float put_scale(std::byte* bytes, std::uint32_t largest, seed_type seed) noexcept {
    const std::int32_t scale_bits = arithmetic::scale_bits(static_cast<std::int32_t>(largest));
    put(bytes, static_cast<std::uint16_t>(scale_bits >> 16), seed);
    return std::bit_cast<float>(scale_bits);
  }
};

/// The same, unbiased where it is committed: numbers are chosen by the round's random bits, whatever the block holds,
/// multiplied by Block / Count, and rounded at random, so the mean of what arrives is the block. Its variance is
/// Block / Count - 1 times the block's energy. Where nothing is committed, and with feedback, it is `block_random`.
template <std::size_t Count, std::size_t Block = 256>
struct scaled_random : block_random<Count, Block> {
  using base = block_random<Count, Block>;
  using base::encode;
  using typename base::arithmetic;
  using typename base::choice;
  static constexpr char const* name = "scaled_random";
  using says = scaled_random;
  static constexpr bool biased = false;
  static constexpr float factor = static_cast<float>(Block) / static_cast<float>(Count), most = 0x1.f8p127F / factor;

  [[nodiscard]] static constexpr float scaled(float value) noexcept {
    return (value > most ? most : value < -most ? -most : value) * factor;
  }
  static void encode(float const* values, std::byte* bytes, std::uint32_t random) noexcept {
    if (largest_magnitude<Block>(values) >= 0x7f800000U) return base::put(bytes, block_scale::not_a_number, 0);
    const auto seed = choice::seed_of(random);
    const choice places(seed);
    const std::uint32_t chosen = base::magnitude(scaled(std::bit_cast<float>(base::largest_chosen(values, places))));
    if (chosen < base::negligible) return base::put(bytes, 0, 0);
    const float scale = base::put_scale(bytes, chosen, seed);
    for (std::uint32_t n = 0; n < Count; ++n) {
      const auto share = static_cast<std::int32_t>(arithmetic::bits_of_number(random, n) >> 12U);
      bytes[base::codes_at + n] = static_cast<std::byte>(arithmetic::code_at_random(scaled(values[places[n]]) / scale, share));
    }
  }
};
static_assert(encoding<block_random<32>> && rounds_at_random<scaled_random<64, 4096>>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
