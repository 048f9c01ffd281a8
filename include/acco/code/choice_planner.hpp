// SPDX-License-Identifier: Apache-2.0
// Which of several choices each of several things should get: the least size within a budget of error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// An error in parts of a budget, a whole number of them, rounded up: what keeps the budget in these parts keeps it.
struct budget_parts {
  static constexpr std::uint64_t all = std::uint64_t{1} << 32U;   ///< of the budget
  static constexpr std::uint64_t most = std::uint64_t{1} << 40U;  ///< of an error: it keeps no budget anyway

  [[nodiscard]] static constexpr std::uint64_t of(double error, double budget) noexcept {
    if (!(error > 0)) return 0;
    if (!(budget > 0)) return most;
    const double parts = error * (static_cast<double>(all) / budget);
    return parts < static_cast<double>(most) ? static_cast<std::uint64_t>(parts) + 1 : most;
  }
};

/// What may be chosen for each of `items` things: number [item * choices + choice] says what a choice costs. At most
/// 2^22 items.
struct choice_table {
  std::size_t items = 0, choices = 0;
  std::span<std::uint64_t const> error, size;
  [[nodiscard]] std::uint64_t error_of(std::size_t item, std::size_t choice) const { return error[item * choices + choice]; }
  [[nodiscard]] std::uint64_t size_of(std::size_t item, std::size_t choice) const { return size[item * choices + choice]; }
};

/// Chooses for every item so that the sum of errors keeps a budget and the sum of sizes is small: the problem of
/// L-GreCo (Alimohammadi et al., arXiv 2210.17357), by a sweep over the multiplier of its Lagrangian in place of its
/// dynamic programme. For some multiplier an item's best choice is one of the lower convex hull of (size, error), and
/// no other. From the smallest choices on, steps along the hulls are taken in the order of the error that they save for
/// a byte, until the budget is kept; what the last step has saved too much is spent on smaller choices that still fit.
/// So the size is above the least possible one by less than that step's, and is that one where the budget is the error
/// behind a step. The same numbers make the same choices on every rank: errors and sizes are whole, and a quotient of
/// two is rounded alike everywhere.
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

  /// Writes each item's choice. False where no choices keep the budget: then every error is the least.
  bool plan(choice_table const& table, std::uint64_t budget, std::span<std::uint8_t> chosen) {
    steps_.clear();
    std::uint64_t error = 0;
    for (std::size_t item = 0; item < table.items; ++item) {
      find_hull(table, item);
      chosen[item] = hull_[0].choice;
      error += table.error_of(item, chosen[item]);
      steps_.insert(steps_.end(), hull_.begin() + 1, hull_.end());
    }
    std::sort(steps_.begin(), steps_.end(), [](step const& a, step const& b) {
      return a.saved_a_byte != b.saved_a_byte ? a.saved_a_byte > b.saved_a_byte : a.item < b.item;
    });
    for (step const& each : steps_) {
      if (error <= budget) break;
      error -= table.error_of(each.item, chosen[each.item]) - table.error_of(each.item, each.choice);
      chosen[each.item] = each.choice;
    }
    if (error > budget) return false;
    for (std::size_t item = 0; item < table.items; ++item) {
      const std::uint64_t others = error - table.error_of(item, chosen[item]);
      for (std::size_t choice = 0; choice < table.choices; ++choice) {
        if (table.size_of(item, choice) < table.size_of(item, chosen[item]) && others + table.error_of(item, choice) <= budget)
          chosen[item] = static_cast<std::uint8_t>(choice);
      }
      error = others + table.error_of(item, chosen[item]);
    }
    return true;
  }

 private:
  struct step {
    double saved_a_byte;
    std::size_t item;
    std::uint8_t choice;
  };

  /// The item's lower convex hull, from the smallest choice on: errors fall, and so does what they fall by for a byte.
  void find_hull(choice_table const& table, std::size_t item) {
    order_.clear();
    for (std::size_t choice = 0; choice < table.choices; ++choice) order_.push_back(static_cast<std::uint8_t>(choice));
    std::sort(order_.begin(), order_.end(), [&](std::uint8_t a, std::uint8_t b) {
      if (table.size_of(item, a) != table.size_of(item, b)) return table.size_of(item, a) < table.size_of(item, b);
      return table.error_of(item, a) != table.error_of(item, b) ? table.error_of(item, a) < table.error_of(item, b) : a < b;
    });
    hull_.clear();
    for (std::uint8_t const choice : order_) {
      double saved = 0;
      while (!hull_.empty()) {
        std::uint8_t const before = hull_.back().choice;
        if (table.error_of(item, choice) >= table.error_of(item, before)) break;
        saved = static_cast<double>(table.error_of(item, before) - table.error_of(item, choice)) /
                static_cast<double>(table.size_of(item, choice) - table.size_of(item, before));
        if (hull_.size() == 1 || saved < hull_.back().saved_a_byte) break;
        hull_.pop_back();
      }
      if (hull_.empty() || table.error_of(item, choice) < table.error_of(item, hull_.back().choice))
        hull_.push_back({saved, item, choice});
    }
  }

  std::vector<step> steps_, hull_;
  std::vector<std::uint8_t> order_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
