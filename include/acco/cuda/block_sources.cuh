// SPDX-License-Identifier: Apache-2.0
// Where the numbers of an encoding's block lie, and how threads take them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/cuda/kernels.cuh"
#include "acco/cuda/launch.cuh"
#include "acco/cuda/tile.cuh"
#include "acco/layout/trainable_runs.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// What a thread holds of a block: a lane of the warp that has it, or a thread of the thread block that has one of more
/// than 1024 numbers, whose warps take tiles in turn. Of the s-th stretch of 128 numbers of a warp those from 4 * lane
/// on, at 4 s.
template <std::size_t Size>
struct values_of_block {
  static constexpr std::size_t warps = Size > 1024 ? block_warps : 1, threads = warps * warp_lanes;
  static constexpr std::size_t stretches = (Size + warps * stretch_size - 1) / (warps * stretch_size);
  float value[4 * stretches];
  /// Where in the block the p-th tile of the thread's warp begins.
  [[nodiscard]] static __device__ std::size_t tile(std::size_t p, unsigned thread) {
    return (p * warps + thread / warp_lanes) * tile_size;
  }
  /// Where in the block the k-th lies.
  [[nodiscard]] static __device__ std::size_t index(std::size_t k, unsigned thread) {
    return tile(k / 8, thread) + k % 8 / 4 * stretch_size + 4 * (thread % warp_lanes) + k % 4;
  }
};

template <class Encoding>
using block_values = values_of_block<Encoding::block_size>;

/// Whether a block is one stretch, whose numbers move four a lane: 16 bytes, or 8 where they have 16 bits.
template <class Encoding, class T>
inline constexpr bool one_stretch = Encoding::block_size == stretch_size && sizeof(T) <= 4;

/// An array, of which threads take a block from `first` on, zeros behind `left` numbers.
template <class T>
struct array_source {
  T const *begin, *end;

  /// into(k, number) gets those that are there.
  template <class Encoding, class Into>
  __device__ void take(std::size_t first, std::size_t left, unsigned lane, Into&& into) const {
    using values = block_values<Encoding>;
    T const* const from = begin + first;
    const bool full = left >= Encoding::block_size;
    if constexpr (values::stretches % 2 == 0) {
      if (full) {
#pragma unroll
        for (std::size_t p = 0; p < values::stretches / 2; ++p) {
          T const* const pair = from + values::tile(p, lane);
          const auto x = load_pair_anywhere(pair, pair + stretch_size, begin, end, lane % warp_lanes);
#pragma unroll
          for (std::size_t k = 0; k < 8; ++k) into(8 * p + k, x.value[k]);
        }
        return;
      }
    } else if constexpr (one_stretch<Encoding, T>) {
      if (full && reinterpret_cast<std::uintptr_t>(from) % (4 * sizeof(T)) == 0) {
        const auto x = load<4>(from + 4 * lane);
#pragma unroll
        for (std::size_t k = 0; k < 4; ++k) into(k, x.value[k]);
        return;
      }
    }
#pragma unroll
    for (std::size_t k = 0; k < 4 * values::stretches; ++k) {
      const std::size_t i = values::index(k, lane);
      if (i < left && i < Encoding::block_size) into(k, load<1>(from + i).value[0]);
    }
  }
};

/// The trainable elements of a view, likewise: its runs lie in device memory. One search a block finds the first; where
/// a block lies in several runs, it takes from one after the other.
template <class T>
struct view_source {
  trainable_view<T> view;

  template <class Encoding, class Into>
  __device__ void take(std::size_t first, std::size_t left, unsigned lane, Into&& into) const {
    using values = block_values<Encoding>;
    const std::size_t behind = first + (left < Encoding::block_size ? left : Encoding::block_size);
    std::size_t run = view.run_of(first);
    const trainable_run here = view.runs[run];
    if (behind <= here.first + here.count) {
      T const* const begin = view.begin_of(run);
      const array_source<T> whole{begin, begin + here.count};
      whole.template take<Encoding>(first - here.first, left, lane, into);
      return;
    }
    for (; run < view.run_count && view.runs[run].first < behind; ++run) {
      const trainable_run part = view.runs[run];
      T const* const begin = view.begin_of(run);
#pragma unroll
      for (std::size_t k = 0; k < 4 * values::stretches; ++k) {
        const std::size_t i = first + values::index(k, lane);
        if (i >= part.first && i < part.first + part.count && i < behind) into(k, load<1>(begin + (i - part.first)).value[0]);
      }
    }
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
