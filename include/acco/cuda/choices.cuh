// SPDX-License-Identifier: Apache-2.0
// The codes that choose on a device, block_top, block_random and block_dct_top: 256 numbers a warp, 4096 a thread block
// (team.cuh). What they add up is whole numbers, or in the host's order, so both give the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "acco/code/block_dct_top.hpp"
#include "acco/code/block_random.hpp"
#include "acco/code/block_top.hpp"
#include "acco/cuda/access.cuh"
#include "acco/cuda/coding.cuh"
#include "acco/cuda/team.cuh"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

template <std::size_t Count, std::size_t Block, int Bits>
struct device_encoding<block_top<Count, Block, Bits>> : block_team<Block> {
  using team = block_team<Block>;
  using typename team::values;
  using layout = kept_layout<Count, Block, Bits>;
  using arithmetic = kept_code<Bits>;
  static constexpr int resident = Block == 256 ? 4 : 2;
  static constexpr std::size_t held = 4 * values::stretches;

  static __device__ void encode(std::byte* to, unsigned thread, values const& x) {
    const std::uint32_t most = team::largest_magnitude(x);
    if (most >= 0x7f800000U || most < static_cast<std::uint32_t>(integer_code<8>::negligible)) {  // alike in all threads
      team::put_word(to, thread, most >= 0x7f800000U ? block_scale::not_a_number : std::uint16_t{0});
      return team::put_bytes(to, thread, layout::places_at, layout::block_bytes, [](std::size_t) { return 0; });
    }
    __shared__ struct {
      typename team::selection some;
      std::uint16_t places[Count];
      std::uint8_t codes[Count];
    } of_teams[team::in_one];
    auto& room = of_teams[team::number()];
    const unsigned mine = kept(x, thread, room.some);
    room.some.make(thread, mine);
    const unsigned found = room.some.all;
    const std::uint16_t word = arithmetic::word_of(most, [&](std::uint32_t exponent, std::uint32_t threshold) {
      std::uint64_t sum = 0;
#pragma unroll
      for (std::size_t k = 0; k < held; ++k) {
        const std::uint32_t units = kept_code<2>::units(team::magnitude(x.value[k]), exponent);
        if ((mine >> k & 1U) != 0 && units >= threshold) sum += kept_code<2>::counted + units;
      }
      return team::sum(sum);
    });
    const arithmetic code(word);
#pragma unroll
    for (std::size_t k = 0; k < held; ++k) {
      if ((mine >> k & 1U) == 0) continue;
      const std::size_t i = values::index(k, thread);
      const unsigned at = room.some.rank(i);
      room.places[at] = static_cast<std::uint16_t>(i);
      room.codes[at] = code.code(x.value[k]);
    }
    team::meet();
    for (std::size_t n = found + thread; n < Count; n += team::threads) {
      room.places[n] = room.places[found - 1];
      room.codes[n] = room.codes[found - 1];
    }
    team::meet();
    team::put_word(to, thread, word);
    team::put_bytes(to, thread, layout::places_at, layout::codes_at,
                    [&room](std::size_t i) { return layout::place_byte(i, room.places); });
    team::put_bytes(to, thread, layout::codes_at, layout::block_bytes,
                    [&room](std::size_t i) { return layout::code_byte(i, room.codes); });
    team::meet();
  }
  static __device__ void decode(std::byte const* from, unsigned thread, values& x) {
    __shared__ float of_teams[team::in_one][Block];
    decode(from, thread, x, of_teams[team::number()]);
  }
  /// With room for the block in shared memory.
  static __device__ void decode(std::byte const* from, unsigned thread, values& x, float* room) {
    const std::uint16_t word = team::take_word(from);
    if (!arithmetic::any(word)) return team::fill(block_top<Count, Block, Bits>::empty(word), x);
    team::fill(0, x);
    team::put(x, thread, room);
    const arithmetic code(word);
    const auto byte_at = [from](std::size_t i) { return load<1>(reinterpret_cast<std::uint8_t const*>(from) + i).value[0]; };
    for (std::size_t n = thread; n < Count; n += team::threads)  // one that repeats says the same
      room[layout::place(n, byte_at)] = code.value(layout::code(n, byte_at));
    team::take(room, thread, x);
  }

 private:
  /// Bit k: the k-th is kept.
  static __device__ unsigned kept(values const& x, unsigned thread, typename team::selection& ties) {
    const std::uint32_t last =
        bits_of_largest(Count, 0, 0x7fffffffU, [&x](std::uint32_t bits) { return team::count_at_least(x, bits); });
    unsigned above = 0, same = 0;
#pragma unroll
    for (std::size_t k = 0; k < held; ++k) {
      const std::uint32_t bits = team::magnitude(x.value[k]);
      above |= (bits > last ? 1U : 0U) << k;
      same |= (bits == last && bits != 0 ? 1U : 0U) << k;
    }
    const unsigned equal = static_cast<unsigned>(Count) - team::sum(static_cast<unsigned>(__popc(above)));
    ties.make(thread, same);
    if (ties.all <= equal) return above | same;
#pragma unroll
    for (std::size_t k = 0; k < held; ++k) {
      if ((same >> k & 1U) != 0 && ties.rank(values::index(k, thread)) < equal) above |= 1U << k;
    }
    return above;
  }
};

template <std::size_t Count, std::size_t Block>
struct device_encoding<block_random<Count, Block>> : block_team<Block> {
  using team = block_team<Block>;
  using typename team::values;
  using code = block_random<Count, Block>;
  using choice = typename code::choice;
  using seed_type = typename code::seed_type;
  using arithmetic = integer_code<8>;
  static constexpr int resident = Block == 256 ? 4 : 2;
  static constexpr std::size_t held = 4 * values::stretches;

  static __device__ void encode(std::byte* to, unsigned thread, values const& x) {
    const std::uint32_t most = team::largest_magnitude(x);
    if (most >= 0x7f800000U) return put_none(to, thread, block_scale::not_a_number);
    if (most < code::negligible) return put_none(to, thread, 0);
    std::uint32_t terms = 0;
#pragma unroll
    for (std::size_t k = 0; k < held; ++k)
      terms += choice::term(std::bit_cast<std::uint32_t>(x.value[k]),
                            choice::factor(static_cast<std::uint32_t>(values::index(k, thread))));
    seed_type seed = choice::seed_of(team::sum(terms));
    float* const numbers = room();
    team::put(x, thread, numbers);
    std::uint32_t chosen = largest_chosen(numbers, thread, choice(seed));
    if (chosen < code::negligible) {
      std::uint32_t behind = 0;  // the block's end, from the first of the largest on
#pragma unroll
      for (std::size_t k = 0; k < held; ++k) {
        const auto rest = static_cast<std::uint32_t>(Block - values::index(k, thread));
        if (team::magnitude(x.value[k]) == most && behind < rest) behind = rest;
      }
      seed = choice::turned_to(static_cast<std::uint32_t>(Block) - team::maximum(behind), seed);
      chosen = most;
    }
    const float scale = put_head(to, thread, chosen, seed);
    const choice places(seed);
    put_codes(to, thread, [&](std::uint32_t n) { return arithmetic::code(numbers[places[n]], scale); });
  }
  static __device__ void decode(std::byte const* from, unsigned thread, values& x) {
    const std::int32_t scale_bits = static_cast<std::int32_t>(team::take_word(from)) << 16;
    const auto scale = std::bit_cast<float>(scale_bits);
    if (!arithmetic::has_codes(scale_bits)) return team::fill(scale, x);
    std::uint32_t seed = 0;
#pragma unroll
    for (std::size_t k = 0; k < sizeof(seed_type); k += 2)
      seed |= static_cast<std::uint32_t>(team::take_word(from + block_scale::bytes + k)) << (8 * k);
    const choice places(static_cast<seed_type>(seed));
    float* const numbers = room();
    team::fill(0, x);
    team::put(x, thread, numbers);
    for (std::uint32_t n = thread; n < Count; n += team::threads) {
      const std::uint8_t byte = load<1>(reinterpret_cast<std::uint8_t const*>(from) + code::codes_at + n).value[0];
      numbers[places[n]] = arithmetic::value(static_cast<std::int8_t>(byte), scale);
    }
    team::take(numbers, thread, x);
  }

 protected:
  static __device__ float* room() {
    __shared__ float of_teams[team::in_one][Block];
    return of_teams[team::number()];
  }
  static __device__ std::uint32_t largest_chosen(float const* numbers, unsigned thread, choice const& places) {
    std::uint32_t most = 0;
    for (std::uint32_t n = thread; n < Count; n += team::threads) {
      const std::uint32_t bits = team::magnitude(numbers[places[n]]);
      most = most < bits ? bits : most;
    }
    return team::maximum(most);
  }
  static __device__ void put_none(std::byte* to, unsigned thread, std::uint16_t word) {
    team::put_word(to, thread, word);
    team::put_bytes(to, thread, block_scale::bytes, code::block_bytes, [](std::size_t) { return 0; });
  }
  static __device__ float put_head(std::byte* to, unsigned thread, std::uint32_t largest, seed_type seed) {
    const std::int32_t scale_bits = arithmetic::scale_bits(static_cast<std::int32_t>(largest));
    team::put_word(to, thread, static_cast<std::uint16_t>(scale_bits >> 16));
#pragma unroll
    for (std::size_t k = 0; k < sizeof(seed_type); k += 2)
      team::put_word(to + block_scale::bytes + k, thread,
                     static_cast<std::uint16_t>(static_cast<std::uint32_t>(seed) >> (8 * k)));
    return std::bit_cast<float>(scale_bits);
  }
  template <class Code>
  static __device__ void put_codes(std::byte* to, unsigned thread, Code&& of) {
    team::put_bytes(to, thread, code::codes_at, code::block_bytes, [&of](std::size_t i) {
      const auto n = static_cast<std::uint32_t>(i - code::codes_at);
      return n < Count ? of(n) : 0;
    });
    team::meet();
  }
};

template <std::size_t Count, std::size_t Block>
struct device_encoding<scaled_random<Count, Block>> : device_encoding<block_random<Count, Block>> {
  using base = device_encoding<block_random<Count, Block>>;
  using typename base::arithmetic;
  using typename base::choice;
  using typename base::team;
  using typename base::values;
  using code = scaled_random<Count, Block>;
  using base::encode;

  static __device__ void encode(std::byte* to, unsigned thread, values const& x, std::uint32_t random) {
    if (team::largest_magnitude(x) >= 0x7f800000U) return base::put_none(to, thread, block_scale::not_a_number);
    const auto seed = choice::seed_of(random);
    const choice places(seed);
    float* const numbers = base::room();
    team::put(x, thread, numbers);
    const std::uint32_t largest = base::largest_chosen(numbers, thread, places);
    const std::uint32_t chosen = team::magnitude(code::scaled(std::bit_cast<float>(largest)));
    if (chosen < code::negligible) return base::put_none(to, thread, 0);
    const float scale = base::put_head(to, thread, chosen, seed);
    base::put_codes(to, thread, [&](std::uint32_t n) {
      const auto share = static_cast<std::int32_t>(arithmetic::bits_of_number(random, n) >> 12U);
      return arithmetic::code_at_random(code::scaled(numbers[places[n]]) / scale, share);
    });
  }
};

/// What the transform multiplies by, in the memory of the device; nvcc wants it apart in every file.
static __device__ const dct_constants<16> dct_constants_there;

/// A team that computes a transform, of numbers in shared memory.
template <class Team>
struct dct_in_team {
  static __device__ unsigned thread() { return static_cast<unsigned>(threadIdx.x % Team::threads); }
  template <std::size_t rows, std::size_t columns, class F>
  static __device__ void each(F&& f) {
    for (std::size_t i = thread(); i < rows * columns; i += Team::threads) f(i / columns, i % columns);
    Team::meet();
  }
  static __device__ double of(double x) { return x; }
  static __device__ double load(float const* from) { return static_cast<double>(*from); }
  static __device__ void store(double x, float* to) { *to = static_cast<float>(x); }
  static __device__ void copy(float const* from, float* to) { *to = *from; }
  template <std::size_t columns, std::size_t leaf, dct_matrix<leaf> which>
  static __device__ void sums(float* x) {
    auto const& matrix = constants<leaf>().*which;
    constexpr std::size_t mine = leaf * columns / Team::threads;
    static_assert(mine * Team::threads == leaf * columns);
    double total[mine] = {};
#pragma unroll
    for (std::size_t j = 0; j < mine; ++j) {
      const std::size_t i = thread() + j * Team::threads, k = i / columns, c = i % columns;
#pragma unroll 4
      for (std::size_t n = 0; n < leaf; ++n) total[j] += load(x + n * columns + c) * matrix[n][k];
    }
    Team::meet();
#pragma unroll
    for (std::size_t j = 0; j < mine; ++j) store(total[j], x + thread() + j * Team::threads);
    Team::meet();
  }
  /// By an address of which the compiler knows nothing: it would load all constants before a thread's first block, and
  /// keep them.
  template <std::size_t leaf>
  static __device__ dct_constants<leaf> const& constants() {
    dct_constants<leaf> const* there = &dct_constants_there;
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(there));
#endif
    return *there;
  }
  template <std::size_t rows, std::size_t columns>
  static __device__ void transpose(float const* from, float* to) {
    each<rows, columns>([from, to](std::size_t r, std::size_t c) { to[c * rows + r] = from[r * columns + c]; });
  }
};

template <std::size_t Count, std::size_t Block, int Bits, mean_over Over, bool Tile>
struct device_block_transform_top : block_team<Block> {
  using team = block_team<Block>;
  using typename team::values;
  using chosen = device_encoding<block_top<Count, Block, Bits>>;
  using transform = block_transform<dct_in_team<team>, Block, Tile>;
  static constexpr int resident = chosen::resident;
  static constexpr std::size_t held = 4 * values::stretches;

  static __device__ void encode(std::byte* to, unsigned thread, values const& given) {
    values x = given;
    if (team::largest_magnitude(given) < 0x7f800000U) {  // alike in all threads
#pragma unroll
      for (float& each : x.value) each *= transform::share;
      float* const numbers = room();
      team::put(x, thread, numbers);
      team::take(transform::turn(numbers, numbers + Block), thread, x);
    }
    chosen::encode(to, thread, x);
  }
  static __device__ void decode(std::byte const* from, unsigned thread, values& x) { decode_sum(from, 0, 1, thread, x); }
  static __device__ void decode_sum(std::byte const* from, std::size_t stride, int sources, unsigned thread, values& sums,
                                    int bringing = 0) {
    constexpr bool of_senders = Over == mean_over::senders;
    team::fill(0, sums);
    int senders[of_senders ? held : 1] = {}, some = 0;
    for (int source = 0; source < sources; ++source, from += stride) {
      const std::uint16_t word = team::take_word(from);
      if (!kept_code<Bits>::any(word)) {  // alike in all threads
        if (word == 0) continue;
        return team::fill(block_top<Count, Block, Bits>::empty(word), sums);  // not finite
      }
      ++some;
      values x;
      chosen::decode(from, thread, x, room());
#pragma unroll
      for (std::size_t k = 0; k < held; ++k) {
        sums.value[k] += x.value[k];
        if constexpr (of_senders) senders[k] += x.value[k] != 0 ? 1 : 0;
      }
    }
    if (some == 0) return;
    if constexpr (of_senders) {
      const int ranks = bringing > 0 ? bringing : sources;
#pragma unroll
      for (std::size_t k = 0; k < held; ++k) sums.value[k] = transform::of_all(sums.value[k], senders[k], ranks);
    }
    float* const numbers = room();
    team::put(sums, thread, numbers);
    team::take(transform::turn_back(numbers, numbers + Block), thread, sums);
#pragma unroll
    for (float& each : sums.value) each = some > 1 ? each / transform::share : transform::whole(each);
  }

 private:
  static __device__ float* room() {
    __shared__ float of_teams[team::in_one][2 * Block];
    return of_teams[team::number()];
  }
};
template <std::size_t Count, std::size_t Block, int Bits, mean_over Over>
struct device_encoding<block_dct_top<Count, Block, Bits, Over>> : device_block_transform_top<Count, Block, Bits, Over, false> {};
template <std::size_t Count, int Bits, mean_over Over>
struct device_encoding<block_dct2_top<Count, Bits, Over>> : device_block_transform_top<Count, 4096, Bits, Over, true> {};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
