// SPDX-License-Identifier: Apache-2.0
// A code of turned blocks: numbers with long tails become nearly Gaussian, and what is far out is not cut off.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "acco/code/block_scale.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/hadamard.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// `Code` of the block, turned by random signs and a Hadamard transform, which makes most blocks' numbers nearly
/// Gaussian, whatever they were: `rotated<block_gauss3>` then loses 0.0345 of the squares. It costs 2 or 4 bytes
/// a block, which say whether it was turned, and pays from three bits down. A block that holds a 0 is not turned, so
/// a 0 stays what it is in `Code`. What `Code` rounds at random is right in the mean here, too.
///
/// What is lost is spread over the block: where one number has nearly all of the squares, the others become noise.
template <encoding Code>
struct rotated : Code {
  static_assert(Code::block_size == hadamard::size, "acco: blocks that are turned have 256 numbers");
  static_assert(!sums_codes<Code>, "acco: codes that are added before they are decoded are not turned: a sum has no rotation");
  using says = says_as<rotated, Code>;
  /// Behind the code; so many that blocks of words stay aligned.
  static constexpr std::size_t flag_bytes = Code::block_bytes % 4 == 0 ? 4 : 2;
  static constexpr std::size_t block_bytes = Code::block_bytes + flag_bytes;

  void encode(float const* values, std::byte* bytes) const {
    with_turned(values, bytes, [&](float const* from) { Code::encode(from, bytes); });
  }
  void encode(float const* values, std::byte* bytes, std::uint32_t random) const
    requires rounds_at_random<Code>
  {
    with_turned(values, bytes, [&](float const* from) { Code::encode(from, bytes, random); });
  }
  void decode(std::byte const* bytes, float* values) const {
    Code::decode(bytes, values);
    if (bytes[Code::block_bytes] != std::byte{}) hadamard::turn_back(values);
  }

 private:
  template <class Encode>
  static void with_turned(float const* values, std::byte* bytes, Encode const& encode_from) {
    alignas(64) float turned[hadamard::size];
    const bool turns = hadamard::turn(values, turned);
    encode_from(turns ? turned : values);
    std::memset(bytes + Code::block_bytes, turns ? 1 : 0, flag_bytes);
  }
  struct text_of_name {
    std::array<char, std::string_view(Code::name).size() + 9> text{};
    constexpr text_of_name() {
      std::size_t at = 0;
      for (std::string_view const part : {std::string_view("rotated_"), std::string_view(Code::name)}) {
        for (const char each : part) text[at++] = each;
      }
    }
  };
  static constexpr text_of_name name_text{};

 public:
  static constexpr char const* name = name_text.text.data();
};
template <class Code>
rotated(Code) -> rotated<Code>;

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
