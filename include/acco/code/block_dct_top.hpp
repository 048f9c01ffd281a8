// SPDX-License-Identifier: Apache-2.0
// The largest coefficients of a block's cosine transform, and where they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/code/block_scale.hpp"
#include "acco/code/block_top.hpp"
#include "acco/code/dct.hpp"
#include "acco/code/encoding.hpp"
#include "acco/number/pack.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a coefficient of a sum of codes is, of which not every rank has sent it.
enum class mean_over {
  all,     ///< the sum of what was sent: who did not send it has sent 0
  senders  ///< as if all that bring samples had sent the mean of those that did (DeMo's released code)
};

/// A block's transform: of its chunks of 64 numbers, one dimension; or of the block as a tile of 64 by 64, both.
/// `Lanes` as for `dct`. Coefficient k of chunk c becomes number k chunks + c; of a tile that of frequency l along
/// a row and k along a column number 64 l + k.
template <class Lanes, std::size_t Block, bool Tile>
struct block_transform {
  static constexpr std::size_t chunk = 64, chunks = Block / chunk;
  static_assert(!Tile || chunks == chunk, "acco: a tile has 64 by 64 numbers");
  using along = dct<Lanes, chunks>;

  /// Both are changed; returns the one that has the result.
  static constexpr float* turn(float* x, float* room, Lanes const& lanes = {}) {
    along transform{lanes};
    if constexpr (Tile) transform.template turn<chunk>(x, room);
    Lanes::template transpose<chunks, chunk>(x, room);
    transform.template turn<chunk>(room, x);
    return room;
  }
  static constexpr float* turn_back(float* x, float* room) {
    along().template turn_back<chunk>(x, room);
    Lanes::template transpose<chunk, chunks>(x, room);
    if constexpr (Tile) along().template turn_back<chunk>(room, x);
    return room;
  }

  /// Coefficients are those of a share of the numbers: of any finite ones they are finite, and so is all between.
  static constexpr float share = Tile ? 1.0F / 128 : 1.0F / 16, most = 0x1.fffffep127F * share;
  /// Of a share, in the range of floats: what is left of coefficients may reach beyond the numbers that it came from. A
  /// sum over several ranks may leave that range, as a sum of numbers may: it is part / share.
  [[nodiscard]] static constexpr float whole(float part) noexcept {
    return (part > most ? most : part < -most ? -most : part) / share;
  }
  /// A sum that some ranks have sent, as if all had sent their mean. In double a quotient and a product are the same
  /// everywhere.
  [[nodiscard]] static constexpr float of_all(float sum, int senders, int ranks) noexcept {
    return senders == 0
               ? sum
               : static_cast<float>(static_cast<double>(sum) * (static_cast<double>(ranks) / static_cast<double>(senders)));
  }
};

/// What `block_dct_top` and `block_dct2_top` have in common.
template <std::size_t Count, std::size_t Block, int Bits, mean_over Over, bool Tile>
struct block_transform_top {
  static constexpr bool of_senders = Over == mean_over::senders;
  static constexpr bool no_zero = true;
  static constexpr bool loose = true;
  static constexpr bool biased = true;
  using chosen = block_top<Count, Block, Bits>;
  using on_host = dct_on_host<Block / 64>;
  using transform = block_transform<on_host, Block, Tile>;
  static constexpr std::size_t block_size = Block, block_bytes = chosen::block_bytes, kept = Count;

  static void encode(float const* values, std::byte* bytes) noexcept {
    alignas(64) float x[Block], room[Block];
    numbers::vector_of<std::int32_t>::type most = {};
    for (std::size_t i = 0; i < Block; i += lanes) {
      decltype(most) magnitude;
      std::memcpy(&magnitude, values + i, sizeof magnitude);
      magnitude &= 0x7fffffff;
      most = most < magnitude ? magnitude : most;
      (numbers::load(values + i) * numbers(transform::share)).store(x + i);
    }
    if (largest_of(most) >= 0x7f800000U) return chosen::encode(values, bytes);  // which says so
    // The next block, a few lines in every step of the transform: 16 KiB at once would have to be waited for.
    constexpr std::size_t steps = (Tile ? 2 : 1) * transform::chunk / 16 * (Block / 64) / on_host::numbers::lanes;
    const on_host fetching{reinterpret_cast<std::uintptr_t>(values) + sizeof x, Block > 1024 ? sizeof x / 64 / steps : 0};
    chosen::encode(transform::turn(x, room, fetching), bytes);
  }
  static bool says_non_finite(std::byte const* bytes) noexcept { return block_scale::says_non_finite(bytes); }
  static void decode(std::byte const* bytes, float* values) noexcept {
    decode_sum(1, [bytes](int) { return bytes; }, values);
  }
  /// The sum of the codes of several ranks, source(k), in their order: of coefficients, transformed back once.
  /// `bringing` of the ranks bring samples; 0: all.
  template <class Source>
  static void decode_sum(int sources, Source&& source, float* sums, int bringing = 0) noexcept {
    alignas(64) float x[Block] = {}, room[Block];
    int senders[of_senders ? Block : 1] = {}, some = 0;
    for (int k = 0; k < sources; ++k) {
      std::byte const* const bytes = source(k);
      const std::uint16_t word = block_scale::take(bytes);
      if (!chosen::arithmetic::any(word)) {
        if (word == 0) continue;
        return chosen::decode(bytes, sums);  // not finite
      }
      ++some;
      chosen::each_kept(bytes, [&](std::size_t place, float value) {
        x[place] += value;  // the product within is exact
        if constexpr (of_senders) senders[place] += value != 0 ? 1 : 0;
      });
    }
    if constexpr (of_senders) {
      for (std::size_t i = 0; i < Block; ++i) x[i] = transform::of_all(x[i], senders[i], bringing > 0 ? bringing : sources);
    }
    float const* const back = some == 0 ? x : transform::turn_back(x, room);
    if (some > 1) {
      for (std::size_t i = 0; i < Block; ++i) sums[i] = back[i] / transform::share;
    } else {
      const numbers least(-transform::most), share(transform::share);
      for (std::size_t i = 0; i < Block; i += lanes)  // as transform::whole
        (-maximum(-maximum(numbers::load(back + i), least), least) / share).store(sums + i);
    }
  }
  template <class Visitor>
  static void describe(Visitor&& visit) {
    chosen::describe(visit);
  }

 private:
  using numbers = pack<float>;
  static constexpr std::size_t lanes = numbers::lanes;
};

/// The orthonormal DCT-II of each chunk of 64 numbers of a block, of which the `Count` largest coefficients travel as
/// the numbers of `block_top<Count, Block, Bits>` do; the others arrive as 0 (DeMo, Peng et al., arXiv 2411.19870,
/// Algorithm 1, with one-dimensional chunks of 64). As much of the energy arrives as these hold, Count / Block of it or
/// more: more than by `block_top` where neighbours are alike, as of smooth numbers; as much, where they are
/// independent. What arrives is spread over its chunk: a number that is 0 does not stay 0. For gradients with feedback.
///
/// Codes of several ranks are added as coefficients, in the order of the ranks, and transformed back once. `Over` says
/// what becomes of a coefficient that not all have sent: nothing (`all`), or it is multiplied by all ranks that bring
/// samples over its senders (`senders`), so that the mean is theirs. What has become 0 is not sent.
template <std::size_t Count, std::size_t Block = 256, int Bits = 8, mean_over Over = mean_over::all>
struct block_dct_top : block_transform_top<Count, Block, Bits, Over, false> {
  static constexpr char const* name = Over == mean_over::all ? "block_dct_top" : "block_dct_top_of_senders";
  using says = block_dct_top;
};

/// The same of a tile of 64 by 64. As gradients of a layout with matrices these are theirs (layout/tiles.hpp). Without
/// a layout, or as parameters, a tile is 4096 numbers as they lie in the flat array, 64 a row.
template <std::size_t Count, int Bits = 8, mean_over Over = mean_over::all>
struct block_dct2_top : block_transform_top<Count, 4096, Bits, Over, true> {
  static constexpr char const* name = Over == mean_over::all ? "block_dct2_top" : "block_dct2_top_of_senders";
  using says = block_dct2_top;
  static constexpr bool of_tiles = true;
};
static_assert(encoding<block_dct_top<16>> && sums_codes<block_dct2_top<64, 2>>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
