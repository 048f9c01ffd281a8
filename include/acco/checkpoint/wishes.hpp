// SPDX-License-Identifier: Apache-2.0
// What a trainer has asked for, and how many wishes all ranks share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "acco/observe/round_report.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// A save, from the wish to its outcome.
struct save {
  std::string run;                                   ///< its folder
  std::function<std::vector<std::byte>()> position;  ///< or none; called at the cut, for
  std::vector<std::byte> trainer;
  std::uint64_t number = 0;
  std::string path, problem;
  save_outcome outcome;
};

/// Those of one rank that no cut has granted, the oldest first; of one folder there is one. The trainer's thread calls
/// all members.
class wishes {
 public:
  explicit wishes(int ranks) noexcept : base_(ranks + 1.0) {}

  [[nodiscard]] std::list<save> const& all() const noexcept { return all_; }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }

  /// Asked again in one folder before the cut, it is the same wish, with the newest position.
  void ask(std::string run, std::function<std::vector<std::byte>()> position) {
    auto found = std::ranges::find(all_, run, &save::run);
    if (found == all_.end()) {
      found = all_.emplace(found);
      found->run = std::move(run);
    }
    found->position = std::move(position);
  }
  /// So many wishes as a number that the ranks can sum: its digit k, from 0, to the base of one more than the ranks,
  /// says whether this rank has more than k. A double counts two exactly for 2^26 ranks, and more for fewer; others
  /// wait for another cut.
  [[nodiscard]] double told() const noexcept {
    constexpr double exact = 9007199254740992;
    double number = 0, digit = 1;
    for (std::size_t k = 0; k < all_.size() && digit * base_ <= exact; ++k, digit *= base_) number += digit;
    return number;
  }
  /// How many ranks have any, by the sum over the ranks.
  [[nodiscard]] double askers(double summed) const noexcept { return std::fmod(summed, base_); }
  /// How many wishes every rank has.
  [[nodiscard]] std::ptrdiff_t of_all(double summed) const noexcept {
    std::ptrdiff_t count = 0;
    for (; askers(summed) == base_ - 1; summed = std::floor(summed / base_)) ++count;
    return count;
  }
  /// The oldest ones, which are granted.
  void give(std::ptrdiff_t count, std::list<save>& to) noexcept {
    to.splice(to.end(), all_, all_.begin(), std::next(all_.begin(), count));
  }
  /// They were not made. Of a folder in which the trainer has asked again the newest position counts.
  void take_back(std::list<save>& from) noexcept {
    for (save& each : from) {
      const auto again = std::ranges::find(all_, each.run, &save::run);
      if (again == all_.end()) continue;
      each.position = std::move(again->position);
      all_.erase(again);
    }
    all_.splice(all_.begin(), from);
  }

 private:
  double base_;
  std::list<save> all_;
};

}  // namespace ACCO_NAMESPACE::checkpoints
