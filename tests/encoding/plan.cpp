// SPDX-License-Identifier: Apache-2.0
// The plan of codes against all choices, and against a dynamic programme over errors.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <acco/encoding/plan.hpp>

namespace {

struct problem {
  std::size_t items, choices;
  std::vector<double> error, size;
  [[nodiscard]] acco::choice_table table() const { return {items, choices, error, size}; }
};
struct cost {
  double error = 0, size = 0;
};
cost cost_of(problem const& p, std::vector<std::uint8_t> const& chosen) {
  cost c;
  for (std::size_t k = 0; k < p.items; ++k) {
    c.error += p.table().error_of(k, chosen[k]);
    c.size += p.table().size_of(k, chosen[k]);
  }
  return c;
}
problem draw(std::mt19937& random, std::size_t items, std::size_t choices, bool convex) {
  problem p{items, choices, std::vector<double>(items * choices), std::vector<double>(items * choices)};
  std::uniform_real_distribution<double> unit(0.01, 1);
  for (std::size_t item = 0; item < items; ++item) {
    const double scale = std::exp(3 * unit(random)), bytes = std::floor(1 + 99 * unit(random));
    for (std::size_t k = 0; k < choices; ++k) {
      p.size[item * choices + k] = convex ? bytes * static_cast<double>(k + 1) : std::floor(1 + 400 * unit(random));
      p.error[item * choices + k] = convex ? scale * std::pow(0.25, static_cast<double>(k)) : scale * unit(random);
    }
  }
  return p;
}
/// The least size within the budget, by trying everything.
double least_size(problem const& p, double budget) {
  std::vector<std::uint8_t> chosen(p.items, 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    const cost c = cost_of(p, chosen);
    if (c.error <= budget) least = std::min(least, c.size);
    std::size_t item = 0;
    while (item < p.items && ++chosen[item] == p.choices) chosen[item++] = 0;
    if (item == p.items) return least;
  }
}
/// The same, with errors cut to whole parts of the budget, rounded up: never below the truth.
double by_dynamic_programme(problem const& p, double budget, std::size_t levels) {
  std::vector<double> best(levels + 1, 0);
  for (std::size_t item = 0; item < p.items; ++item) {
    std::vector<double> next(levels + 1, std::numeric_limits<double>::infinity());
    for (std::size_t k = 0; k < p.choices; ++k) {
      const double parts = std::ceil(p.table().error_of(item, k) * static_cast<double>(levels) / budget);
      if (parts > static_cast<double>(levels)) continue;
      for (auto at = static_cast<std::size_t>(parts); at <= levels; ++at)
        next[at] = std::min(next[at], best[at - static_cast<std::size_t>(parts)] + p.table().size_of(item, k));
    }
    best = next;
  }
  return best[levels];
}
double largest_step(problem const& p) {
  double most = 0;
  for (std::size_t item = 0; item < p.items; ++item) {
    const auto begin = p.size.begin() + static_cast<std::ptrdiff_t>(item * p.choices);
    const auto [low, high] = std::minmax_element(begin, begin + static_cast<std::ptrdiff_t>(p.choices));
    most = std::max(most, *high - *low);
  }
  return most;
}
double least_error(problem const& p) {
  double sum = 0;
  for (std::size_t item = 0; item < p.items; ++item) {
    const auto begin = p.error.begin() + static_cast<std::ptrdiff_t>(item * p.choices);
    sum += *std::min_element(begin, begin + static_cast<std::ptrdiff_t>(p.choices));
  }
  return sum;
}

}  // namespace

TEST_CASE("a plan keeps its budget, and is a step or less above the smallest of all") {
  std::mt19937 random(7);
  std::size_t best = 0, planned = 0;
  for (int run = 0; run < 400; ++run) {
    const problem p = draw(random, 1 + random() % 6, 1 + random() % 4, run % 2 == 0);
    const double budget = least_error(p) * (1 + 0.05 * static_cast<double>(random() % 60));
    std::vector<std::uint8_t> chosen(p.items, 9);
    acco::choice_planner planner(p.items, p.choices);
    REQUIRE(planner.plan(p.table(), budget * (1 + 1e-9), chosen));
    const cost c = cost_of(p, chosen);
    CAPTURE(run);
    CHECK(c.error <= budget * (1 + 1e-9));
    const double least = least_size(p, budget * (1 + 1e-9));
    CHECK(c.size >= least);
    CHECK(c.size <= least + largest_step(p));
    best += c.size == least ? 1 : 0;
    ++planned;
  }
  MESSAGE(best, " of ", planned, " plans are the smallest");
  CHECK(best * 10 > planned * 9);  // what is left of the budget is used
}

TEST_CASE("of many items the sweep is near the dynamic programme") {
  std::mt19937 random(11);
  for (int run = 0; run < 4; ++run) {
    const problem p = draw(random, 60, 5, true);
    const double budget = 12 * least_error(p);
    std::vector<std::uint8_t> chosen(p.items);
    acco::choice_planner planner(p.items, p.choices);
    REQUIRE(planner.plan(p.table(), budget, chosen));
    const cost c = cost_of(p, chosen);
    CHECK(c.error <= budget);
    CHECK(c.size <= 1.02 * by_dynamic_programme(p, budget, 10000));
    double largest = 0;
    for (std::size_t item = 0; item < p.items; ++item) largest += p.table().size_of(item, p.choices - 1);
    CHECK(c.size < 0.9 * largest);
  }
}

TEST_CASE("where no choice keeps the budget, every error is the least") {
  const problem p{2, 3, {5, 2, 1, 4, 4, 0.5}, {1, 2, 9, 1, 1, 3}};
  std::vector<std::uint8_t> chosen(2);
  acco::choice_planner planner(2, 3);
  CHECK_FALSE(planner.plan(p.table(), 1, chosen));
  CHECK(chosen == std::vector<std::uint8_t>{2, 2});
  CHECK(planner.plan(p.table(), 1.5, chosen));
  CHECK(planner.plan(p.table(), 9, chosen));
  CHECK(chosen == std::vector<std::uint8_t>{0, 0});
  CHECK(planner.plan(p.table(), 2.5, chosen));  // between: the item whose bytes save more error gets them
  CHECK(chosen == std::vector<std::uint8_t>{1, 2});
}
