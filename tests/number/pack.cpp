// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/number/pack.hpp>

namespace {
template <class Pack, class F, class T>
void same_in_every_lane(std::vector<T> const& a, std::vector<T> const& b, F f) {
  const auto packed = f(Pack::load(a.data()), Pack::load(b.data()));
  T got[Pack::lanes];
  packed.store(got);
  for (std::size_t i = 0; i < Pack::lanes; ++i) CHECK(got[i] == f(a[i], b[i]));
}
}  // namespace

// The sentences for rules that do not suit it (tests/compile_fail/rule_body.cpp) cost nothing.
static_assert(sizeof(acco::pack<float>) == acco::simd_bytes && sizeof(acco::pack<double, 1>) == sizeof(double));
static_assert(std::is_trivially_copyable_v<acco::pack<float>> && std::is_trivially_default_constructible_v<acco::pack<float>>);

TEST_CASE_TEMPLATE("a pack computes what its scalars would", P, acco::pack<float>, acco::pack<double>, acco::pack<float, 1>,
                   acco::pack<float, 4>, acco::pack<double, 1>) {
  using T = std::remove_cvref_t<decltype(P{}.value[0])>;
  std::vector<T> a, b;
  for (std::size_t i = 0; i < P::lanes; ++i) {
    a.push_back(static_cast<T>(0.37 * static_cast<double>(i) - 1.5));
    b.push_back(static_cast<T>(2.5 - 0.61 * static_cast<double>(i)));
  }
  a[0] = 0;
  using acco::absolute, acco::maximum, acco::sign, acco::square_root;
  same_in_every_lane<P>(a, b, [](auto x, auto y) { return x + y; });
  same_in_every_lane<P>(a, b, [](auto x, auto y) { return x - y; });
  same_in_every_lane<P>(a, b, [](auto x, auto y) { return x * y; });
  same_in_every_lane<P>(a, b, [](auto x, auto y) { return x / y; });
  same_in_every_lane<P>(a, b, [](auto x, auto) { return -x; });
  same_in_every_lane<P>(a, b, [](auto x, auto y) { return maximum(x, y); });
  same_in_every_lane<P>(a, b, [](auto x, auto) { return sign(x); });
  same_in_every_lane<P>(a, b, [](auto x, auto) { return absolute(x); });
  same_in_every_lane<P>(a, b, [](auto x, auto) { return square_root(absolute(x)); });
}

TEST_CASE_TEMPLATE("packs convert to and from bfloat16 exactly like the scalar type, special values included", P,
                   acco::pack<float>, acco::pack<float, 4>, acco::pack<double>) {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; high += 3) {
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      values.push_back(std::bit_cast<float>((high << 16U) | low));
  }
  while (values.size() % P::lanes != 0) values.push_back(1);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); i += P::lanes) {
    acco::bfloat16 got[P::lanes];
    P::load(values.data() + i).store(got);
    float wide[P::lanes];
    P::load(got).store(wide);
    for (std::size_t k = 0; k < P::lanes; ++k) {
      const acco::bfloat16 expected(values[i + k]);
      const bool not_a_number = std::isnan(values[i + k]);
      wrong += not_a_number ? (std::isnan(static_cast<float>(got[k])) ? 0U : 1U) : (got[k].bits() == expected.bits() ? 0U : 1U);
      wrong += not_a_number || std::bit_cast<std::uint32_t>(wide[k]) == std::bit_cast<std::uint32_t>(static_cast<float>(expected))
                   ? 0U
                   : 1U;
    }
  }
  CHECK(wrong == 0);
}
