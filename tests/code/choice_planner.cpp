// SPDX-License-Identifier: Apache-2.0
// Plans against all choices there are, and against L-GreCo's dynamic programme over errors.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <acco/code/choice_planner.hpp>

namespace {

using numbers = std::vector<std::uint64_t>;
constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

struct problem {
  std::size_t items, choices;
  numbers error, size;
  [[nodiscard]] acco::choice_table table() const { return {items, choices, error, size}; }
  [[nodiscard]] std::uint64_t sum(numbers const& of, std::vector<std::uint8_t> const& chosen) const {
    std::uint64_t all = 0;
    for (std::size_t k = 0; k < items; ++k) all += of[k * choices + chosen[k]];
    return all;
  }
  [[nodiscard]] std::uint64_t least_error() const {
    std::uint64_t all = 0;
    for (std::size_t k = 0; k < items; ++k) {
      const auto row = error.begin() + static_cast<std::ptrdiff_t>(k * choices);
      all += *std::min_element(row, row + static_cast<std::ptrdiff_t>(choices));
    }
    return all;
  }
};
/// Small numbers, so that many are equal. Convex: each choice takes as many bytes more, and halves the error.
problem draw(std::mt19937& random, std::size_t items, std::size_t choices, bool convex) {
  problem p{items, choices, {}, {}};
  for (std::size_t item = 0; item < items; ++item) {
    const std::uint64_t scale = 1 + random() % 40, bytes = 1 + random() % 20;
    for (std::size_t k = 0; k < choices; ++k) {
      p.error.push_back(convex ? scale << (choices - 1 - k) : random() % 40);
      p.size.push_back(convex ? bytes * (k + 1) : 1 + random() % 60);
    }
  }
  return p;
}
/// The least size within the budget, by trying everything; `none`: there is none.
std::uint64_t by_brute_force(problem const& p, std::uint64_t budget) {
  std::vector<std::uint8_t> chosen(p.items, 0);
  std::uint64_t least = none;
  while (true) {
    if (p.sum(p.error, chosen) <= budget) least = std::min(least, p.sum(p.size, chosen));
    std::size_t item = 0;
    while (item < p.items && ++chosen[item] == p.choices) chosen[item++] = 0;
    if (item == p.items) return least;
  }
}
/// The same: best[l][e] = min over c of best[l - 1][e - error[l][c]] + size[l][c].
std::uint64_t by_dynamic_programme(problem const& p, std::uint64_t budget) {
  numbers best(budget + 1, 0);
  for (std::size_t item = 0; item < p.items; ++item) {
    numbers next(budget + 1, none);
    for (std::size_t k = item * p.choices; k < (item + 1) * p.choices; ++k) {
      for (std::uint64_t e = p.error[k]; e <= budget; ++e)
        if (best[e - p.error[k]] != none) next[e] = std::min(next[e], best[e - p.error[k]] + p.size[k]);
    }
    best = next;
  }
  return best[budget];
}
std::uint64_t largest_step(problem const& p) {
  std::uint64_t most = 0;
  for (std::size_t k = 0; k < p.items; ++k) {
    const auto row = p.size.begin() + static_cast<std::ptrdiff_t>(k * p.choices);
    const auto [low, high] = std::minmax_element(row, row + static_cast<std::ptrdiff_t>(p.choices));
    most = std::max(most, *high - *low);
  }
  return most;
}

}  // namespace

TEST_CASE("the dynamic programme is as small as the smallest of all; a plan keeps its budget, and is less than a step above") {
  std::mt19937 random(7);
  std::size_t smallest = 0, plans = 0;
  for (int run = 0; run < 400; ++run) {
    CAPTURE(run);
    const problem p = draw(random, 1 + random() % 6, 1 + random() % 4, run % 2 == 0);
    const std::uint64_t least = p.least_error(), budget = least + random() % (2 * least + 2);
    const std::uint64_t size = by_brute_force(p, budget);
    CHECK(by_dynamic_programme(p, budget) == size);
    std::vector<std::uint8_t> chosen(p.items, 9);
    acco::choice_planner planner(p.items, p.choices);
    REQUIRE(planner.plan(p.table(), budget, chosen));
    CHECK(p.sum(p.error, chosen) <= budget);
    CHECK(p.sum(p.size, chosen) >= size);
    CHECK(p.sum(p.size, chosen) < size + std::max<std::uint64_t>(largest_step(p), 1));
    smallest += p.sum(p.size, chosen) == size ? 1 : 0;
    ++plans;
    if (least == 0) continue;
    CHECK(by_brute_force(p, least - 1) == none);
    CHECK_FALSE(planner.plan(p.table(), least - 1, chosen));
    CHECK(p.sum(p.error, chosen) == least);
  }
  CHECK(smallest * 100 > plans * 92);  // what is left of the budget is used
}

TEST_CASE(
    "where the budget is the error of a multiplier's best choices, they are the smallest (Everett), and the plan is as small") {
  std::mt19937 random(11);
  for (int run = 0; run < 60; ++run) {
    const problem p = draw(random, 30, 5, run % 2 == 0);
    const double multiplier = std::exp2(static_cast<double>(random() % 1000) / 125 - 5);
    std::vector<std::uint8_t> chosen(p.items), best(p.items);
    for (std::size_t item = 0; item < p.items; ++item) {
      const auto cost = [&](std::size_t k) {
        return static_cast<double>(p.size[item * p.choices + k]) +
               multiplier * static_cast<double>(p.error[item * p.choices + k]);
      };
      for (std::size_t k = 1; k < p.choices; ++k)
        if (cost(k) < cost(best[item])) best[item] = static_cast<std::uint8_t>(k);
    }
    acco::choice_planner planner(p.items, p.choices);
    REQUIRE(planner.plan(p.table(), p.sum(p.error, best), chosen));
    CAPTURE(run);
    CHECK(p.sum(p.size, chosen) == p.sum(p.size, best));
    CHECK(by_dynamic_programme(p, p.sum(p.error, best)) == p.sum(p.size, best));
  }
}

TEST_CASE("an error in parts of a budget is rounded up: of errors whose parts keep it the sum does") {
  std::mt19937 random(13);
  std::uniform_real_distribution<double> unit(1e-9, 1);
  for (int run = 0; run < 2000; ++run) {
    const double budget = std::ldexp(unit(random), static_cast<int>(random() % 200) - 100), error = budget * unit(random) * 3;
    const auto parts = static_cast<long double>(acco::budget_parts::of(error, budget));
    const long double exact = std::ldexp(static_cast<long double>(error) / static_cast<long double>(budget), 32);
    CHECK(parts > exact);
    CHECK(parts <= exact + 2);
  }
  CHECK(acco::budget_parts::of(0, 0) == 0);
  CHECK(acco::budget_parts::of(1e-300, 0) == acco::budget_parts::most);
  CHECK(acco::budget_parts::of(1e300, 1e-300) == acco::budget_parts::most);
}
