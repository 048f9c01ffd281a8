// SPDX-License-Identifier: Apache-2.0
// One number for the whole state of a run, whoever owns which part of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/number/digest.hpp"
#include "acco/stage/round_counts.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The digest of a state is the sum, modulo 2^64, over all elements of masters, slots and averages, of
///   mix(bits + (element * arrays + array + 1) * 0x9e3779b97f4a7c15)
/// where `element` is the number of the element among the trainable ones, `array` that of the array, `arrays` how many there are,
/// and `bits` are the element's, as an unsigned number; and of mix(updates + 1) and mix(bits of the samples + 2). A sum, so that
/// every division of the elements over ranks gives the same. (mix is the finalizer of splitmix64: number/digest.hpp.)
[[nodiscard]] constexpr digest_key key_of(std::size_t first, std::size_t array, std::size_t arrays) noexcept {
  return {first * arrays + array + 1, arrays};
}
/// The same with their arithmetic.
struct digest_words : digest_numbers {
  static constexpr digest_words of(std::uint64_t digest) noexcept {
    digest_words w;
    for (std::size_t k = 0; k < count; ++k) w.word[k] = static_cast<double>(digest >> (16 * k) & 0xffffU);
    return w;
  }
  /// Of the sums over ranks: the sum of their digests.
  [[nodiscard]] constexpr std::uint64_t sum() const noexcept {
    std::uint64_t digest = 0;
    for (std::size_t k = 0; k < count; ++k) digest += static_cast<std::uint64_t>(word[k]) << (16 * k);
    return digest;
  }
};

/// The part of the numbers.
[[nodiscard]] constexpr std::uint64_t digest_of(std::uint64_t steps, double samples) noexcept {
  return mix(steps + 1) + mix(bits_of(samples) + 2);
}
/// This rank's part of a copy, without the numbers.
[[nodiscard]] inline std::uint64_t digest_of(state_view const& copy) noexcept {
  std::uint64_t sum = 0;
  const std::size_t arrays = copy.shape.owned();
  for (std::size_t array = 0; array < arrays; ++array) {
    void const* const values = copy.arrays[array];
    copy.shares.for_shares(copy.rank, [&](std::size_t offset, std::size_t first, std::size_t count) {
      if (copy.shape.master == element_type::float64) {
        sum += digest_of(static_cast<double const*>(values) + offset, count, key_of(first, array, arrays));
      } else {
        sum += digest_of(static_cast<float const*>(values) + offset, count, key_of(first, array, arrays));
      }
    });
  }
  return sum;
}

}  // namespace ACCO_SIMD_NAMESPACE
