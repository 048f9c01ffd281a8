// SPDX-License-Identifier: Apache-2.0
// Which rank brought infinite or NaN numbers, and in which tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What the first rank that has found something has found.
struct non_finite_finding {
  int rank = -1;            ///< -1: no rank has
  std::uint64_t count = 0;  ///< on that rank
  std::size_t first = 0;    ///< where the first of them lies, in the order of the layout
};

/// Every rank tells how many numbers of its own are not finite, and where the first lies; all learn of the first rank
/// that has any. sum_over_ranks(numbers) is called once.
template <class SumOverRanks>
[[nodiscard]] non_finite_finding find_first(int rank, int ranks, std::uint64_t count, std::size_t first,
                                            SumOverRanks&& sum_over_ranks) {
  const auto all = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
  std::vector<double> numbers(2 * all, 0.0);  // counts, then places
  numbers[me] = static_cast<double>(count);
  numbers[all + me] = count != 0 ? static_cast<double>(first) : 0;
  sum_over_ranks(std::span<double>(numbers));
  for (std::size_t k = 0; k < all; ++k) {
    if (numbers[k] != 0)
      return {static_cast<int>(k), static_cast<std::uint64_t>(numbers[k]), static_cast<std::size_t>(numbers[all + k])};
  }
  return {};
}

/// Gradients that are not finite ended a round.
[[noreturn]] inline void raise_non_finite_gradients(non_finite_finding const& found, parameter_layout const& layout,
                                                    error_place where) {
  if (found.rank < 0) {
    throw non_finite_error(where, text("the sum of finite gradients, or of their squares, overflowed"),
                           text("Scale the loss down, or accumulate in double"));
  }
  const auto tensor = layout.at_offset(found.first);
  throw non_finite_error(
      where,
      text("rank ", found.rank, " brought ", found.count, " gradients that are infinite or not a number, the first in tensor '",
           tensor.name, "' at element ", found.first - tensor.offset),
      text("Look at that rank's batch, lower the learning rate, ask for the spans again after each report, or set "
           "options::on_non_finite = "
           "non_finite::skip"),
      found.rank);
}

/// An update gave what its encoding refused.
[[noreturn]] inline void raise_non_finite_update(non_finite_finding const& found, parameter_layout const& layout,
                                                 error_place where) {
  const auto tensor = layout.at_offset(found.first);
  throw non_finite_error(where,
                         text("the update of ", found.count, " parameters is infinite or not a number, first in '", tensor.name,
                              "' at element ", found.first - tensor.offset),
                         text("Lower the learning rate, and start the training again"), found.rank);
}

}  // namespace ACCO_SIMD_NAMESPACE
