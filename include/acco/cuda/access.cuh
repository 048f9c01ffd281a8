// SPDX-License-Identifier: Apache-2.0
// How kernels touch arrays: neighbours, in one access.
#pragma once

#include <bit>
#include <cstddef>
#include <type_traits>

#include <cuda_runtime.h>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE::cuda_kernels {

/// Neighbours. In memory one access of at most 16 bytes; in registers any number of them.
template <class T, std::size_t Count>
struct alignas(sizeof(T) * Count < 16 ? sizeof(T) * Count : 16) lanes {
  T value[Count];
};

/// The compiler's own type of so many bytes, which it reads and writes at once.
template <std::size_t Bytes>
using word_of_bytes = std::conditional_t<
    Bytes == 16, uint4,
    std::conditional_t<Bytes == 8, uint2,
                       std::conditional_t<Bytes == 4, unsigned, std::conditional_t<Bytes == 2, unsigned short, unsigned char>>>>;

/// `from`: at a multiple of what is read at once.
template <std::size_t Count, class T>
__device__ lanes<T, Count> load(T const* from) {
  using word = word_of_bytes<sizeof(T) * Count>;
  static_assert(sizeof(word) == sizeof(T) * Count, "an access has 1, 2, 4, 8 or 16 bytes");
  return std::bit_cast<lanes<T, Count>>(*reinterpret_cast<word const*>(from));
}
template <std::size_t Count, class T>
__device__ void store(T* to, lanes<T, Count> const& values) {
  using word = word_of_bytes<sizeof(T) * Count>;
  static_assert(sizeof(word) == sizeof(T) * Count, "an access has 1, 2, 4, 8 or 16 bytes");
  const auto packed = std::bit_cast<word>(values);
  if constexpr (sizeof(word) == 16) {  // said outright: nvcc makes four stores of the first of two
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(packed.x), "r"(packed.y), "r"(packed.z), "r"(packed.w)
                 : "memory");
  } else {
    *reinterpret_cast<word*>(to) = packed;
  }
}

}  // namespace ACCO_SIMD_NAMESPACE::cuda_kernels
