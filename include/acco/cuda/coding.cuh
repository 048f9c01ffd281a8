// SPDX-License-Identifier: Apache-2.0
// The kernels of encodings: a warp for a block of numbers, which lie in its registers. What one number becomes is what
// the host makes of it (code/), so both give the same bits. Those of levels: levels.cuh; of turned blocks: rotated.cuh;
// those that choose: choices.cuh.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda/functional>
#include <cuda_runtime.h>

#include "acco/bfloat16.hpp"
#include "acco/code/bfloat16_wire.hpp"
#include "acco/code/block_integer.hpp"
#include "acco/cuda/block_sources.cuh"
#include "acco/cuda/kernels.cuh"
#include "acco/cuda/launch.cuh"
#include "acco/cuda/tile.cuh"
#include "acco/layout/trainable_runs.hpp"
#include "acco/storage/coding.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// How an encoding works on a device: `encode(to, lane, values)` and `decode(from, lane, values)`, which the lanes of a
/// warp call together, of blocks of more than 1024 numbers the threads of a thread block, with what each of them holds;
/// zeros behind the block's end. Of an encoding that adds codes (`sums_codes`) `decode_sum(from, stride, sources, lane,
/// values)`, too, where source k begins k strides behind `from`; of one that `means_senders` with one more number, of
/// the ranks that bring samples. Blocks lie one after the other from a multiple of 256 bytes on: `to` and `from` are as
/// aligned as `block_bytes` allows. Specialise it to bring an encoding of your own.
template <class Encoding>
struct device_encoding {
  static_assert(!std::is_same_v<Encoding, Encoding>,
                "acco: this encoding has no version for devices: specialise acco::cuda_kernels::device_encoding for it");
};

template <int Bits, std::size_t Block>
struct device_block_integer {
  using arithmetic = integer_code<Bits>;
  using values = values_of_block<Block>;
  static constexpr std::size_t stretches = values::stretches;

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    encode_with(to, lane, x, [&](divider const& by, std::size_t s) { return by.codes(x.value + 4 * s); });
  }
  static __device__ void encode(std::byte* to, unsigned lane, values const& x, std::uint32_t random) {
    encode_with(to, lane, x, [&](divider const& by, std::size_t s) {
      return by.codes_at_random(x.value + 4 * s, random, static_cast<std::uint32_t>(values::index(4 * s, lane)));
    });
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    const auto scale = std::bit_cast<float>(take(from, 0));
    if constexpr (Bits == 8) {
#pragma unroll
      for (std::size_t s = 0; s < stretches; ++s) numbers(take(from, 1 + lane + warp_lanes * s), 24, scale, x.value + 4 * s);
    } else if constexpr (stretches == 1) {
      numbers(take(from, 1 + lane % 16), lane < 16 ? 28 : 24, scale, x.value);
    } else {
#pragma unroll
      for (std::size_t s = 0; s < stretches / 2; ++s) {
        const std::uint32_t codes = take(from, 1 + lane + warp_lanes * s);
        numbers(codes, 28, scale, x.value + 4 * s);
        numbers(codes, 24, scale, x.value + 4 * (s + stretches / 2));
      }
    }
  }

 private:
  /// Codes of numbers with one scale: as integer_code::code, whose quotient it computes without dividing. With the
  /// reciprocal, once corrected, that is exact where it matters: above a quarter of the scale, for a scale of eight
  /// significant bits (tests/code/block_integer.cpp tries all); at random from 2^-20 of the scale on, for scales of
  /// 2^-105 and more.
  struct divider {
    float scale, inverse;
    bool any;
    explicit __device__ divider(std::int32_t scale_bits)
        : scale(std::bit_cast<float>(scale_bits)), inverse(1.0F / scale), any(scale_bits != 0) {}
    [[nodiscard]] __device__ std::uint32_t codes(float const* x) const {
      return word([&](unsigned k) { return arithmetic::code_of_quotient(arithmetic::quotient(x[k], scale, inverse)); });
    }
    [[nodiscard]] __device__ std::uint32_t codes_at_random(float const* x, std::uint32_t random, std::uint32_t first) const {
      return word([&](unsigned k) {
        return arithmetic::code_at_random(any ? arithmetic::quotient(x[k], scale, inverse) : 0.0F,
                                          static_cast<std::int32_t>(arithmetic::bits_of_number(random, first + k) >> 12U));
      });
    }
    template <class Code>
    [[nodiscard]] __device__ std::uint32_t word(Code&& code) const {
      std::uint32_t codes = 0;
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) codes |= (static_cast<std::uint32_t>(code(k)) & (Bits == 4 ? 15U : 255U)) << (8 * k);
      return any ? codes : 0;
    }
  };
  /// codes(by, s): four of them, of stretch s.
  template <class Codes>
  static __device__ void encode_with(std::byte* to, unsigned lane, values const& x, Codes&& codes) {
    std::int32_t most = 0;
    for (float const each : x.value) {
      const std::int32_t bits = std::bit_cast<std::int32_t>(each) & arithmetic::magnitude_mask;
      most = most < bits ? bits : most;
    }
    const std::int32_t scale_bits = arithmetic::scale_bits(warp_maximum(most));
    if (lane == 0) put(to, 0, static_cast<std::uint32_t>(scale_bits));
    const divider by(arithmetic::has_codes(scale_bits) ? scale_bits : 0);
    if constexpr (Bits == 8) {
#pragma unroll
      for (std::size_t s = 0; s < stretches; ++s) put(to, 1 + lane + warp_lanes * s, codes(by, s));
    } else if constexpr (stretches == 1) {  // the second half of the block lies in the other lanes
      const std::uint32_t low = codes(by, 0), high = __shfl_down_sync(whole_warp, low, 16);
      if (lane < 16) put(to, 1 + lane, low | high << 4U);
    } else {
#pragma unroll
      for (std::size_t s = 0; s < stretches / 2; ++s)
        put(to, 1 + lane + warp_lanes * s, codes(by, s) | codes(by, s + stretches / 2) << 4U);
    }
  }
  /// Of the codes that end `up` bits, minus eight a number, below a word's highest.
  static __device__ void numbers(std::uint32_t codes, unsigned up, float scale, float* x) {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const std::int32_t code = static_cast<std::int32_t>(codes << (up - 8 * k)) >> (32 - Bits);
      x[k] = arithmetic::value(code, scale);
    }
  }
  static __device__ void put(std::byte* to, std::size_t at, std::uint32_t word) {
    store<1>(reinterpret_cast<std::uint32_t*>(to) + at, {word});
  }
  static __device__ std::uint32_t take(std::byte const* from, std::size_t at) {
    return load<1>(reinterpret_cast<std::uint32_t const*>(from) + at).value[0];
  }
};
template <std::size_t Block>
struct device_encoding<block_int8<Block>> : device_block_integer<8, Block> {};
template <std::size_t Block>
struct device_encoding<block_int4<Block>> : device_block_integer<4, Block> {};
template <class Encoding>
struct device_encoding<in_places<Encoding>> : device_encoding<Encoding> {};
template <class Encoding>
struct device_encoding<nearest<Encoding>> : device_encoding<Encoding> {};
template <class Encoding>
struct device_encoding<without_feedback<Encoding>> : device_encoding<Encoding> {};
template <class Encoding>
struct device_encoding<loosely<Encoding>> : device_encoding<Encoding> {};

template <>
struct device_encoding<bfloat16_wire> {
  using values = block_values<bfloat16_wire>;
  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    of_pair<bfloat16> narrow;
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) narrow.value[k] = bfloat16(x.value[k]);
    auto* const numbers = reinterpret_cast<bfloat16*>(to);
    store_pair(numbers, numbers + stretch_size, lane, narrow);
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    auto const* const numbers = reinterpret_cast<bfloat16 const*>(from);
    const auto narrow = load_pair(numbers, numbers + stretch_size, lane);
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) x.value[k] = static_cast<float>(narrow.value[k]);
  }
};

/// Thread blocks that a multiprocessor has room for: four where a lane holds eight numbers, so 64 registers; one where
/// it holds more, or what its `device_encoding` says.
template <class Encoding>
consteval int resident_of() noexcept {
  if constexpr (requires { device_encoding<Encoding>::resident; }) return device_encoding<Encoding>::resident;
  return block_values<Encoding>::stretches <= 2 ? 4 : 1;
}
template <class Encoding>
inline constexpr int resident_blocks = resident_of<Encoding>();

/// Calls work(block, lane) for the lanes of a warp a block, or for the threads of a thread block.
template <class Work>
__global__ void __launch_bounds__(block_threads, Work::resident) for_blocks(std::size_t blocks, Work work) {
  if constexpr (Work::threads > warp_lanes) {
    for (std::size_t k = blockIdx.x; k < blocks; k += gridDim.x) work(k, threadIdx.x);
  } else {
    const std::size_t warps = static_cast<std::size_t>(gridDim.x) * block_warps;
    const unsigned lane = threadIdx.x % warp_lanes;
    for (std::size_t k = static_cast<std::size_t>(blockIdx.x) * block_warps + threadIdx.x / warp_lanes; k < blocks; k += warps)
      work(k, lane);
  }
}
template <class Work>
void launch_blocks(on where, std::size_t blocks, Work const& work) {
  if (blocks == 0) return;
  const std::size_t in_one = block_threads / Work::threads;
  launch<&for_blocks<Work>>(where, where.blocks((blocks + in_one - 1) / in_one), block_threads, blocks, work);
}

/// Encodes the blocks of slices, which source(where, lane) gives; the first slice has the number `index`.
/// `random`: rounds at random by `seed`.
template <class Encoding, class Source, bool random = false>
struct encode_body {
  static constexpr int resident = resident_blocks<Encoding>;
  static constexpr std::size_t threads = block_values<Encoding>::threads;
  Source source;
  std::size_t index;
  blocks_at<Encoding> where;
  std::byte* to;
  coding::refused bad;
  std::uint64_t seed = 0;

  __device__ void operator()(std::size_t block, unsigned lane) const {
    const block_at here = where(block);
    const block_values<Encoding> x = source(here, lane);
    not_finite mine;
#pragma unroll
    for (std::size_t k = 0; k < 4 * x.stretches; ++k) {
      const std::size_t i = x.index(k, lane);
      mine.look(x.value[k], index + here.first + (here.place != nullptr ? here.place->at(i) : i));
    }
    mine.note(bad.found, bad.first);
    std::byte* const code = to + block * Encoding::block_bytes;
    if constexpr (random) {
      device_encoding<Encoding>::encode(code, lane, x, random_bits(seed, index + where.number_of(block)));
    } else {
      device_encoding<Encoding>::encode(code, lane, x);
    }
  }
};
template <class Encoding, class T>
struct values_to_encode {
  array_source<T> from;
  __device__ block_values<Encoding> operator()(block_at const& at, unsigned lane) const {
    block_values<Encoding> x{};
    from.template take<Encoding>(at, lane, [&x](std::size_t k, T number) { x.value[k] = static_cast<float>(number); });
    return x;
  }
};
/// values[i] - reference[index + i].
template <class Encoding, class T>
struct difference_to_encode {
  array_source<T> values;
  view_source<T> reference;
  std::size_t index;
  __device__ block_values<Encoding> operator()(block_at const& at, unsigned lane) const {
    using total = elementwise::wider<T, T>;
    total difference[4 * block_values<Encoding>::stretches] = {};
    values.template take<Encoding>(at, lane, [&](std::size_t k, T number) { difference[k] = static_cast<total>(number); });
    reference.template take<Encoding>({index + at.first, at.left}, lane,
                                      [&](std::size_t k, T number) { difference[k] -= static_cast<total>(number); });
    block_values<Encoding> x{};
#pragma unroll
    for (std::size_t k = 0; k < 4 * x.stretches; ++k) x.value[k] = static_cast<float>(difference[k]);
    return x;
  }
};

/// The same of a placed block.
template <class Encoding, bool reads, class T, class Combine>
__device__ void write_placed(T* to, block_place const place, unsigned lane, Combine&& combine) {
  for_fours<Encoding>(lane, place, [&](std::size_t s, std::size_t i, std::size_t where) {
    T* const here = to + where;
    if (at_once(place, i, here)) {
      constexpr std::size_t four = sizeof(T) <= 4 ? 4 : 1;
      lanes<T, four> x{};
      if constexpr (reads) x = load<four>(static_cast<T const*>(here));
#pragma unroll
      for (std::size_t k = 0; k < four; ++k) x.value[k] = combine(4 * s + k, x.value[k]);
      store<four>(here, x);
      return;
    }
#pragma unroll
    for (std::size_t k = 0; k < 4; ++k) {
      if (!place.has(i + k)) continue;
      T before{};
      if constexpr (reads) before = load<1>(static_cast<T const*>(here) + k).value[0];
      store<1>(here + k, {combine(4 * s + k, before)});
    }
  });
}
/// Writes what a lane holds of a block of the array `to`: combine(k, what is there or nothing) gives the k-th.
template <class Encoding, bool reads, class T, class Combine>
__device__ void write_block(T* to, block_at const& at, unsigned lane, Combine&& combine) {
  using values = block_values<Encoding>;
  to += at.first;
  if constexpr (placed_code<Encoding>) {
    if (at.place != nullptr) return write_placed<Encoding, reads>(to, *at.place, lane, combine);
  }
  const std::size_t left = at.left;
  const bool full = left >= Encoding::block_size;
  if constexpr (values::stretches % 2 == 0) {
    if (full && tile::straight(to)) {
#pragma unroll
      for (std::size_t p = 0; p < values::stretches / 2; ++p) {
        T* const pair = to + values::tile(p, lane);
        of_pair<T> x{};
        if constexpr (reads)
          x = load_pair(static_cast<T const*>(pair), static_cast<T const*>(pair) + stretch_size, lane % warp_lanes);
#pragma unroll
        for (std::size_t k = 0; k < 8; ++k) x.value[k] = combine(8 * p + k, x.value[k]);
        store_pair(pair, pair + stretch_size, lane % warp_lanes, x);
      }
      return;
    }
  } else if constexpr (one_stretch<Encoding, T>) {
    if (full && reinterpret_cast<std::uintptr_t>(to) % (4 * sizeof(T)) == 0) {
      lanes<T, 4> x{};
      if constexpr (reads) x = load<4>(static_cast<T const*>(to) + 4 * lane);
#pragma unroll
      for (std::size_t k = 0; k < 4; ++k) x.value[k] = combine(k, x.value[k]);
      store<4>(to + 4 * lane, x);
      return;
    }
  }
#pragma unroll
  for (std::size_t k = 0; k < 4 * values::stretches; ++k) {
    const std::size_t i = values::index(k, lane);
    if (i >= left || i >= Encoding::block_size) continue;
    T before{};
    if constexpr (reads) before = load<1>(static_cast<T const*>(to) + i).value[0];
    store<1>(to + i, {combine(k, before)});
  }
}

/// out = (or +=) the sum of encoded slices, in their order. `bringing`: as in host_storage.
template <class Encoding, bool add, class To>
struct decode_sum_body {
  static constexpr int resident = resident_blocks<Encoding>;
  static constexpr std::size_t threads = block_values<Encoding>::threads;
  std::byte const* from;
  std::size_t stride;
  int sources;
  To* out;
  blocks_at<Encoding> where;
  int const* bringing;
  __device__ void operator()(std::size_t block, unsigned lane) const {
    std::byte const* at = from + block * Encoding::block_bytes;
    block_values<Encoding> sums{};
    if constexpr (means_senders<Encoding>) {
      device_encoding<Encoding>::decode_sum(at, stride, sources, lane, sums, bringing != nullptr ? *bringing : 0);
    } else if constexpr (sums_codes<Encoding>) {
      device_encoding<Encoding>::decode_sum(at, stride, sources, lane, sums);
    } else {
      device_encoding<Encoding>::decode(at, lane, sums);
      for (int source = 1; source < sources; ++source) {
        block_values<Encoding> x{};
        device_encoding<Encoding>::decode(at += stride, lane, x);
#pragma unroll
        for (std::size_t k = 0; k < 4 * x.stretches; ++k) sums.value[k] += x.value[k];
      }
    }
    write_block<Encoding, add>(out, where(block), lane, [&](std::size_t k, To before) {
      return add ? static_cast<To>(before + static_cast<To>(sums.value[k])) : static_cast<To>(sums.value[k]);
    });
  }
};

/// out[i] = reference[index + i] + the decoded difference, in slices.
template <class Encoding, class T>
struct decode_onto_body {
  static constexpr int resident = resident_blocks<Encoding>;
  static constexpr std::size_t threads = block_values<Encoding>::threads;
  std::byte const* from;
  view_source<T> reference;
  std::size_t index, slice, blocks, total;
  T* out;
  __device__ void operator()(std::size_t block, unsigned lane) const {
    using number = elementwise::wider<T, T>;
    const std::size_t begin = block % blocks * Encoding::block_size;
    const std::size_t first = block / blocks * slice + begin;
    if (first >= total) return;
    const std::size_t left = slice - begin < total - first ? slice - begin : total - first;
    block_values<Encoding> change{};
    device_encoding<Encoding>::decode(from + block * Encoding::block_bytes, lane, change);
    T sums[4 * block_values<Encoding>::stretches] = {};
    reference.template take<Encoding>({index + first, left}, lane, [&](std::size_t k, T held) {
      sums[k] = static_cast<T>(static_cast<number>(held) + static_cast<number>(change.value[k]));
    });
    write_block<Encoding, false>(out, {first, left}, lane, [&](std::size_t k, T) { return sums[k]; });
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
