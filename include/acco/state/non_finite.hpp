// SPDX-License-Identifier: Apache-2.0
// Which ranks brought infinite or NaN gradients, and in which tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"

namespace ACCO_NAMESPACE {

/// For each rank, how many elements are not finite and where the first one lies. Every rank fills in its own; the numbers are
/// then summed over ranks.
class non_finite_findings {
 public:
  explicit non_finite_findings(int ranks) : ranks_(static_cast<std::size_t>(ranks)), numbers_(2 * ranks_, 0.0) {}

  void add(int rank, std::size_t count, std::size_t first_offset) {
    numbers_[static_cast<std::size_t>(rank)] = static_cast<double>(count);
    numbers_[ranks_ + static_cast<std::size_t>(rank)] = static_cast<double>(first_offset);
  }
  [[nodiscard]] std::span<double> numbers() noexcept { return numbers_; }

  /// Throws the error that names the first rank that has any.
  [[noreturn]] void raise(parameter_layout const& layout, error_place where) const {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (numbers_[rank] == 0) continue;
      const auto offset = static_cast<std::size_t>(numbers_[ranks_ + rank]);
      const auto tensor = layout.at_offset(offset);
      throw non_finite_error(
          where,
          text("rank ", rank, " brought ", static_cast<std::uint64_t>(numbers_[rank]),
               " gradients that are infinite or not a number, the first in tensor '", tensor.name, "' at element ",
               offset - tensor.offset),
          text("Look at that rank's batch, lower the learning rate, or set options::on_non_finite = non_finite::skip"),
          static_cast<int>(rank));
    }
    throw non_finite_error(where, text("the sum of finite gradients overflowed"),
                           text("Scale the loss down, or accumulate in double"));
  }

 private:
  std::size_t ranks_;
  std::vector<double> numbers_;
};

}  // namespace ACCO_NAMESPACE
