// SPDX-License-Identifier: Apache-2.0
// Arrays that are encoded with a key for each block, where the code has noise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "acco/encoding/encoding.hpp"
#include "acco/encoding/stochastic_integer.hpp"
#include "acco/number/digest.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The encoding of the block that this key stands for; of a code without noise, the code.
template <class Code>
[[nodiscard]] constexpr auto with_key(Code const& code, std::uint64_t key) noexcept {
  if constexpr (stochastic_encoding<Code>) {
    return code.at(key);
  } else {
    return code;
  }
}
template <class Code>
using encoding_of = decltype(with_key(std::declval<Code const&>(), 0));

/// A key for every message of a training: of an evaluation, counted from 0, a rank and a direction.
struct message_key {
  std::uint64_t seed, evaluation;
  int rank;
  bool down;
  /// Of the block that begins at this element.
  [[nodiscard]] constexpr std::uint64_t of_block(std::size_t element) const noexcept {
    const std::uint64_t sender = static_cast<std::uint64_t>(rank) * 2 + (down ? 2 : 1);
    return mix(mix(mix(seed + evaluation * digest_step) + sender * digest_step) + element * digest_step);
  }
};

/// Calls encode(encoding, offset, how many, where to) for `count` numbers, the first of which is element `index`: once, or, where
/// the code has noise, once for each block.
template <class Code, class Encode>
void encode_keyed(Code const& code, message_key const& key, std::size_t index, std::size_t count, std::byte* to,
                  Encode&& encode) {
  if constexpr (stochastic_encoding<Code>) {
    for (std::size_t i = 0; i < count; i += Code::block_size, to += Code::block_bytes)
      encode(code.at(key.of_block(index + i)), i, std::min(Code::block_size, count - i), to);
  } else {
    encode(code, std::size_t{0}, count, to);
  }
}

}  // namespace ACCO_SIMD_NAMESPACE
