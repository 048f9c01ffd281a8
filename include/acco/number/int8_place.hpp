// SPDX-License-Identifier: Apache-2.0
// Where numbers of eight bits lie (int8_blocks.hpp), in the place of a pointer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "acco/bfloat16.hpp"
#include "acco/number/convert.hpp"
#include "acco/number/digest.hpp"
#include "acco/number/int8_blocks.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where numbers of such an array lie, from the number `first` of it on: in the place of a pointer.
struct int8_place {
  std::int8_t* codes = nullptr;       ///< that of this number
  std::uint8_t* exponents = nullptr;  ///< those of the array
  std::size_t first = 0;

  [[nodiscard]] constexpr int8_place operator+(std::size_t n) const noexcept { return {codes + n, exponents, first + n}; }
  [[nodiscard]] constexpr std::uint8_t& exponent(std::size_t i = 0) const noexcept {
    return exponents[(first + i) / int8_blocks::block_size];
  }
  [[nodiscard]] constexpr float operator[](std::size_t i) const noexcept {
    return int8_blocks::value_of(codes[i], int8_blocks::scale_of(exponent(i)));
  }
  /// visit(numbers, index of the first, how many) for `count` of them, at most 64 at a time.
  template <class Visitor>
  void unpack(std::size_t count, Visitor&& visit) const {
    alignas(64) float values[int8_blocks::block_size];
    for (std::size_t i = 0, n = 0; i < count; i += n) {
      const std::size_t behind = (first + i) % int8_blocks::block_size;
      n = std::min(int8_blocks::block_size - behind, count - i);
      int8_blocks::decode(codes + i - behind, exponent(i), values);
      visit(static_cast<float const*>(values + behind), i, n);
    }
  }
  template <class To>
  void unpack(To* to, std::size_t count) const {
    unpack(count, [to](float const* from, std::size_t i, std::size_t n) { elementwise::convert(from, to + i, n); });
  }
  /// `count` numbers from a block's border on; what its last block lacks is filled up with zeros.
  void pack(float const* from, std::size_t count) const noexcept {
    constexpr std::size_t size = int8_blocks::block_size;
    for (std::size_t i = 0; i < count; i += size) {
      if (count - i >= size) {
        exponent(i) = int8_blocks::encode(from + i, codes + i);
      } else {
        alignas(64) float last[size] = {};
        std::copy_n(from + i, count - i, last);
        exponent(i) = int8_blocks::encode(last, codes + i);
      }
    }
  }
};

/// The part of `count` of them in a digest: that of the bfloat16s that they are.
[[nodiscard]] inline std::uint64_t digest_of(int8_place from, std::size_t count, digest_key key) noexcept {
  std::uint64_t sum = 0;
  from.unpack(count, [&](float const* values, std::size_t i, std::size_t n) {
    bfloat16 narrow[int8_blocks::block_size];
    elementwise::convert(values, narrow, n);
    sum += digest_of(static_cast<bfloat16 const*>(narrow), n, {key(i), key.stride});
  });
  return sum;
}

/// What lies at a place, and where an array of it lies.
template <class Place>
struct number_at {
  using type = std::remove_cv_t<std::remove_pointer_t<Place>>;
};
template <>
struct number_at<int8_place> {
  using type = int8_blocks;
};
template <class Number>
using pointer_to = std::conditional_t<std::is_same_v<std::remove_const_t<Number>, int8_blocks>, int8_place, Number*>;

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
