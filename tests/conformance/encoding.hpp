// SPDX-License-Identifier: Apache-2.0
// What every encoding must satisfy, alone and in arrays of all element types and lengths.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/storage/coding.hpp>

#include "support/problem.hpp"

namespace conformance {

/// |decoded - value| is at most `bound` times the largest magnitude of the block; the sum of its squares at most `lost`
/// times the values', and that of differences likewise.
template <class Encoding, class T>
void round_trip(Encoding const& e, double bound, double lost) {
  constexpr std::size_t block = Encoding::block_size;
  for (const std::size_t count : {std::size_t{1}, block - 1, block, block + 1, 3 * block + 17}) {
    CAPTURE(count);
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] =
          T(static_cast<float>((2 * problem::unit(i * 7 + 1) - 1) * std::pow(10.0, static_cast<double>(i / block) * 3 - 6)));
    const std::size_t bytes = acco::encoded_size<Encoding>(count);
    std::vector<std::byte> encoded(bytes + 1, std::byte{0x5a});
    unsigned long long found = 0, first = ~0ULL;
    acco::coding::encode_values(e, values.data(), 0, count, encoded.data(), {&found, &first});
    CHECK(found == 0);
    CHECK(encoded[bytes] == std::byte{0x5a});  // no byte behind the last
    std::vector<double> decoded(count, 5.0), twice(count, 5.0);
    const auto source = [&](int) { return static_cast<std::byte const*>(encoded.data()); };
    acco::coding::decode_sum(e, 1, source, decoded.data(), count, false);
    acco::coding::decode_sum(e, 2, source, twice.data(), count, true);
    std::size_t wrong = 0;
    for (std::size_t b = 0; b < count; b += block) {
      double largest = 0, squares = 0, missing = 0;
      const std::size_t end = std::min(b + block, count);
      for (std::size_t i = b; i < end; ++i) largest = std::max(largest, std::abs(static_cast<double>(values[i])));
      for (std::size_t i = b; i < end; ++i) {
        wrong += std::abs(decoded[i] - static_cast<double>(values[i])) <= bound * largest ? 0U : 1U;
        squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        missing += (decoded[i] - static_cast<double>(values[i])) * (decoded[i] - static_cast<double>(values[i]));
        wrong += twice[i] == 5 + static_cast<double>(static_cast<float>(decoded[i]) + static_cast<float>(decoded[i])) ? 0U : 1U;
      }
      wrong += missing <= lost * squares ? 0U : 1U;
    }
    CHECK(wrong == 0);

    // the same as a difference against what every rank holds, in two runs with a gap between them
    const acco::trainable_run runs[2] = {{0, 2, count / 2}, {count / 2, count / 2 + 9, count - count / 2}};
    std::vector<T> held(count + 9), target(count), arrived(count);
    for (std::size_t i = 0; i < held.size(); ++i) held[i] = T(static_cast<float>(problem::unit(i + 3)));
    const auto in_use = [&](std::size_t i) { return held[i < count / 2 ? i + 2 : i + 9]; };
    for (std::size_t i = 0; i < count; ++i)
      target[i] = T(static_cast<float>(in_use(i)) + 0.01F * static_cast<float>(problem::unit(i * 5)));
    const acco::trainable_view<T> view{held.data(), runs, 2};
    for (const std::size_t begin : {std::size_t{0}, count / 3}) {
      acco::coding::encode_difference(e, target.data() + begin, view, begin, count - begin, encoded.data(), {&found, &first});
      acco::coding::decode_onto(e, encoded.data(), view, begin, count - begin, arrived.data() + begin);
      double squares = 0, missing = 0;
      for (std::size_t i = begin; i < count; ++i) {
        const double rounding = sizeof(T) == 2 ? 0x1p-8 : 1e-7;
        const double off = static_cast<double>(arrived[i]) - static_cast<double>(target[i]);
        squares += std::pow(static_cast<double>(target[i]) - static_cast<double>(in_use(i)), 2);
        missing += std::pow(std::max(0.0, std::abs(off) - rounding), 2);
        wrong += std::abs(static_cast<double>(arrived[i]) - static_cast<double>(target[i])) <= 0.011 * bound + rounding ? 0U : 1U;
      }
      wrong += missing <= lost * squares ? 0U : 1U;
    }
    CHECK(wrong == 0);
    CHECK(found == 0);
  }
}

/// What is not finite is found, wherever it is, and its block does not decode to finite numbers only. Nothing else is.
template <class Encoding>
void refusal(Encoding const& e) {
  constexpr std::size_t block = Encoding::block_size;
  for (const float good : {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(), 0.0F}) {
    std::vector<float> values(block + 1, good);
    values[1] = -good;
    std::vector<std::byte> encoded(acco::encoded_size<Encoding>(values.size()));
    unsigned long long found = 0, first = ~0ULL;
    acco::coding::encode_values(e, values.data(), 0, values.size(), encoded.data(), {&found, &first});
    CHECK(found == 0);
    if constexpr (acco::says_non_finite<Encoding>) CHECK(!Encoding::says_non_finite(encoded.data()));
  }
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t at : {std::size_t{0}, block - 1, 2 * block, 2 * block + 4}) {
      std::vector<float> values(2 * block + 5, 1.0F), decoded(values.size());
      values[at] = bad;
      std::vector<std::byte> encoded(acco::encoded_size<Encoding>(values.size()));
      unsigned long long found = 0, first = ~0ULL;
      acco::coding::encode_values(e, values.data(), 1000, values.size(), encoded.data(), {&found, &first});
      CHECK(found == 1);
      CHECK(first == 1000 + at);
      acco::coding::decode_sum(
          e, 1, [&](int) { return static_cast<std::byte const*>(encoded.data()); }, decoded.data(), decoded.size(), false);
      std::size_t where = 0;
      CHECK(acco::elementwise::count_non_finite(decoded.data(), decoded.size(), where) > 0);
      CHECK(where / block == at / block);
    }
  }
}

/// Of numbers that are equally likely from -1 to 1, whose squares are a third of the largest one's.
template <class Encoding>
void encoding_suite(Encoding const& e, double bound, double lost) {
  static_assert(acco::encoding<Encoding>);
  REQUIRE(lost < 1);  // or what decodes everything to 0 passes
  round_trip<Encoding, float>(e, bound, lost);
  round_trip<Encoding, double>(e, bound * 1.0001, lost);
  round_trip<Encoding, acco::bfloat16>(e, bound, lost);
  refusal(e);
  // zeros stay zeros
  std::vector<float> zeros(Encoding::block_size, 0.0F), decoded(Encoding::block_size, 1.0F);
  std::byte encoded[Encoding::block_bytes];
  e.encode(zeros.data(), encoded);
  e.decode(encoded, decoded.data());
  CHECK(decoded == zeros);
}

}  // namespace conformance
