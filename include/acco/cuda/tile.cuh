// SPDX-License-Identifier: Apache-2.0
// What a warp reads and writes at once: two stretches of 128 neighbours, in accesses of 16 bytes that lie side by side
// in memory, whatever the element type. Lane k holds the numbers 4k to 4k + 3 of each stretch. 16 bytes hold eight
// numbers of 16 bits, so these change lanes on the way.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "acco/cuda/access.cuh"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

inline constexpr unsigned warp_lanes = 32, whole_warp = 0xffffffffU;
inline constexpr std::size_t stretch_size = 128, tile_size = 256;  // elements

/// What a lane holds of two stretches: four numbers of the first, then four of the second.
template <class T>
using of_pair = lanes<T, 8>;
static_assert(stretch_size == 4 * warp_lanes);

namespace tile {
using words = lanes<std::uint32_t, 4>;

/// Two halves of what a lane has go to lanes `near` and `far`: four shuffles. A lane gives them in their order or the
/// other way round, takes what comes likewise, and asks near first or far first. (Own shuffles: cub::WarpExchange
/// passes through shared memory, or takes as many numbers a lane as there are lanes.)
inline __device__ words trade(words const& mine, bool gives_in_order, bool takes_in_order, int near, int far) {
  words x{};
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const std::uint32_t one =
        __shfl_sync(whole_warp, gives_in_order ? mine.value[k] : mine.value[2 + k], takes_in_order ? near : far);
    const std::uint32_t other =
        __shfl_sync(whole_warp, gives_in_order ? mine.value[2 + k] : mine.value[k], takes_in_order ? far : near);
    x.value[k] = takes_in_order ? one : other;
    x.value[2 + k] = takes_in_order ? other : one;
  }
  return x;
}
/// Eight 16-bit numbers a lane, lanes 0 to 15 from the first stretch, the others from the second, to four of each; and
/// back.
inline __device__ words to_quads(words const& eight, unsigned lane) {
  const int near = static_cast<int>(lane / 2);
  return trade(eight, lane < 16, lane % 2 == 0, near, near + 16);
}
inline __device__ words from_quads(words const& quads, unsigned lane) {
  const int near = static_cast<int>(lane % 16 * 2);
  return trade(quads, lane % 2 == 0, lane < 16, near, near + 1);
}

/// The 16 bytes from `from` on, of which lane k % chunks reads the k-th of a stretch, by accesses at multiples of 16
/// bytes. What lies behind the last lane's is in the next 16 bytes.
template <class T>
__device__ words realigned(T const* from, unsigned chunk, unsigned chunks) {
  constexpr std::size_t count = 16 / sizeof(T);
  const auto behind = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % 16);
  T const* const base = from - behind / sizeof(T) + chunk * count;
  const words mine = std::bit_cast<words>(load<count>(base));
  std::uint32_t window[8];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    window[k] = mine.value[k];
    window[4 + k] = __shfl_down_sync(whole_warp, mine.value[k], 1);
  }
  if (chunk == chunks - 1) {
    const words last = std::bit_cast<words>(load<count>(base + count));
#pragma unroll
    for (int k = 0; k < 4; ++k) window[4 + k] = last.value[k];
  }
  const unsigned first = behind / 4;
  const bool half = behind % 4 != 0;
  words x{};
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    std::uint32_t low = window[k], high = window[k + 1];
#pragma unroll
    for (unsigned shift = 1; shift < 4; ++shift) {
      if (shift != first) continue;
      low = window[k + shift];
      high = window[k + shift + 1];
    }
    x.value[k] = half ? low >> 16U | high << 16U : low;
  }
  return x;
}

template <class T>
__device__ of_pair<T> unpack(words const& packed) {
  return std::bit_cast<of_pair<T>>(packed);
}
template <class T>
__device__ bool straight(T const* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
}
}  // namespace tile

/// Two stretches that begin at multiples of 16 bytes.
template <class T>
__device__ of_pair<T> load_pair(T const* first, T const* second, unsigned lane) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "acco: tiles are of numbers of 2, 4 or 8 bytes");
  of_pair<T> x;
  if constexpr (sizeof(T) == 2) {
    T const* const from = lane < 16 ? first + 8 * lane : second + 8 * (lane - 16);
    return tile::unpack<T>(tile::to_quads(std::bit_cast<tile::words>(load<8>(from)), lane));
  } else {
    constexpr std::size_t at_once = 16 / sizeof(T);
#pragma unroll
    for (unsigned k = 0; k < 4; k += at_once) {
      const auto a = load<at_once>(first + 4 * lane + k), b = load<at_once>(second + 4 * lane + k);
#pragma unroll
      for (unsigned j = 0; j < at_once; ++j) {
        x.value[k + j] = a.value[j];
        x.value[4 + k + j] = b.value[j];
      }
    }
    return x;
  }
}
template <class T>
__device__ void store_pair(T* first, T* second, unsigned lane, of_pair<T> const& x) {
  if constexpr (sizeof(T) == 2) {
    T* const to = lane < 16 ? first + 8 * lane : second + 8 * (lane - 16);
    store<8>(to, tile::unpack<T>(tile::from_quads(std::bit_cast<tile::words>(x), lane)));
  } else {
    constexpr std::size_t at_once = 16 / sizeof(T);
#pragma unroll
    for (unsigned k = 0; k < 4; k += at_once) {
      lanes<T, at_once> a, b;
#pragma unroll
      for (unsigned j = 0; j < at_once; ++j) {
        a.value[j] = x.value[k + j];
        b.value[j] = x.value[4 + k + j];
      }
      store<at_once>(first + 4 * lane + k, a);
      store<at_once>(second + 4 * lane + k, b);
    }
  }
}

/// Two stretches, `second` some multiple of 16 bytes behind `first`, within an array from `begin` to before `end`,
/// wherever they begin: by accesses of 16 bytes where these lie in the array.
template <class T>
__device__ of_pair<T> load_pair_anywhere(T const* first, T const* second, T const* begin, T const* end, unsigned lane) {
  if (tile::straight(first)) return load_pair(first, second, lane);
  constexpr std::ptrdiff_t count = 16 / sizeof(T);
  of_pair<T> x;
  if (sizeof(T) <= 4 && first - begin >= count && end - second >= static_cast<std::ptrdiff_t>(stretch_size) + count) {
    if constexpr (sizeof(T) == 2) {
      return tile::unpack<T>(tile::to_quads(tile::realigned(lane < 16 ? first : second, lane % 16, 16), lane));
    } else if constexpr (sizeof(T) == 4) {
      const auto a = std::bit_cast<lanes<T, 4>>(tile::realigned(first, lane, warp_lanes));
      const auto b = std::bit_cast<lanes<T, 4>>(tile::realigned(second, lane, warp_lanes));
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        x.value[k] = a.value[k];
        x.value[4 + k] = b.value[k];
      }
      return x;
    }
  }
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    x.value[k] = load<1>(first + 4 * lane + k).value[0];
    x.value[4 + k] = load<1>(second + 4 * lane + k).value[0];
  }
  return x;
}

/// Where a body works: 256 neighbours from `first` on, for a whole warp, at multiples of 16 bytes; or one.
struct whole_tile {
  static constexpr std::size_t count = 8;
  std::size_t first;
  unsigned lane;
  template <class T>
  __device__ of_pair<T> load(T const* from) const {
    return load_pair(from + first, from + first + stretch_size, lane);
  }
  template <class T>
  __device__ void store(T* to, of_pair<T> const& x) const {
    store_pair(to + first, to + first + stretch_size, lane, x);
  }
  /// The element that is the k-th of this lane.
  [[nodiscard]] __device__ std::size_t index(unsigned k) const { return first + 4 * lane + k % 4 + k / 4 * stretch_size; }
};
struct one_element {
  static constexpr std::size_t count = 1;
  std::size_t first;
  template <class T>
  __device__ lanes<T, 1> load(T const* from) const {
    return cuda_kernels::load<1>(from + first);
  }
  template <class T>
  __device__ void store(T* to, lanes<T, 1> const& x) const {
    cuda_kernels::store<1>(to + first, x);
  }
  [[nodiscard]] __device__ std::size_t index(unsigned) const { return first; }
};

/// A stretch of elements as tiles, and what is left at its ends.
struct tiling {
  std::size_t begin, end, first, tiles;  ///< the tiles lie from `first` on
  /// `head`: the first element at which tiles may begin (tiles begin at its neighbours by eight, too); no_tiles:
  /// nowhere.
  static constexpr unsigned no_tiles = 8;
  __host__ __device__ tiling(std::size_t from, std::size_t to, unsigned head) : begin(from), end(to), first(from), tiles(0) {
    if (head >= no_tiles) return;
    const std::size_t aligned = from + (head + 8 - from % 8) % 8;
    if (aligned + tile_size > to) return;
    first = aligned;
    tiles = (to - aligned) / tile_size;
  }
  [[nodiscard]] __host__ __device__ std::size_t left() const { return end - begin - tiles * tile_size; }
  [[nodiscard]] __device__ one_element left(std::size_t k) const {
    return {k < first - begin ? begin + k : first + tiles * tile_size + (k - (first - begin))};
  }
};

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels

#include "acco/restore_macros.hpp"
