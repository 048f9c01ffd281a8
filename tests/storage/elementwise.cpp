// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/rule/adamw.hpp>
#include <acco/storage/elementwise.hpp>

#include "support/problem.hpp"
#include "support/update_arrays.hpp"

using acco::bfloat16;

namespace {
template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<T> v;
  for (std::size_t i = 0; i < count; ++i) v.push_back(T(static_cast<float>(4 * problem::unit(seed + i) - 2)));
  return v;
}
}  // namespace

TEST_CASE("convert and add work for every pair of types and every remainder, and touch nothing else") {
  const auto check = [](auto from_type, auto to_type) {
    using From = decltype(from_type);
    using To = decltype(to_type);
    for (const std::size_t count : {0U, 1U, 7U, 8U, 16U, 33U, 100U}) {
      const auto from = numbers<From>(count, 1);
      auto to = numbers<To>(count + 1, 900);
      const auto before = to;
      acco::elementwise::add(from.data(), to.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        using wide = acco::elementwise::wider<From, To>;
        CHECK(static_cast<double>(to[i]) == static_cast<double>(To(static_cast<wide>(before[i]) + static_cast<wide>(from[i]))));
      }
      CHECK(static_cast<double>(to[count]) == static_cast<double>(before[count]));
      acco::elementwise::convert(from.data(), to.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(static_cast<double>(to[i]) == static_cast<double>(To(static_cast<acco::elementwise::wider<From, To>>(from[i]))));
      }
      CHECK(static_cast<double>(to[count]) == static_cast<double>(before[count]));
    }
  };
  check(float{}, float{});
  check(float{}, double{});
  check(double{}, float{});
  check(bfloat16{}, float{});
  check(float{}, bfloat16{});
  check(bfloat16{}, bfloat16{});
  check(bfloat16{}, double{});
  check(double{}, bfloat16{});
}

TEST_CASE("sum_sources sums in rank order, in at least fp32, and can add to its destination") {
  for (const std::size_t count : {1U, 5U, 1023U, 1024U, 2500U}) {
    std::vector<std::vector<float>> sources;
    for (std::uint64_t k = 0; k < 5; ++k) sources.push_back(numbers<float>(count, k * 7777));
    std::vector<float> out(count, 0.5F);
    acco::elementwise::sum_sources(
        5, [&](int k) { return static_cast<float const*>(sources[static_cast<std::size_t>(k)].data()); }, out.data(), count,
        true);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float sum = (((sources[0][i] + sources[1][i]) + sources[2][i]) + sources[3][i]) + sources[4][i];
      wrong += out[i] == 0.5F + sum ? 0U : 1U;
    }
    CHECK(wrong == 0);
  }
  // 256 + 1 + 1 is lost in bfloat16, not here
  const std::vector<bfloat16> big(1, bfloat16(256.0F)), one(1, bfloat16(1.0F));
  float total = 0;
  acco::elementwise::sum_sources(
      3, [&](int k) { return static_cast<bfloat16 const*>(k == 0 ? big.data() : one.data()); }, &total, 1, false);
  CHECK(total == 258.0F);
}

TEST_CASE("sum_of_squares is exact where it must be, and does not overflow where floats would") {
  for (const std::size_t count : {0U, 1U, 31U, 32U, 33U, 1000U}) {
    const std::vector<float> v(count, 3.0F);
    CHECK(acco::elementwise::sum_of_squares(v.data(), count) == 9.0 * static_cast<double>(count));
  }
  const std::vector<float> large(10, 1e30F);
  CHECK(acco::elementwise::sum_of_squares(large.data(), 10) == doctest::Approx(1e61));
  std::vector<float> poisoned(100, 1.0F);
  poisoned[77] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(std::isfinite(acco::elementwise::sum_of_squares(poisoned.data(), 100)));
  std::size_t first = 0;
  CHECK(acco::elementwise::count_non_finite(poisoned.data(), 100, first) == 1);
  CHECK(first == 77);
}

TEST_CASE("an element's update does not depend on where it lies: cut anywhere, the results are bit-identical") {
  const acco::adamw rule{.learning_rate = 0.01};
  const auto constants = rule.prepare({.count = 3}, {});
  const auto gradient = numbers<float>(100, 5);
  auto master = numbers<float>(100, 50), first = numbers<float>(100, 500), second = numbers<float>(100, 5000);
  for (float& v : second) v *= v;
  auto pieces_master = master, pieces_first = first, pieces_second = second;
  std::vector<float> out(100), pieces_out(100);
  const auto update = [&](acco::update_table<acco::adamw, float, float> const& arrays, float* to, std::size_t count) {
    update_now<acco::adamw, acco::update::commit>(constants, constants, 0.1, arrays, to, count);
  };
  update({master.data(), {first.data(), second.data()}, gradient.data()}, out.data(), 100);
  for (std::size_t i = 0; i < 100; i += 7) {
    update({pieces_master.data() + i, {pieces_first.data() + i, pieces_second.data() + i}, gradient.data() + i},
           pieces_out.data() + i, std::min<std::size_t>(7, 100 - i));
  }
  CHECK(master == pieces_master);
  CHECK(first == pieces_first);
  CHECK(second == pieces_second);
  CHECK(out == pieces_out);
}
