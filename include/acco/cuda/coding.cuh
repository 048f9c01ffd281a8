// SPDX-License-Identifier: Apache-2.0
// The kernels of encodings: 32 threads for a block of numbers, four neighbours each at a time. The arithmetic of one number is
// that of the host (encoding/block_integer.hpp), so both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cuda_runtime.h>

#include "acco/bfloat16.hpp"
#include "acco/cuda/kernels.cuh"
#include "acco/cuda/warp.cuh"
#include "acco/encoding/bfloat16_wire.hpp"
#include "acco/encoding/block_integer.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/storage/coding.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// Four neighbours.
struct four {
  float value[4];
};

/// How an encoding works on a device: `encode(to, lane, values)` for the lanes of a warp, where values(i) gives the numbers i to
/// i + 3 of the block, and `decode(from, i)`, the same four back. Specialise it to bring an encoding of your own.
template <class Encoding>
struct device_encoding {
  static_assert(!std::is_same_v<Encoding, Encoding>,
                "acco: this encoding has no version for devices: specialise acco::cuda_kernels::device_encoding for it");
};

template <int Bits, std::size_t Block>
struct device_block_integer {
  using arithmetic = integer_code<Bits>;
  static constexpr unsigned stretch = static_cast<unsigned>(Block * Bits / 8);  // bytes of codes

  template <class Values>
  static __device__ void encode(std::byte* to, unsigned lane, Values const& values) {
    const std::int32_t largest = warp_maximum(lane, [&](unsigned which) {
      std::int32_t most = 0;
      for (unsigned i = 4 * which; i < Block; i += 4 * warp_lanes) {
        const four x = values(i);
        for (float const each : x.value) {
          const std::int32_t bits = std::bit_cast<std::int32_t>(each) & arithmetic::magnitude_mask;
          most = most < bits ? bits : most;
        }
      }
      return most;
    });
    const std::int32_t scale_bits = arithmetic::scale_bits(largest);
    const auto scale = std::bit_cast<float>(scale_bits);
    if (lane == 0) put(to, static_cast<std::uint32_t>(scale_bits));
    for (unsigned i = 4 * lane; i < stretch; i += 4 * warp_lanes) {
      std::uint32_t codes = 0;
      if (arithmetic::has_codes(scale_bits)) {
        const four low = values(i);
        four high{};
        if constexpr (Bits == 4) high = values(i + stretch);
        for (unsigned k = 0; k < 4; ++k) {
          auto code = static_cast<std::uint32_t>(arithmetic::code(low.value[k], scale));
          if constexpr (Bits == 4) code = (code & 15U) | static_cast<std::uint32_t>(arithmetic::code(high.value[k], scale)) << 4U;
          codes |= (code & 255U) << (8 * k);
        }
      }
      put(to + sizeof(float) + i, codes);
    }
  }
  static __device__ four decode(std::byte const* from, unsigned i) {
    const float scale = std::bit_cast<float>(take(from));
    const bool high = i >= stretch;  // of four bits: the other half of each byte
    const std::uint32_t codes = take(from + sizeof(float) + (high ? i - stretch : i));
    four x;
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned up = Bits == 4 ? (high ? 24 - 8 * k : 28 - 8 * k) : 24 - 8 * k;  // the code's highest bit becomes the sign
      const std::int32_t code = static_cast<std::int32_t>(codes << up) >> (32 - Bits);
      x.value[k] = arithmetic::value(code, scale);
    }
    return x;
  }

 private:
  static __device__ void put(std::byte* to, std::uint32_t word) { *reinterpret_cast<std::uint32_t*>(to) = word; }
  static __device__ std::uint32_t take(std::byte const* from) { return *reinterpret_cast<std::uint32_t const*>(from); }
};
template <std::size_t Block>
struct device_encoding<block_int8<Block>> : device_block_integer<8, Block> {};
template <std::size_t Block>
struct device_encoding<block_int4<Block>> : device_block_integer<4, Block> {};

template <>
struct device_encoding<bfloat16_wire> {
  template <class Values>
  static __device__ void encode(std::byte* to, unsigned lane, Values const& values) {
    for (unsigned i = 4 * lane; i < bfloat16_wire::block_size; i += 4 * warp_lanes) {
      const four x = values(i);
      lanes<bfloat16, 4> narrow;
      for (unsigned k = 0; k < 4; ++k) narrow.value[k] = bfloat16(x.value[k]);
      *reinterpret_cast<lanes<bfloat16, 4>*>(to + i * sizeof(bfloat16)) = narrow;
    }
  }
  static __device__ four decode(std::byte const* from, unsigned i) {
    const auto narrow = *reinterpret_cast<lanes<bfloat16, 4> const*>(from + i * sizeof(bfloat16));
    four x;
    for (unsigned k = 0; k < 4; ++k) x.value[k] = static_cast<float>(narrow.value[k]);
    return x;
  }
};

/// Four neighbours of an array, zeros behind its end.
template <class T>
__device__ four take_four(T const* from, std::size_t left) {
  four x{};
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(from) % (4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) == 0) {
    const auto in = load<4>(from);
    for (unsigned k = 0; k < 4; ++k) x.value[k] = static_cast<float>(in.value[k]);
  } else {
    for (std::size_t k = 0; k < 4 && k < left; ++k) x.value[k] = static_cast<float>(from[k]);
  }
  return x;
}

/// Neighbours in a trainable_view whose runs lie in device memory: asked for one after the other, upwards.
template <class T>
class neighbours {
 public:
  __device__ neighbours(trainable_view<T> const& view, std::size_t first) : view_(view), run_(view.run_of(first)) {}
  [[nodiscard]] __device__ T operator[](std::size_t i) {
    while (i >= view_.runs[run_].first + view_.runs[run_].count) ++run_;
    return view_.begin_of(run_)[i - view_.runs[run_].first];
  }

 private:
  trainable_view<T> const& view_;
  std::size_t run_;
};

/// Calls work(block, lane) for the lanes of a warp a block.
template <class Work>
__global__ void __launch_bounds__(block_threads) for_blocks(std::size_t blocks, Work work) {
  const std::size_t thread = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread / warp_lanes < blocks) work(thread / warp_lanes, static_cast<unsigned>(thread % warp_lanes));
}
template <class Work>
void launch_blocks(cudaStream_t stream, std::size_t blocks, Work const& work) {
  if (blocks == 0) return;
  constexpr std::size_t together = block_threads / warp_lanes;
  cudaLaunchConfig_t shape{};
  shape.gridDim = dim3(static_cast<unsigned>((blocks + together - 1) / together));
  shape.blockDim = dim3(block_threads);
  shape.stream = stream;
  check_cuda(cudaLaunchKernelEx(&shape, for_blocks<Work>, blocks, work), "cudaLaunchKernelEx");
}

/// Encodes `Source`, of which four(i, left) gives numbers: slices of `count` numbers one after the other.
template <class Encoding, class Source>
struct encode_body {
  Source source;
  std::size_t count, blocks;  // of a slice
  std::byte* to;
  coding::refused bad;

  __device__ void operator()(std::size_t block, unsigned lane) const {
    const std::size_t begin = block % blocks * Encoding::block_size;
    const std::size_t first = block / blocks * count + begin;
    const std::size_t left = count - begin;
    device_encoding<Encoding>::encode(to + block * Encoding::block_bytes, lane,
                                      [&](unsigned i) { return i < left ? source(first + i, left - i) : four{}; });
    for (unsigned i = 4 * lane; i < Encoding::block_size && i < left; i += 4 * warp_lanes) {
      const four x = source(first + i, left - i);
      for (unsigned k = 0; k < 4; ++k) {
        if (is_finite(x.value[k])) continue;
        atomicAdd(bad.found, 1ULL);
        atomicMin(bad.first, static_cast<unsigned long long>(source.index + first + i + k));
      }
    }
  }
};
template <class T>
struct values_source {
  T const* from;
  std::size_t index = 0;
  __device__ four operator()(std::size_t i, std::size_t left) const { return take_four(from + i, left); }
};
template <class T>
struct difference_source {
  T const* values;
  trainable_view<T> reference;
  std::size_t index;
  __device__ four operator()(std::size_t i, std::size_t left) const {
    using total = elementwise::wider<T, T>;
    neighbours<T> held(reference, index + i);
    four x{};
    for (std::size_t k = 0; k < 4 && k < left; ++k)
      x.value[k] = static_cast<float>(static_cast<total>(values[i + k]) - static_cast<total>(held[index + i + k]));
    return x;
  }
};

/// out = (or +=) the sum of encoded slices, in their order.
template <class Encoding, class To>
struct decode_sum_body {
  std::byte const* from;
  std::size_t stride;
  int sources;
  To* out;
  std::size_t count;
  bool add;
  __device__ void operator()(std::size_t block, unsigned lane) const {
    const std::size_t begin = block * Encoding::block_size;
    for (unsigned i = 4 * lane; i < Encoding::block_size && begin + i < count; i += 4 * warp_lanes) {
      four sums = device_encoding<Encoding>::decode(from + block * Encoding::block_bytes, i);
      for (int source = 1; source < sources; ++source) {
        const four x = device_encoding<Encoding>::decode(
            from + static_cast<std::size_t>(source) * stride + block * Encoding::block_bytes, i);
        for (unsigned k = 0; k < 4; ++k) sums.value[k] += x.value[k];
      }
      for (std::size_t k = 0; k < 4 && begin + i + k < count; ++k) {
        To& to = out[begin + i + k];
        to = add ? static_cast<To>(to + static_cast<To>(sums.value[k])) : static_cast<To>(sums.value[k]);
      }
    }
  }
};

/// out[i] = reference[i] + the decoded difference, in slices.
template <class Encoding, class T>
struct decode_onto_body {
  std::byte const* from;
  trainable_view<T> reference;
  std::size_t index, slice, blocks, total;
  T* out;
  __device__ void operator()(std::size_t block, unsigned lane) const {
    using number = elementwise::wider<T, T>;
    const std::size_t begin = block % blocks * Encoding::block_size;
    const std::size_t first = block / blocks * slice + begin;
    for (unsigned i = 4 * lane; i < Encoding::block_size && begin + i < slice; i += 4 * warp_lanes) {
      const four x = device_encoding<Encoding>::decode(from + block * Encoding::block_bytes, i);
      if (first + i >= total) continue;
      neighbours<T> held(reference, index + first + i);
      for (std::size_t k = 0; k < 4 && begin + i + k < slice && first + i + k < total; ++k)
        out[first + i + k] = static_cast<T>(static_cast<number>(held[index + first + i + k]) + static_cast<number>(x.value[k]));
    }
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
