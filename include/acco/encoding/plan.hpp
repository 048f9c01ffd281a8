// SPDX-License-Identifier: Apache-2.0
// Which of several codes each part of an array should travel by: the fewest bytes within a budget of error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/version.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What may be chosen for each of `items` things: `error[item * choices + choice]`, and likewise `size`, are what a choice costs.
/// No number is negative; all are finite.
struct choice_table {
  std::size_t items = 0, choices = 0;
  std::span<double const> error, size;
  [[nodiscard]] double error_of(std::size_t item, std::size_t choice) const { return error[item * choices + choice]; }
  [[nodiscard]] double size_of(std::size_t item, std::size_t choice) const { return size[item * choices + choice]; }
};

/// Chooses for every item so that the sum of the errors stays within a budget and the sum of the sizes is small: the problem of
/// L-GreCo (Alimohammadi et al., arXiv 2210.17357), solved by a sweep over the multiplier of its Lagrangian instead of by a
/// dynamic programme. Of an item only choices on the lower convex hull of (size, error) win for some multiplier. From the
/// smallest choice of every item on, steps along the hulls are taken in the order of the error that they save for a byte, until
/// the budget holds; what the last step saved too much, smaller choices that still fit use up. The size is above the least
/// possible one by less than the largest step of an item. The same numbers give the same choices: every rank makes the same plan.
///
/// Allocates when it is made, and not later.
class choice_planner {
 public:
  choice_planner() = default;
  choice_planner(std::size_t items, std::size_t choices) {
    steps_.reserve(items * choices);
    order_.reserve(choices);
    hull_.reserve(choices);
  }

  /// Writes each item's choice, `table.items` numbers. False where no choices keep the budget: then every error is the least.
  bool plan(choice_table const& table, double budget, std::span<std::uint8_t> chosen) {
    steps_.clear();
    double error = 0;
    for (std::size_t item = 0; item < table.items; ++item) {
      find_hull(table, item);
      chosen[item] = static_cast<std::uint8_t>(hull_[0].choice);
      error += table.error_of(item, hull_[0].choice);
      for (std::size_t k = 1; k < hull_.size(); ++k) steps_.push_back(hull_[k]);
    }
    std::sort(steps_.begin(), steps_.end(), [](step const& a, step const& b) {
      return a.saved_a_byte != b.saved_a_byte ? a.saved_a_byte > b.saved_a_byte : a.item < b.item;
    });
    std::size_t taken = 0;
    for (; taken < steps_.size() && !(error <= budget); ++taken) {
      step const& each = steps_[taken];
      error -= table.error_of(each.item, chosen[each.item]) - table.error_of(each.item, each.choice);
      chosen[each.item] = static_cast<std::uint8_t>(each.choice);
    }
    error = 0;
    for (std::size_t item = 0; item < table.items; ++item) error += table.error_of(item, chosen[item]);
    for (; taken < steps_.size() && error > budget; ++taken) {  // by what rounding had left out
      step const& each = steps_[taken];
      error += table.error_of(each.item, each.choice) - table.error_of(each.item, chosen[each.item]);
      chosen[each.item] = static_cast<std::uint8_t>(each.choice);
    }
    if (error > budget) return false;
    const double most = budget * (1 - 1e-12);  // these sums round, too
    for (std::size_t item = 0; item < table.items; ++item) {
      const double others = error - table.error_of(item, chosen[item]);
      for (std::size_t choice = 0; choice < table.choices; ++choice) {
        if (table.size_of(item, choice) < table.size_of(item, chosen[item]) && others + table.error_of(item, choice) <= most)
          chosen[item] = static_cast<std::uint8_t>(choice);
      }
      error = others + table.error_of(item, chosen[item]);
    }
    return true;
  }

 private:
  struct step {
    double saved_a_byte;
    std::size_t item, choice;
  };

  /// The item's lower convex hull, from the smallest choice on; the ratios fall.
  void find_hull(choice_table const& table, std::size_t item) {
    order_.clear();
    for (std::size_t choice = 0; choice < table.choices; ++choice) order_.push_back(choice);
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      const double of_a = table.size_of(item, a), of_b = table.size_of(item, b);
      if (of_a != of_b) return of_a < of_b;
      const double lost_a = table.error_of(item, a), lost_b = table.error_of(item, b);
      return lost_a != lost_b ? lost_a < lost_b : a < b;
    });
    hull_.clear();
    for (std::size_t const choice : order_) {
      if (hull_.empty()) {
        hull_.push_back({0, item, choice});
        continue;
      }
      if (!(table.error_of(item, choice) < table.error_of(item, hull_.back().choice))) continue;
      double ratio = 0;
      while (true) {
        std::size_t const before = hull_.back().choice;
        ratio = (table.error_of(item, before) - table.error_of(item, choice)) /
                (table.size_of(item, choice) - table.size_of(item, before));
        if (hull_.size() == 1 || ratio < hull_.back().saved_a_byte) break;
        hull_.pop_back();
      }
      hull_.push_back({ratio, item, choice});
    }
  }

  std::vector<step> steps_, hull_;
  std::vector<std::size_t> order_;
};

}  // namespace ACCO_SIMD_NAMESPACE
