// SPDX-License-Identifier: Apache-2.0
// The largest coefficients of a block's cosine transform, and where they are.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "acco/encoding/block_scale.hpp"
#include "acco/encoding/block_top.hpp"
#include "acco/encoding/dct.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/number/pack.hpp"
#include "acco/opaque.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a coefficient of a sum of codes is, of which not every rank has sent it.
enum class mean_over {
  all,     ///< the sum of what was sent: who did not send it has sent 0
  senders  ///< as if all had sent the mean of those that did, by their samples (DeMo's released code, without the samples)
};

/// The arithmetic of one number, the same on host and device.
struct dct_code {
  static constexpr std::uint32_t infinite = 0x7f800000U;
  /// Coefficients are those of 32nds of the numbers: of any finite ones they are finite, and so is all between.
  static constexpr float share = 1.0F / 32;
  static constexpr float most = 0x1.fffffep127F / 32;
  /// Of a 32nd, in the range of floats: what is left of coefficients may reach beyond the numbers that it came from.
  [[nodiscard]] static constexpr float whole(float part) noexcept {
    return (part > most ? most : part < -most ? -most : part) * 32;
  }
  /// The same of a sum over so many ranks: of several it may leave that range, as a sum of numbers may.
  [[nodiscard]] static constexpr float whole_sum(float part, int ranks) noexcept { return ranks > 1 ? part * 32 : whole(part); }
  /// A sum that some have sent, who weigh `sent` of `all`, as if all had sent their mean. In double a quotient and a product are
  /// the same everywhere.
  [[nodiscard]] static constexpr float of_all(float sum, float sent, float all) noexcept {
    return sent > 0 ? static_cast<float>(static_cast<double>(sum) * (static_cast<double>(all) / static_cast<double>(sent))) : sum;
  }
};

/// The orthonormal DCT-II of a block of 256 numbers, of which the `Count` largest coefficients travel as the numbers of
/// `block_top<Count>` do, divided by 32; the others arrive as 0: (2 + 2 Count) / 256 bytes a number (DeMo, Peng et al., arXiv
/// 2411.19870, Algorithm 1, with one-dimensional chunks). As much of the energy arrives as these hold, Count / 256 of it or more:
/// more than by `block_top` where neighbours are alike, as of smooth numbers; as much, where they are independent. What arrives
/// is spread over the block: a number that is 0 does not stay 0. For gradients with feedback.
///
/// Codes of several ranks are added as coefficients, in the order of the ranks, and transformed back once. `Over` says what
/// becomes of a coefficient that not all have sent: nothing (`all`), or it is multiplied by all ranks' samples over those of its
/// senders (`senders`), so that the mean is theirs. A code of 0 is not sent, whatever its place says.
template <std::size_t Count, mean_over Over = mean_over::all>
struct block_dct_top {
  static constexpr char const* name = Over == mean_over::all ? "block_dct_top" : "block_dct_top_of_senders";
  static constexpr bool no_zero = true;
  static constexpr bool weighs_sources = Over == mean_over::senders;
  static constexpr bool loose = true;
  static constexpr bool biased = true;
  static constexpr std::size_t block_size = dct<dct_on_host>::size, kept = Count;
  static constexpr std::size_t block_bytes = block_top<Count>::block_bytes;
  using arithmetic = dct_code;

  static void encode(float const* values, std::byte* bytes) noexcept {
    alignas(64) float coefficients[block_size], room[block_size];
    if (largest_magnitude<block_size>(values) >= arithmetic::infinite)
      return block_top<Count>::encode(values, bytes);  // which says so
    for (std::size_t i = 0; i < block_size; i += lanes)
      (numbers::load(values + i) * numbers(arithmetic::share)).store(coefficients + i);
    dct<dct_on_host>::turn(coefficients, room);
    block_top<Count>::encode(coefficients, bytes);
  }
  static void decode(std::byte const* bytes, float* values) noexcept {
    block_top<Count>::decode(bytes, values);
    if (!block_top<Count>::arithmetic::has_codes(block_scale::take(bytes) << 16)) return;
    alignas(64) float coefficients[block_size], room[block_size];
    for (std::size_t i = 0; i < block_size; i += lanes) numbers::load(values + i).store(coefficients + i);
    dct<dct_on_host>::turn_back(coefficients, room);
    for (std::size_t i = 0; i < block_size; ++i) values[i] = arithmetic::whole(coefficients[i]);
  }
  template <class Source>
  static void decode_sum(int sources, Source&& source, double const* weights, float* sums) noexcept {
    using of_codes = typename block_top<Count>::arithmetic;
    alignas(64) float coefficients[block_size] = {}, room[block_size], sent[weighs_sources ? block_size : 1] = {};
    float all = 0;
    int senders = 0;
    for (int k = 0; k < sources; ++k) {
      std::byte const* bytes = source(k);
      const float weight = weights == nullptr ? 1.0F : static_cast<float>(weights[k]);
      all += weight;
      const std::int32_t scale_bits = block_scale::take(bytes) << 16;
      if (!of_codes::has_codes(scale_bits)) {
        if (scale_bits == 0) continue;
        return block_top<Count>::decode(bytes, sums);  // not finite
      }
      ++senders;
      bytes += block_scale::bytes;
      const auto scale = std::bit_cast<float>(opaque(scale_bits));
      for (std::size_t n = 0; n < Count; ++n) {
        const auto code = static_cast<std::int8_t>(bytes[Count + n]);
        const std::size_t at = static_cast<std::uint8_t>(bytes[n]);
        coefficients[at] += of_codes::value(code, scale);  // an exact product
        if constexpr (weighs_sources) sent[at] += code != 0 ? weight : 0.0F;
      }
    }
    if constexpr (weighs_sources) {
      for (std::size_t i = 0; i < block_size; ++i) coefficients[i] = arithmetic::of_all(coefficients[i], sent[i], all);
    }
    if (senders != 0) dct<dct_on_host>::turn_back(coefficients, room);
    for (std::size_t i = 0; i < block_size; ++i) sums[i] = arithmetic::whole_sum(coefficients[i], senders);
  }

 private:
  using numbers = pack<float>;
  static constexpr std::size_t lanes = numbers::lanes;
};
static_assert(encoding<block_dct_top<16>> && sums_codes<block_dct_top<16>>);

}  // namespace ACCO_SIMD_NAMESPACE
