// SPDX-License-Identifier: Apache-2.0
// A code of tiles, and where the numbers of its blocks lie: a code itself knows one block.
#pragma once

#include <algorithm>
#include <cstddef>

#include "acco/code/encoding.hpp"
#include "acco/layout/tiles.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// An encoding of arrays whose blocks lie where `places` says.
template <encoding Encoding>
struct in_places : Encoding {
  static_assert(Encoding::block_size == block_place::size, "acco: a code that is of_tiles has blocks of 4096 numbers");
  block_places places = {};
};
template <class Encoding>
concept placed_code = requires(Encoding const& e) { e.places.each; };

/// Of an array of `count` numbers: how many blocks, and how many bytes.
template <encoding Encoding>
[[nodiscard]] constexpr std::size_t blocks_in([[maybe_unused]] Encoding const& e, std::size_t count) noexcept {
  if constexpr (placed_code<Encoding>) {
    if (e.places.each != 0) return e.places.each;
  }
  return encoded_size<Encoding>(count) / Encoding::block_bytes;
}
template <encoding Encoding>
[[nodiscard]] constexpr std::size_t code_size(Encoding const& e, std::size_t count) noexcept {
  return blocks_in(e, count) * Encoding::block_bytes;
}
/// The code of the k-th of several arrays that follow each other.
template <encoding Encoding>
[[nodiscard]] constexpr Encoding of_slice(Encoding e, [[maybe_unused]] std::size_t k) noexcept {
  if constexpr (placed_code<Encoding>) {
    if (e.places.each != 0) e.places = e.places.share(k);
  }
  return e;
}
/// Calls visit(number in the block, number in the array, how many) for the neighbours that block k of an array
/// of `count` numbers consists of.
template <encoding Encoding, class Visitor>
constexpr void for_neighbours([[maybe_unused]] Encoding const& e, std::size_t k, std::size_t count, Visitor&& visit) {
  if constexpr (placed_code<Encoding>) {
    if (e.places.each != 0) {
      block_place const place = e.places.of[k];
      for (std::size_t row = 0; row < place.rows; ++row)
        visit(row * block_place::side, place.begin + row * place.stride, std::size_t{place.columns});
      return;
    }
  }
  constexpr std::size_t block = Encoding::block_size;
  visit(std::size_t{0}, k * block, std::min(block, count - k * block));
}
/// Where in the array its number i lies.
template <encoding Encoding>
[[nodiscard]] constexpr std::size_t place_in([[maybe_unused]] Encoding const& e, std::size_t k, std::size_t i) noexcept {
  if constexpr (placed_code<Encoding>) {
    if (e.places.each != 0) return e.places.of[k].at(i);
  }
  return k * Encoding::block_size + i;
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
