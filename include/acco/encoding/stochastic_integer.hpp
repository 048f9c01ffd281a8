// SPDX-License-Identifier: Apache-2.0
// Block quantisation without bias: each number is rounded up or down at random, so that its mean is itself.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "acco/encoding/block_integer.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/number/digest.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A code that needs noise: `at(key)` is an encoding, whose noise is a function of the key and of the position in the block
/// alone. Who sends gives every block of every message a key of its own. It is no `encoding` itself: one noise for all messages
/// would have a bias, so rounds and exchanges that know no keys do not compile with it. `decode` is the same for all keys.
template <class Code>
concept stochastic_encoding = requires(Code const& code, std::uint64_t key) {
  { Code::block_size } -> std::convertible_to<std::size_t>;
  { Code::block_bytes } -> std::convertible_to<std::size_t>;
  { Code::name } -> std::convertible_to<char const*>;
  { code.at(key) } -> encoding;
};

/// A block is a float, the scale s, and `Block` integers of `Bits` bits, -largest to largest. x travels as s floor(x / s + u), u
/// uniform in [0, 1): the mean over u is x, the variance s^2 f (1 - f), f the fraction of x / s (QSGD, Alistarh et al., arXiv
/// 1610.02132, section 3, with the block's largest magnitude in place of its norm; TernGrad, Wen et al., arXiv 1705.07878, for
/// two bits). s is the block's largest magnitude / largest, rounded up to eight significant bits. u has 24 bits: the bias is at
/// most 2^-24 s.
template <int Bits, std::size_t Block>
struct stochastic_integer {
  static_assert(Bits == 2 || Bits == 4 || Bits == 8);
  static_assert(Block == 128 || Block == 256 || Block == 512 || Block == 1024,
                "acco: a block of integers has 128, 256, 512 or 1024 numbers");
  static constexpr std::size_t block_size = Block;
  static constexpr std::size_t block_bytes = sizeof(float) + Block * Bits / 8;
  using arithmetic = integer_code<Bits>;

  /// With the noise of one key.
  struct keyed {
    static constexpr char const* name = "stochastic_integer";
    static constexpr std::size_t block_size = stochastic_integer::block_size, block_bytes = stochastic_integer::block_bytes;
    std::uint64_t key = 0;

    void encode(float const* values, std::byte* bytes) const noexcept {
      std::int32_t most = 0;
      for (std::size_t i = 0; i < Block; ++i) {
        const std::int32_t magnitude = std::bit_cast<std::int32_t>(values[i]) & arithmetic::magnitude_mask;
        most = most < magnitude ? magnitude : most;
      }
      const std::int32_t scale_bits = arithmetic::scale_bits(most);
      std::memcpy(bytes, &scale_bits, sizeof scale_bits);
      bytes += sizeof scale_bits;
      std::memset(bytes, 0, stretch);
      if (!arithmetic::has_codes(scale_bits)) return;
      const auto scale = std::bit_cast<float>(scale_bits);
      for (std::size_t i = 0; i < Block; i += 2) {  // one draw has the noise of two numbers
        const std::uint64_t noise = mix(key + (i + 1) * digest_step);
        put(i, rounded(values[i] / scale, static_cast<std::uint32_t>(noise) >> 8U), bytes);
        put(i + 1, rounded(values[i + 1] / scale, static_cast<std::uint32_t>(noise >> 40U)), bytes);
      }
    }
    static void decode(std::byte const* bytes, float* values) noexcept {
      float scale = 0;
      std::memcpy(&scale, bytes, sizeof scale);
      bytes += sizeof scale;
      for (std::size_t i = 0; i < Block; ++i) {
        const auto shift = static_cast<unsigned>(24 + 8 - Bits - static_cast<int>(i / stretch) * Bits);
        const auto code = static_cast<std::int32_t>(static_cast<std::uint32_t>(bytes[i % stretch]) << shift) >> (32 - Bits);
        values[i] = arithmetic::value(code, scale);
      }
    }
  };
  [[nodiscard]] static constexpr keyed at(std::uint64_t key) noexcept { return {key}; }

 private:
  static constexpr std::size_t stretch = Block * Bits / 8;  // bytes of codes: byte k holds those of k, k + stretch, ...

  [[nodiscard]] static std::int32_t rounded(float quotient, std::uint32_t noise) noexcept {
    const auto toward_zero = static_cast<std::int32_t>(quotient);
    const std::int32_t below = toward_zero - (quotient < static_cast<float>(toward_zero) ? 1 : 0);
    return below + (static_cast<float>(noise) * 0x1p-24F < quotient - static_cast<float>(below) ? 1 : 0);
  }
  static void put(std::size_t i, std::int32_t code, std::byte* bytes) noexcept {
    constexpr std::uint32_t mask = (1U << static_cast<unsigned>(Bits)) - 1;
    const auto shift = static_cast<unsigned>(i / stretch) * static_cast<unsigned>(Bits);
    bytes[i % stretch] |= static_cast<std::byte>((static_cast<std::uint32_t>(code) & mask) << shift);
  }
};

/// Eight bits a number: error below 1/126 of the block's largest magnitude; 1.016 bytes a number.
template <std::size_t Block = 256>
struct stochastic_int8 : stochastic_integer<8, Block> {
  static constexpr char const* name = "stochastic_int8";
};
/// Four bits a number: error below 1/6.9 of the block's largest magnitude; 0.516 bytes a number.
template <std::size_t Block = 256>
struct stochastic_int4 : stochastic_integer<4, Block> {
  static constexpr char const* name = "stochastic_int4";
};
/// -1, 0 or 1 times the block's largest magnitude; 0.266 bytes a number. Of Gaussian numbers its noise has 1.3 times their
/// energy.
template <std::size_t Block = 256>
struct stochastic_ternary : stochastic_integer<2, Block> {
  static constexpr char const* name = "stochastic_ternary";
};
static_assert(stochastic_encoding<stochastic_int8<>> && !encoding<stochastic_int8<>> && encoding<stochastic_int8<>::keyed>);

}  // namespace ACCO_SIMD_NAMESPACE
