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

/// For each rank, how many of its elements are not finite and where the first one lies, as far as this rank has seen: each looks
/// at its own gradients, or at all ranks' addends to its own slice.
class non_finite_findings {
 public:
  explicit non_finite_findings(int ranks) : counts_(static_cast<std::size_t>(ranks), 0.0), firsts_(counts_.size(), 0) {}

  /// More of what `rank` brought; offsets in the order of the layout, rising from call to call.
  void add(int rank, std::size_t count, std::size_t first_offset) {
    const auto of = static_cast<std::size_t>(rank);
    if (count != 0 && counts_[of] == 0) firsts_[of] = first_offset;
    counts_[of] += static_cast<double>(count);
  }

  /// Throws the error that names the first rank that has any; sum_over_ranks(numbers) is called twice, on every rank alike.
  template <class SumOverRanks>
  [[noreturn]] void raise(int reporter, parameter_layout const& layout, error_place where, SumOverRanks&& sum_over_ranks) const {
    std::vector<double> counts = counts_;
    sum_over_ranks(std::span<double>(counts));
    std::size_t rank = 0;
    while (rank < counts.size() && counts[rank] == 0) ++rank;
    if (rank == counts.size()) {
      throw non_finite_error(where, text("the sum of finite gradients overflowed"),
                             text("Scale the loss down, or accumulate in double"));
    }
    std::vector<double> firsts(counts.size(), 0.0);  // 1 + what each rank has seen, 0: nothing
    if (counts_[rank] != 0) firsts[static_cast<std::size_t>(reporter)] = 1 + static_cast<double>(firsts_[rank]);
    sum_over_ranks(std::span<double>(firsts));
    double first = 0;
    for (const double each : firsts) first = each != 0 && (first == 0 || each < first) ? each : first;
    const auto offset = static_cast<std::size_t>(first) - 1;
    const auto tensor = layout.at_offset(offset);
    throw non_finite_error(
        where,
        text("rank ", rank, " brought ", static_cast<std::uint64_t>(counts[rank]),
             " gradients that are infinite or not a number, the first in tensor '", tensor.name, "' at element ",
             offset - tensor.offset),
        text("Look at that rank's batch, lower the learning rate, or set options::on_non_finite = non_finite::skip"),
        static_cast<int>(rank));
  }

 private:
  std::vector<double> counts_;
  std::vector<std::size_t> firsts_;
};

}  // namespace ACCO_NAMESPACE
