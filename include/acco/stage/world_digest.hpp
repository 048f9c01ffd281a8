// SPDX-License-Identifier: Apache-2.0
// One number for the whole state of a run, whoever owns which part of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/number/digest.hpp"
#include "acco/stage/round_counts.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The digest of a state is the sum, modulo 2^64, over all elements of masters, slots, averages and every other array
/// of which ranks have shards, of
///   mix(bits + (element * arrays + array + 1) * 0x9e3779b97f4a7c15)
/// where `element` is the number of the element among the trainable ones, `array` that of the array, `arrays` how many
/// there are, and `bits` are the element's, as an unsigned number; and of mix(updates + 1) and mix(bits of the samples
/// + 2). A sum, so that every division of the elements over ranks gives the same. (mix is the finalizer of splitmix64:
/// number/digest.hpp.)
/// Of the arrays that every rank has whole, of its own, the number of an element is
///   2^63 + (element * ranks + rank) * arrays + array.
[[nodiscard]] constexpr digest_key key_of(std::size_t first, std::size_t array, std::size_t arrays) noexcept {
  return {first * arrays + array + 1, arrays};
}
[[nodiscard]] inline digest_key key_of(std::size_t first, std::size_t array, state_shape const& shape, int rank,
                                       int ranks) noexcept {
  const std::size_t shards = shape.shards(), wholes = shape.owned() - shards;
  if (array < shards) return key_of(first, array, shards);
  const auto all = static_cast<std::uint64_t>(ranks);
  return {(std::uint64_t{1} << 63U) + (first * all + static_cast<std::uint64_t>(rank)) * wholes + (array - shards), all * wholes};
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
  /// The sum of all ranks' `digest`s, by over.sum_over_ranks(numbers).
  template <class Ranks>
  [[nodiscard]] static std::uint64_t sum_over(Ranks& over, std::uint64_t digest) {
    digest_words words = of(digest);
    over.sum_over_ranks(words.word);
    return words.sum();
  }
};

/// The part of the numbers.
[[nodiscard]] constexpr std::uint64_t digest_of(std::uint64_t steps, double samples) noexcept {
  return mix(steps + 1) + mix(bits_of(samples) + 2);
}
/// Of elements of a type.
[[nodiscard]] inline std::uint64_t digest_of(element_type type, std::byte const* values, std::size_t count,
                                             digest_key key) noexcept {
  void const* const array = values;
  switch (type) {
    case element_type::float64: return digest_of(static_cast<double const*>(array), count, key);
    case element_type::float32: return digest_of(static_cast<float const*>(array), count, key);
    case element_type::bfloat16:
    case element_type::float16: break;
  }
  return digest_of(static_cast<std::uint16_t const*>(array), count, key);  // whose bits those are
}
/// This rank's part of a copy, without the numbers.
[[nodiscard]] inline std::uint64_t digest_of(state_view const& copy) noexcept {
  std::uint64_t sum = 0;
  state_shape const& shape = *copy.shape;
  for (std::size_t array = 0; array < shape.owned(); ++array) {
    const std::size_t size = size_of(shape.type(array));
    const auto add = [&](std::size_t index, std::size_t first, std::size_t count) {
      sum += digest_of(shape.type(array), copy.arrays[array] + index * size, count,
                       key_of(first, array, shape, copy.rank, copy.shares.ranks()));
    };
    for_elements_of(shape.extent(array), copy.shares, copy.rank, add);
  }
  return sum;
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
