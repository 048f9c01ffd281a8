// SPDX-License-Identifier: Apache-2.0
// The largest numbers of a block, and where they are.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "acco/code/bit_planes.hpp"
#include "acco/code/block_scale.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/kept_code.hpp"
#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Bits that `count` numbers' magnitudes reach, where there are such, else those of the `count`-th largest: from `low`,
/// which as many reach, to `high`. Magnitudes as bits have the order of the numbers; at_least(bits) says how many reach
/// them.
template <class AtLeast>
[[nodiscard]] constexpr std::uint32_t bits_of_largest(std::size_t count, std::uint32_t low, std::uint32_t high,
                                                      AtLeast&& at_least) {
  while (low < high) {
    const std::uint32_t middle = high - (high - low) / 2;
    const std::size_t reach = at_least(middle);
    if (reach == count) return middle;
    if (reach > count) {  // a guess of the processor's is faster than to wait for it
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Where the largest numbers of a block are: by the upper halves of their magnitudes, of which a register holds most;
/// then among those few by the rest.
template <std::size_t Block>
class largest_numbers {
 public:
  /// Looks at a block.
  explicit largest_numbers(float const* values) noexcept : values_(values) {
    using words = pack<float>::vector_of<std::int32_t>::type;
    using halves = pack<float>::vector_of<std::int16_t>::type;
    words most = {};
    for (std::size_t i = 0; i < Block; i += pack<float>::lanes) {
      words bits;
      std::memcpy(&bits, values + i, sizeof bits);
      bits &= 0x7fffffff;
      most = most < bits ? bits : most;
      const halves upper = __builtin_convertvector(bits >> 16, halves);
      std::memcpy(upper_ + i, &upper, sizeof upper);
    }
    most_ = largest_of(most);
  }
  /// The bits of the largest magnitude.
  [[nodiscard]] std::uint32_t most() const noexcept { return most_; }

  /// Writes the places of the `Count` largest, ascending, and returns how many there are: of equal magnitudes the first
  /// ones count, and no 0.
  template <std::size_t Count>
  std::size_t places(std::uint16_t* to) const noexcept {
    constexpr std::size_t count = Count;
    const auto upper =
        static_cast<std::int16_t>(bits_of_largest(count, reached_by(count), most_ >> 16U, [this](std::uint32_t bits) {
          return at_least(static_cast<std::int16_t>(bits));
        }));
    constexpr std::size_t expected = 64 * count / Block, together = expected < 1 ? 2 : expected < 4 ? 2 * expected : 8;
    std::uint16_t some[Block + together];
    std::size_t found = 0;
    for (std::size_t i = 0; i < Block; i += 64) {
      std::uint64_t those = those_of_64(i, upper);
      std::uint16_t* at = some + found;
      found += static_cast<std::size_t>(std::popcount(those));
      do {  // nearly always once: what is written behind the last is written again
        for_indices<together>([&](auto k) {
          constexpr std::uint64_t none = 1ULL << 63U;  // without a branch
          at[k] = static_cast<std::uint16_t>(i + static_cast<std::size_t>(std::countr_zero(those | none)));
          those &= those - 1;
        });
        at += together;
      } while (those != 0);
    }
    std::uint32_t last = 0;
    std::size_t equal = 0;
    if (found > count) {
      std::uint32_t ties[Block];
      std::size_t tied = 0;
      for (std::size_t n = 0; n < found; ++n) {
        ties[tied] = magnitude(some[n]);
        tied += upper_[some[n]] == upper ? 1U : 0U;
      }
      const std::size_t of_ties = count - (found - tied);
      std::nth_element(ties, ties + of_ties - 1, ties + tied, std::greater<>());
      last = ties[of_ties - 1];
      const auto above = std::count_if(ties, ties + of_ties, [last](std::uint32_t each) { return each > last; });
      equal = of_ties - static_cast<std::size_t>(above);
    }
    std::size_t kept = 0;
    for (std::size_t n = 0; n < found; ++n) {
      const std::uint32_t bits = magnitude(some[n]);
      if (bits < last || bits == 0 || (bits == last && equal == 0)) continue;
      if (bits == last) --equal;
      to[kept++] = some[n];
    }
    return kept;
  }
  [[nodiscard]] std::uint32_t magnitude(std::size_t place) const noexcept {
    return std::bit_cast<std::uint32_t>(values_[place]) & 0x7fffffffU;
  }

 private:
  static constexpr std::size_t lanes = simd_bytes / sizeof(std::int16_t);
  typedef std::int16_t vector __attribute__((vector_size(simd_bytes)));    // NOLINT(modernize-use-using): needs a typedef
  typedef std::int8_t small __attribute__((vector_size(simd_bytes / 2)));  // NOLINT(modernize-use-using)

  static constexpr int not_less = 5;  // in the instruction's own order of comparisons
  static_assert(lanes % 8 == 0 && Block % 64 == 0 && Block < 1U << 15U);
  static_assert(std::endian::native == std::endian::little);

  [[nodiscard]] vector from(std::size_t i) const noexcept {
    vector x;
    std::memcpy(&x, upper_ + i, sizeof x);
    return x;
  }
  /// Bits that `count` numbers reach, or more: the least of so many groups' largest.
  [[nodiscard]] std::uint32_t reached_by(std::size_t count) const noexcept {
    const std::size_t rows = (count + lanes - 1) / lanes, apart = rows * lanes;
    vector least = vector{} + static_cast<std::int16_t>(most_ >> 16U);
    for (std::size_t row = 0; row < apart; row += lanes) {
      vector most = {};
      for (std::size_t i = row; i < Block; i += apart) {
        const vector x = from(i);
        most = most < x ? x : most;
      }
      least = most < least ? most : least;
    }
    std::int16_t of_all = least[0];
    for (std::size_t k = 1; k < lanes; ++k) of_all = std::min<std::int16_t>(of_all, least[k]);
    return static_cast<std::uint32_t>(of_all);
  }
  /// Bit k: number i + k reaches these.
  [[nodiscard]] std::uint64_t those_of_64(std::size_t i, std::int16_t bits) const noexcept {
    std::uint64_t those = 0;
#if defined(__AVX512BW__)
    for (std::size_t k = 0; k < 64; k += lanes) {
      std::uint32_t some = __builtin_ia32_cmpw512_mask(from(i + k), vector{} + bits, not_less, ~0U);
      asm("" : "+r"(some));  // g++ 12 may write 32 bits of a mask to memory and read 64
      those |= std::uint64_t{some} << k;
    }
#else
    for (std::size_t k = 0; k < 64; k += lanes) {
      const auto bytes = __builtin_convertvector(from(i + k) >= bits, small);
      std::uint64_t eights[lanes / 8];
      std::memcpy(eights, &bytes, sizeof eights);
      for (std::size_t n = 0; n < lanes / 8; ++n)  // of the n-th byte the n-th bit; a sum in the highest byte
        those |= ((eights[n] & 0x8040201008040201U) * 0x0101010101010101U >> 56U) << (k + 8 * n);
    }
#endif
    return those;
  }
  [[nodiscard]] std::size_t at_least(std::int16_t bits) const noexcept {
#if defined(__AVX512BW__)
    std::size_t sum = 0;
    for (std::size_t i = 0; i < Block; i += 64) sum += static_cast<std::size_t>(std::popcount(those_of_64(i, bits)));
    return sum;
#else
    vector count = {};
    for (std::size_t i = 0; i < Block; i += lanes) count -= from(i) >= bits;
    std::uint64_t fours[simd_bytes / 8], sum = 0;  // no sum leaves its 16 bits
    std::memcpy(fours, &count, sizeof count);
    for (std::uint64_t const each : fours) sum += each;
    return sum * 0x0001000100010001U >> 48U;
#endif
  }

  float const* values_;
  std::uint32_t most_ = 0;
  alignas(64) std::int16_t upper_[Block];
};

/// The `Count` largest of a block of 256 or 4096 numbers: a word of 2 bytes, where they are (8 or 12 bits each), and
/// what they are, in `Bits` bits each: 8 or 4, as `block_int8` and `block_int4` have them, with a scale of eight
/// significant bits; or 2, a sign and one of two magnitudes (kept_code.hpp). The others arrive as 0:
/// (2 + Count (8 + Bits) / 8) / 256 bytes a number, (2 + Count (12 + Bits) / 8) / 4096. Of equal magnitudes the first
/// ones are kept, and no 0, so a number that is 0 stays 0.
/// As much of the energy is kept as the largest numbers hold, Count / Block of it or more (Stich et al., arXiv
/// 1809.07599): for gradients with feedback.
template <std::size_t Count, std::size_t Block = 256, int Bits = 8>
struct block_top {
  static constexpr char const* name = "block_top";
  using says = block_top;
  static constexpr bool loose = true;
  static constexpr bool biased = true;
  using layout = kept_layout<Count, Block, Bits>;
  using arithmetic = kept_code<Bits>;
  static constexpr std::size_t block_size = Block, block_bytes = layout::block_bytes, kept = Count;

  static void encode(float const* values, std::byte* bytes) noexcept {
    std::memset(bytes, 0, block_bytes);
    const largest_numbers<Block> largest(values);
    std::uint16_t places[Count];
    const bool finite = largest.most() < 0x7f800000U;
    const std::size_t found = finite ? largest.template places<Count>(places) : 0;
    std::uint32_t units[Bits == 2 ? Count : 1];
    const std::uint16_t word = arithmetic::word_of(largest.most(), [&](std::uint32_t exponent, std::uint32_t threshold) {
      std::uint64_t sum = 0;
      for (std::size_t n = 0; n < found; ++n) {
        if (threshold == 0) units[n] = kept_code<2>::units(largest.magnitude(places[n]), exponent);
        sum += units[n] >= threshold ? kept_code<2>::counted + units[n] : 0;
      }
      return sum;
    });
    block_scale::put(word, bytes);
    if (!arithmetic::any(word)) return;
    const arithmetic code(word);
    std::uint8_t codes[Count];
    for (std::size_t n = 0; n < found; ++n) codes[n] = code.code(values[places[n]]);
    std::fill(places + found, places + Count, places[found - 1]);
    std::fill(codes + found, codes + Count, codes[found - 1]);
    for (std::size_t i = layout::places_at; i < layout::codes_at; ++i)
      bytes[i] = static_cast<std::byte>(layout::place_byte(i, places));
    for (std::size_t i = layout::codes_at; i < block_bytes; ++i) bytes[i] = static_cast<std::byte>(layout::code_byte(i, codes));
  }
  static bool says_non_finite(std::byte const* bytes) noexcept { return block_scale::says_non_finite(bytes); }
  static void decode(std::byte const* bytes, float* values) noexcept {
    const std::uint16_t word = block_scale::take(bytes);
    std::fill(values, values + Block, empty(word));
    each_kept(bytes, [values](std::size_t place, float value) { values[place] = value; });
  }

  /// What is not kept, in a block with this word: 0, or not a number.
  [[nodiscard]] static constexpr float empty(std::uint16_t word) noexcept {
    return arithmetic::any(word) ? 0.0F : std::bit_cast<float>(opaque(static_cast<std::uint32_t>(word) << 16U));
  }
  /// f(place, value) for each kept number, once.
  template <class F>
  static void each_kept(std::byte const* bytes, F&& f) noexcept {
    const std::uint16_t word = block_scale::take(bytes);
    if (!arithmetic::any(word)) return;
    const arithmetic code(word);
    const auto byte_at = [bytes](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
    std::uint32_t before = Block;
    for (std::size_t n = 0; n < Count; ++n) {
      const std::uint32_t place = layout::place(n, byte_at);
      if (place == before) return;
      f(place, code.value(layout::code(n, byte_at)));
      before = place;
    }
  }
  /// Other counts may take the same bytes.
  template <class Visitor>
  static void describe(Visitor&& visit) {
    visit("kept", kept);
    visit("bits", Bits);
  }
};

static_assert(encoding<block_top<16>> && encoding<block_top<64, 4096, 2>>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
