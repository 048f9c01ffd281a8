// SPDX-License-Identifier: Apache-2.0
// Where what codes have lost is kept, by whoever sends it later: as numbers of a type, or in blocks of 8-bit integers.
#pragma once

#include <cstddef>
#include <type_traits>

#include "acco/bfloat16.hpp"
#include "acco/encoding/block_integer.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/half.hpp"

namespace ACCO_SIMD_NAMESPACE::coding {

/// A residual in blocks of 8-bit integers with a scale each, which begin where the blocks of what is encoded begin. A block of
/// zero bytes is zeros.
template <std::size_t Block>
struct residual_blocks {
  using code = block_int8<Block>;
  std::byte* begin;
};
/// Whether this says where a residual lies: a pointer to numbers, or such blocks.
template <class Residual>
inline constexpr bool in_blocks = !std::is_pointer_v<Residual>;

/// `Store` of `with_error_feedback` for the residual of numbers of type T that travel in blocks of so many.
template <class Store, class T, std::size_t Block>
struct residual {
  using number = std::conditional_t<std::is_same_v<Store, full>, T, Store>;
  using type = number*;
  /// Of a share of so many numbers.
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t count) noexcept { return count * sizeof(number); }
  [[nodiscard]] static type at(std::byte* memory) noexcept { return reinterpret_cast<type>(memory); }
};
template <class T, std::size_t Block>
struct residual<int8_blocks, T, Block> {
  using type = residual_blocks<Block>;
  [[nodiscard]] static constexpr std::size_t bytes(std::size_t count) noexcept {
    return encoded_size<typename type::code>(count);
  }
  [[nodiscard]] static type at(std::byte* memory) noexcept { return {memory}; }
};

/// The residual of what lies `count` numbers, a whole share, further on.
template <class T>
[[nodiscard]] constexpr T* behind_share(T* residual, std::size_t count) noexcept {
  return residual + count;
}
template <std::size_t Block>
[[nodiscard]] constexpr residual_blocks<Block> behind_share(residual_blocks<Block> residual, std::size_t count) noexcept {
  return {residual.begin + encoded_size<block_int8<Block>>(count)};
}

/// The largest number of a narrow type, where what is kept in it might be larger.
template <class T>
inline constexpr float largest_kept = std::is_same_v<T, half> ? 65504.0F : 0.0F;

}  // namespace ACCO_SIMD_NAMESPACE::coding
