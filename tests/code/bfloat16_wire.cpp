// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <acco/code/bfloat16_wire.hpp>

#include "conformance/encoding.hpp"

TEST_CASE("bfloat16_wire conforms") { conformance::encoding_suite(acco::bfloat16_wire{}, 0x1p-8, 0x1p-16); }

TEST_CASE("every number travels as the bfloat16 next to it") {
  float values[256], decoded[256];
  for (std::size_t i = 0; i < 256; ++i)
    values[i] = static_cast<float>(std::ldexp(problem::unit(i) - 0.5, static_cast<int>(i) - 120));
  std::byte bytes[512];
  acco::bfloat16_wire::encode(values, bytes);
  acco::bfloat16_wire::decode(bytes, decoded);
  for (std::size_t i = 0; i < 256; ++i) CHECK(decoded[i] == static_cast<float>(acco::bfloat16(values[i])));
}
