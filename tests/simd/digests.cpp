// SPDX-License-Identifier: Apache-2.0
// Compiled several times: DIGESTS is the name of what it makes.
#include "simd/digests.hpp"

#include <cstddef>

#include <acco/code/bfloat16_wire.hpp>
#include <acco/code/block_dct_top.hpp>
#include <acco/code/block_gauss.hpp>
#include <acco/code/block_integer.hpp>
#include <acco/code/block_random.hpp>
#include <acco/code/block_sign.hpp>
#include <acco/code/block_stat2.hpp>
#include <acco/code/block_ternary.hpp>
#include <acco/code/block_top.hpp>
#include <acco/code/majority_vote.hpp>
#include <acco/code/rotated.hpp>
#include <acco/storage/coding.hpp>

namespace {

/// FNV-1a, of bytes.
std::uint64_t digest_of(void const* from, std::size_t bytes) {
  std::uint64_t all = 0xcbf29ce484222325U;
  for (std::size_t i = 0; i < bytes; ++i) all = (all ^ static_cast<unsigned char const*>(from)[i]) * 0x100000001b3U;
  return all;
}

template <class Code>
digest of(numbers values) {
  std::vector<std::byte> bytes(acco::encoded_size<Code>(values.size()));
  unsigned long long found = 0, first = 0;
  acco::coding::encode_values(Code{}, values.data(), 0, values.size(), bytes.data(), {&found, &first},
                              acco::rounding_seed(3, 1, 4));
  std::vector<float> decoded(values.size());
  acco::coding::decode_sum(
      Code{}, 1, [&](int) { return static_cast<std::byte const*>(bytes.data()); }, decoded.data(), decoded.size(), false);
  for (float& each : decoded) {
    if (!acco::is_finite(each)) each = 0x1p127F;  // which NaN it is, is nobody's business
  }
  return {Code::name, digest_of(bytes.data(), bytes.size()), digest_of(decoded.data(), decoded.size() * sizeof(float))};
}
template <class... Code>
std::vector<digest> all_of(numbers values) {
  return {of<Code>(values)...};
}

}  // namespace

std::vector<digest> DIGESTS(numbers values) {
  using namespace acco;
  return all_of<bfloat16_wire, block_int4<>, block_int8<>, nearest<block_int4<>>, block_gauss4, block_gauss3, block_gauss2,
                block_stat2, block_ternary, block_sign, majority_vote, rotated<block_gauss3>, rotated<block_int4<>>,
                block_random<32>, scaled_random<64, 4096>, block_top<1>, block_top<16>, block_top<100, 256, 4>,
                block_top<256, 256, 2>, block_top<64, 4096, 2>, block_top<1000, 4096>, block_dct_top<16>,
                block_dct_top<64, 4096, 2>, block_dct2_top<64, 2>>(values);
}
