// SPDX-License-Identifier: Apache-2.0
// The suspicion by itself: what an array holds before and after each micro-batch of a trainer that clears, or does not.
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>

#include <doctest/doctest.h>

#include <acco/usage/cleared_gradients.hpp>

#include "support/problem.hpp"

namespace {

constexpr std::size_t count = 700;
/// An element's gradient in a micro-batch: `first` is the first one of its part.
using gradient = std::function<double(std::size_t m, std::size_t i, bool first)>;

double noise(std::size_t m, std::size_t i) { return 2 * problem::unit(m * 3571 + i) - 1; }
double all(std::size_t i) { return 1 + static_cast<double>(i % 3); }

/// How often it is said in 1200 micro-batches, `part` of which are added up; every `clears`-th one clears
/// first, from `from` on, 0: none.
int said(gradient const& of, std::size_t clears, std::size_t part = 2, std::size_t from = 0) {
  acco::cleared_gradients suspicion;
  std::array<double, count> x{};
  int times = 0;
  for (std::size_t m = 0; m < 1200; ++m) {
    if (m % part == 0) x.fill(0);
    for (std::size_t i = 0; i < count; ++i) {
      const double before = x[i], kept = clears != 0 && m % clears == from ? 0 : before;
      x[i] = kept + of(m, i, m % part == 0);
      suspicion.look(before, x[i]);
    }
    times += suspicion.suspect() ? 1 : 0;
  }
  return times;
}

}  // namespace

TEST_CASE("clearing is said once, of noise, of sparse, louder and uneven gradients, and where it happens now and then") {
  CHECK(said([](auto m, auto i, bool) { return noise(m, i); }, 1) == 1);
  CHECK(said([](auto m, auto i, bool) { return (i + m) % 10 == 0 ? noise(m, i) : 0; }, 1) == 1);
  CHECK(said([](auto m, auto i, bool first) { return first ? noise(m, i) : 1.5 * noise(m, i); }, 1) == 1);
  CHECK(said([](auto m, auto i, bool) { return noise(m, i) * std::exp(2 * problem::unit(m) - 1); }, 1) == 1);
  CHECK(said([](auto m, auto i, bool) { return noise(m, i); }, 2, 8) == 1);
  CHECK(said([](auto m, auto i, bool) { return noise(m, i); }, 4, 6) == 1);
  // an estimate's three, in place
  CHECK(said([](auto m, auto i, bool) { return all(i) + noise(m, i); }, 4, 4, 3) == 1);
}

TEST_CASE("gradients that are added are no clearing, however they differ, agree, or undo each other") {
  const gradient added[] = {
      [](auto m, auto i, bool) { return noise(m, i); },
      [](auto m, auto i, bool) { return (i + m) % 10 == 0 ? noise(m, i) : 0; },
      [](auto m, auto i, bool) { return all(i) + noise(m, i); },
      [](auto m, auto i, bool first) { return first ? noise(m, i) : noise(m, i) / 2; },
      [](auto m, auto i, bool first) { return first == (i % 2 == 0) ? noise(m, i) : noise(m, i) / 4; },
      [](auto m, auto i, bool first) { return i % 10 < (first ? 6U : 2U) ? noise(m, i) : 0; },
      [](auto m, auto i, bool first) { return first ? noise(m, i) : 0; },
      [](auto, auto, bool) { return 0.0; },
      [](auto m, auto i, bool first) { return first ? all(i) + noise(m, i) : -1.9 * all(i); },
      [](auto m, auto i, bool) { return (m == 120 ? 1e10 : 1e-3) * std::sin(static_cast<double>(i * m)); },
      // noise of one direction, and of two, as where few outputs decide: what undoes is as frequent as what doubles
      [](auto m, auto i, bool) { return noise(m, count) * all(i); },
      [](auto m, auto i, bool) { return noise(m, count) * all(i) + noise(m, count + 1) * std::cos(static_cast<double>(i)); },
  };
  for (gradient const& each : added) {
    CAPTURE(&each - added);
    CHECK(said(each, 0) == 0);
  }
  for (const double factor : {-0.999, -1.001, -3.0, -9.0, -12.0, -30.0}) {
    CAPTURE(factor);
    CHECK(
        said([&](auto m, auto i, bool) { return (m % 2 == 0 ? 1 : factor) * (1.0 + static_cast<double>((i * 7 + m / 2) % 13)); },
             0) == 0);
  }
}
