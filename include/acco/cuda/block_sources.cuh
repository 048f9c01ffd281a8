// SPDX-License-Identifier: Apache-2.0
// Where the numbers of an encoding's block lie, and how threads take them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/code/in_places.hpp"
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

/// Where a block lies in an array: from `first` on, zeros behind `left` numbers; or from there as its `place` says.
struct block_at {
  std::size_t first, left;
  block_place const* place = nullptr;
};
/// Of slices of `count` numbers, one after the other.
template <class Encoding>
struct blocks_at {
  std::size_t count, blocks;  // of a slice
  block_place const* places = nullptr;

  blocks_at(Encoding const& e, std::size_t numbers) : count(numbers), blocks(blocks_in(e, numbers)) {
    if constexpr (placed_code<Encoding>) places = e.places.each != 0 ? e.places.of : nullptr;
  }
  [[nodiscard]] __device__ block_at operator()(std::size_t block) const {
    if (placed_code<Encoding> && places != nullptr) return {block / blocks * count, 0, places + block};
    return {number_of(block), count - block % blocks * Encoding::block_size, nullptr};
  }
  /// By which a block rounds at random.
  [[nodiscard]] __device__ std::size_t number_of(std::size_t block) const {
    return block / blocks * count + block % blocks * Encoding::block_size;
  }
};
/// Calls some(s, i, where) for the numbers of a placed block that a thread has: those from i on are its s-th stretch's
/// four, `where` behind the beginning.
template <class Encoding, class Some>
__device__ void for_fours(unsigned lane, block_place const& place, Some&& some) {
  using values = block_values<Encoding>;
#pragma unroll
  for (std::size_t s = 0; s < values::stretches; ++s) {
    const std::size_t i = values::index(4 * s, lane);
    if (place.has(i)) some(s, i, place.at(i));
  }
}
/// Whether four numbers of a placed block move at once.
template <class T>
__device__ bool at_once(block_place const& place, std::size_t i, T const* from) {
  return sizeof(T) <= 4 && place.has(i + 3) && reinterpret_cast<std::uintptr_t>(from) % (4 * sizeof(T)) == 0;
}

/// An array, of which threads take blocks.
template <class T>
struct array_source {
  T const *begin, *end;

  /// into(k, number) gets those that are there.
  template <class Encoding, class Into>
  __device__ void take(block_at const& at, unsigned lane, Into&& into) const {
    using values = block_values<Encoding>;
    T const* const from = begin + at.first;
    if constexpr (placed_code<Encoding>) {
      if (at.place != nullptr) {
        const block_place place = *at.place;
        for_fours<Encoding>(lane, place, [&](std::size_t s, std::size_t i, std::size_t where) {
          if (at_once(place, i, from + where)) {
            constexpr std::size_t four = sizeof(T) <= 4 ? 4 : 1;
            const auto x = load<four>(from + where);
#pragma unroll
            for (std::size_t k = 0; k < four; ++k) into(4 * s + k, x.value[k]);
            return;
          }
#pragma unroll
          for (std::size_t k = 0; k < 4; ++k) {
            if (place.has(i + k)) into(4 * s + k, load<1>(from + where + k).value[0]);
          }
        });
        return;
      }
    }
    const std::size_t left = at.left;
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
  __device__ void take(block_at const& at, unsigned lane, Into&& into) const {
    using values = block_values<Encoding>;
    const std::size_t first = at.first, left = at.left,
                      behind = first + (left < Encoding::block_size ? left : Encoding::block_size);
    std::size_t run = view.run_of(first);
    if (run == view.run_count) return;  // a gap behind all that lies anywhere
    const trainable_run here = view.runs[run];
    if (first >= here.first && behind <= here.first + here.count) {
      T const* const begin = view.begin_of(run);
      const array_source<T> whole{begin, begin + here.count};
      whole.template take<Encoding>({first - here.first, left}, lane, into);
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
