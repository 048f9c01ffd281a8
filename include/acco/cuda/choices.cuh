// SPDX-License-Identifier: Apache-2.0
// The codes that choose on a device, block_top, block_random and block_dct_top: 256 numbers a warp, eight a lane, as in
// levels.cuh.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "acco/cuda/access.cuh"
#include "acco/cuda/coding.cuh"
#include "acco/cuda/launch.cuh"
#include "acco/cuda/levels.cuh"
#include "acco/cuda/warp.cuh"
#include "acco/encoding/block_dct_top.hpp"
#include "acco/encoding/block_random.hpp"
#include "acco/encoding/block_top.hpp"
#include "acco/encoding/dct.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// What they have in common.
struct device_choices : device_levels {
  /// The sum of `mine` over the lanes before this one.
  static __device__ unsigned below(int mine, unsigned lane) {
    unsigned sum = static_cast<unsigned>(mine);
#pragma unroll
    for (unsigned by = 1; by < warp_lanes; by *= 2) {
      const unsigned other = __shfl_sync(whole_warp, sum, static_cast<int>(lane >= by ? lane - by : lane));
      if (lane >= by) sum += other;
    }
    return sum - static_cast<unsigned>(mine);
  }
  /// integer_code::code, with one division a block.
  struct coder {
    float scale, inverse;
    explicit __device__ coder(float by) : scale(by), inverse(1.0F / by) {}
    [[nodiscard]] __device__ std::uint8_t operator()(float value) const {
      return static_cast<std::uint8_t>(integer_code<8>::code_of_quotient(integer_code<8>::quotient(value, scale, inverse)));
    }
  };
};

template <std::size_t Count>
struct device_encoding<block_top<Count>> : device_choices {
  using arithmetic = integer_code<8>;

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    std::uint32_t magnitude[8];
    std::int32_t mine = 0;
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      magnitude[k] = std::bit_cast<std::uint32_t>(x.value[k]) & 0x7fffffffU;
      const auto bits = static_cast<std::int32_t>(magnitude[k]);
      mine = mine < bits ? bits : mine;
    }
    const std::int32_t scale_bits = arithmetic::scale_bits(warp_maximum(mine));
    put_scale(to, lane, static_cast<std::uint16_t>(scale_bits >> 16));
    auto* const bytes = reinterpret_cast<std::uint8_t*>(to + block_scale::bytes);
    if (!arithmetic::has_codes(scale_bits)) {  // alike in all lanes
      for (unsigned i = lane; i < 2 * Count; i += warp_lanes) store<1>(bytes + i, {std::uint8_t{0}});
      return;
    }
    const auto count_at_least = [&](std::uint32_t bits) {
      unsigned some = 0;
#pragma unroll
      for (std::uint32_t const each : magnitude) some += each >= bits ? 1U : 0U;
      return warp_sum(some);
    };
    const std::uint32_t last = bits_of_largest(Count, count_at_least);
    const unsigned equal = static_cast<unsigned>(Count) - count_at_least(last + 1);
    const coder code_of(std::bit_cast<float>(scale_bits));
    unsigned before = 0, equal_before = 0;  // in the half of the block that comes first
#pragma unroll
    for (unsigned s = 0; s < 2; ++s) {
      unsigned greater = 0, same = 0;  // a bit for each of this lane's four
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        greater |= (magnitude[4 * s + k] > last ? 1U : 0U) << k;
        same |= (magnitude[4 * s + k] == last ? 1U : 0U) << k;
      }
      const unsigned same_ahead = equal_before + below(__popc(same), lane);
      unsigned taken = greater;
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        if ((same >> k & 1U) != 0 && same_ahead + static_cast<unsigned>(__popc(same & ((1U << k) - 1))) < equal) taken |= 1U << k;
      }
      unsigned at = before + below(__popc(taken), lane);
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        if ((taken >> k & 1U) == 0) continue;
        store<1>(bytes + at, {static_cast<std::uint8_t>(x.index(4 * s + k, lane))});
        store<1>(bytes + Count + at, {code_of(x.value[4 * s + k])});
        ++at;
      }
      before += warp_sum(static_cast<unsigned>(__popc(taken)));
      equal_before += warp_sum(static_cast<unsigned>(__popc(same)));
    }
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    const std::int32_t scale_bits = static_cast<std::int32_t>(take_scale(from)) << 16;
    const auto scale = std::bit_cast<float>(scale_bits);
    if (!arithmetic::has_codes(scale_bits)) return fill(scale, x);
    fill(0, x);
    auto const* const bytes = reinterpret_cast<std::uint8_t const*>(from + block_scale::bytes);
    for (unsigned n = 0; n < Count; ++n) {  // all lanes read all: one access a warp
      const unsigned where = load<1>(bytes + n).value[0];
      if (where / 4 % warp_lanes != lane) continue;
      const float value = arithmetic::value(static_cast<std::int8_t>(load<1>(bytes + Count + n).value[0]), scale);
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) {
        if (x.index(k, lane) == where) x.value[k] = value;
      }
    }
  }
};

template <std::size_t Count>
struct device_encoding<block_random<Count>> : device_choices {
  using arithmetic = integer_code<8>;
  using choice = random_code;
  static constexpr std::size_t head = block_scale::bytes + sizeof(std::uint16_t);

  static __device__ void encode(std::byte* to, unsigned lane, values const& x) {
    const std::uint32_t most = largest_magnitude(x);
    std::uint16_t scale = most >= choice::infinite ? block_scale::not_a_number : std::uint16_t{0}, seed = 0;
    auto* const codes = reinterpret_cast<std::uint8_t*>(to + head);
    if (most >= choice::infinite || most < choice::negligible) {  // alike in all lanes
      for (unsigned i = lane; i < block_random<Count>::code_bytes; i += warp_lanes) store<1>(codes + i, {std::uint8_t{0}});
      return put_head(to, lane, scale, seed);
    }
    std::uint32_t terms = 0;
#pragma unroll
    for (unsigned k = 0; k < 8; ++k)
      terms += choice::term(std::bit_cast<std::uint32_t>(x.value[k]), static_cast<std::uint32_t>(x.index(k, lane)));
    seed = choice::seed(warp_sum(terms));
    pattern by(seed, lane);
    std::uint32_t most_chosen = by.largest_of(x);
    if (most_chosen < choice::negligible) {
      std::uint32_t first = block_size;
#pragma unroll
      for (unsigned k = 8; k-- > 0;) {
        if ((std::bit_cast<std::uint32_t>(x.value[k]) & 0x7fffffffU) == most)
          first = static_cast<std::uint32_t>(x.index(k, lane));
      }
      seed = choice::turned_to(warp_minimum(first), by.largest(), seed);
      by.turn(seed, lane);
      most_chosen = most;
    }
    const std::int32_t scale_bits = arithmetic::scale_bits(static_cast<std::int32_t>(most_chosen));
    scale = static_cast<std::uint16_t>(scale_bits >> 16);
    put_head(to, lane, scale, seed);
    const coder code_of(std::bit_cast<float>(scale_bits));
    by.each_chosen(lane, [&](unsigned k, unsigned at) { store<1>(codes + at, {code_of(x.value[k])}); });
    if (Count % 2 != 0 && lane == 0) store<1>(codes + Count, {std::uint8_t{0}});
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    const std::int32_t scale_bits = static_cast<std::int32_t>(take_scale(from)) << 16;
    const auto scale = std::bit_cast<float>(scale_bits);
    if (!arithmetic::has_codes(scale_bits)) return fill(scale, x);
    fill(0, x);
    auto const* const codes = reinterpret_cast<std::uint8_t const*>(from + head);
    const pattern by(take_scale(from + block_scale::bytes), lane);
    by.each_chosen(lane, [&](unsigned k, unsigned at) {
      x.value[k] = arithmetic::value(static_cast<std::int8_t>(load<1>(codes + at).value[0]), scale);
    });
  }

 private:
  static __device__ void put_head(std::byte* to, unsigned lane, std::uint16_t scale, std::uint16_t seed) {
    put_scale(to, lane, scale);
    put_scale(to + block_scale::bytes, lane, seed);
  }
  /// The keys of a lane's numbers, and the last one that is chosen.
  struct pattern {
    std::uint32_t key[8];
    std::uint32_t last;

    __device__ pattern(std::uint16_t seed, unsigned lane) {
      turn(seed, lane);
      last = bits_of_largest(Count, [this](std::uint32_t bits) {
        unsigned some = 0;
#pragma unroll
        for (std::uint32_t const each : key) some += each >= bits ? 1U : 0U;
        return warp_sum(some);
      });
    }
    __device__ void turn(std::uint16_t seed, unsigned lane) {
#pragma unroll
      for (unsigned k = 0; k < 8; ++k)
        key[k] = choice::key(seed, choice::place_of(static_cast<std::uint32_t>(values::index(k, lane)), seed));
    }
    [[nodiscard]] __device__ std::uint32_t largest() const {
      std::uint32_t most = 0;
#pragma unroll
      for (std::uint32_t const each : key) most = most < each ? each : most;
      return warp_maximum(most);
    }
    [[nodiscard]] __device__ std::uint32_t largest_of(values const& x) const {
      std::uint32_t most = 0;
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) {
        const std::uint32_t bits = key[k] >= last ? std::bit_cast<std::uint32_t>(x.value[k]) & 0x7fffffffU : 0U;
        most = most < bits ? bits : most;
      }
      return warp_maximum(most);
    }
    /// f(k, at) for those of a lane's numbers that are the at-th chosen one.
    template <class F>
    __device__ void each_chosen(unsigned lane, F&& f) const {
      unsigned before = 0;  // in the half of the block that comes first
#pragma unroll
      for (unsigned s = 0; s < 2; ++s) {
        int mine = 0;
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) mine += key[4 * s + k] >= last ? 1 : 0;
        unsigned at = before + below(mine, lane);
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) {
          if (key[4 * s + k] >= last) f(4 * s + k, at++);
        }
        before += warp_sum(static_cast<unsigned>(mine));
      }
    }
  };
};

/// What the transform multiplies by, in the memory of the device; nvcc wants it apart in every file.
static __device__ const dct_constants dct_constants_there;

/// A warp that computes a transform, of numbers in shared memory.
struct dct_in_warp {
  template <std::size_t count, class F>
  static __device__ void each(F&& f) {
    for (std::size_t i = threadIdx.x % warp_lanes; i < count; i += warp_lanes) f(i);
    __syncwarp();
  }
  static __device__ void sums(dct_constants::matrix const& matrix, float* x) {
    static_assert(dct_constants::leaf == warp_lanes);
    const unsigned lane = threadIdx.x % warp_lanes;
    double total = 0;
#pragma unroll 4
    for (std::size_t n = 0; n < dct_constants::leaf; ++n) total += static_cast<double>(x[n]) * matrix[n][lane];
    __syncwarp();
    x[lane] = static_cast<float>(total);
    __syncwarp();
  }
  /// By an address of which the compiler knows nothing: it would load all constants before a thread's first block, and keep them.
  static __device__ dct_constants const& constants() {
    dct_constants const* there = &dct_constants_there;
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(there));
#endif
    return *there;
  }
};

template <std::size_t Count, mean_over Over>
struct device_encoding<block_dct_top<Count, Over>> : device_choices {
  using arithmetic = dct_code;
  using chosen = device_encoding<block_top<Count>>;

  static __device__ void encode(std::byte* to, unsigned lane, values const& given) {
    values x = given;
    if (largest_magnitude(given) < arithmetic::infinite) {  // alike in all lanes
      float* const numbers = room();
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) numbers[x.index(k, lane)] = x.value[k] * arithmetic::share;
      __syncwarp();
      dct<dct_in_warp>::turn(numbers, numbers + block_size);
      from_room(numbers, lane, x);
    }
    chosen::encode(to, lane, x);
  }
  static __device__ void decode(std::byte const* from, unsigned lane, values& x) {
    chosen::decode(from, lane, x);
    if (!chosen::arithmetic::has_codes(static_cast<std::int32_t>(take_scale(from)) << 16)) return;
    turn_back(lane, x);
#pragma unroll
    for (float& each : x.value) each = arithmetic::whole(each);
  }
  static __device__ void decode_sum(std::byte const* from, std::size_t stride, int sources, double const* weights, unsigned lane,
                                    values& sums) {
    constexpr bool weighs = Over == mean_over::senders;
    fill(0, sums);
    float sent[weighs ? 8 : 1] = {}, all = 0;
    int senders = 0;
    for (int source = 0; source < sources; ++source, from += stride) {
      const float weight = weights == nullptr ? 1.0F : static_cast<float>(load<1>(weights + source).value[0]);
      all += weight;
      const std::int32_t scale_bits = static_cast<std::int32_t>(take_scale(from)) << 16;
      if (!chosen::arithmetic::has_codes(scale_bits)) {  // alike in all lanes
        if (scale_bits == 0) continue;
        return fill(std::bit_cast<float>(scale_bits), sums);  // not finite
      }
      ++senders;
      values x;
      chosen::decode(from, lane, x);
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) {
        sums.value[k] += x.value[k];
        if constexpr (weighs) sent[k] += x.value[k] != 0 ? weight : 0.0F;
      }
    }
    if (senders == 0) return;
    if constexpr (weighs) {
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) sums.value[k] = arithmetic::of_all(sums.value[k], sent[k], all);
    }
    turn_back(lane, sums);
#pragma unroll
    for (float& each : sums.value) each = arithmetic::whole_sum(each, senders);
  }

 private:
  static __device__ void turn_back(unsigned lane, values& x) {
    float* const numbers = room();
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) numbers[x.index(k, lane)] = x.value[k];
    __syncwarp();
    dct<dct_in_warp>::turn_back(numbers, numbers + block_size);
    from_room(numbers, lane, x);
  }
  static __device__ float* room() {
    __shared__ float of_warps[block_warps][2 * block_size];
    return of_warps[threadIdx.x / warp_lanes];
  }
  static __device__ void from_room(float const* numbers, unsigned lane, values& x) {
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) x.value[k] = numbers[x.index(k, lane)];
    __syncwarp();
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
