// SPDX-License-Identifier: Apache-2.0
// An encoding that is chosen when the program runs: one engine is compiled, not one for every choice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "acco/encoding/encoding.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One of `Encodings`, whose blocks have the same size: the one with the number `which`. Number and list are the same on every
/// rank (compared when the training begins). Rounds send what that one needs; their buffers have room for the largest. It stands
/// wherever an encoding does, also in `with_error_feedback`.
template <encoding... Encodings>
struct one_of {
  static_assert(!(wrapped<Encodings> || ...),
                "acco: one_of chooses between encodings themselves: put with_error_feedback or without_feedback around it");
  static_assert((std::is_empty_v<Encodings> && ...), "acco: an encoding of one_of has data members, which it would not keep");
  static_assert(sizeof...(Encodings) > 0, "acco: one_of has no encodings to choose from");
  static constexpr char const* name = "one_of";
  static constexpr std::size_t count = sizeof...(Encodings);
  static constexpr std::size_t block_size = std::max({Encodings::block_size...});
  static_assert(((Encodings::block_size == block_size) && ...), "acco: the encodings of one_of have blocks of different sizes");
  static constexpr std::size_t block_bytes = std::max({Encodings::block_bytes...});
  static constexpr bool biased = (acco::biased<Encodings> || ...), loose = (acco::loose<Encodings> || ...);
  static constexpr bool weighs_sources = (acco::weighs_sources<Encodings> || ...);

  std::size_t which = 0;

  /// The encoding with this name; `count` where none has it.
  [[nodiscard]] static constexpr std::size_t find(std::string_view called) noexcept {
    std::size_t k = 0, found = count;
    ((found = found == count && called == Encodings::name ? k : found, ++k), ...);
    return found;
  }
  /// Calls f(encoding) with the chosen one.
  template <class F>
  constexpr void visit(F&& f) const {
    std::size_t k = 0;
    ((k++ == which ? f(Encodings{}) : void()), ...);
  }

  void encode(float const* values, std::byte* bytes) const {
    visit([&](auto const& e) { e.encode(values, bytes); });
  }
  void decode(std::byte const* bytes, float* values) const {
    visit([&](auto const& e) { e.decode(bytes, values); });
  }
  [[nodiscard]] constexpr char const* chosen_name() const noexcept {
    char const* found = "none";
    visit([&](auto const& e) { found = std::remove_cvref_t<decltype(e)>::name; });
    return found;
  }
};

}  // namespace ACCO_SIMD_NAMESPACE
