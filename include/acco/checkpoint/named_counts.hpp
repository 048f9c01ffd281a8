// SPDX-License-Identifier: Apache-2.0
// What ranks have summed in a round (stage/round_counts.hpp), as a manifest has it: a number for each name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "acco/stage/round_counts.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// Calls visit(name, number) for each sum, and for each sum of squares.
template <class Counts, class Visit>
void for_named_sums(Counts& counts, Visit&& visit) {
  for_sums(
      counts, [&](char const* name, auto& number) { visit(std::string(name), number); },
      [&](char const* name, auto& number) { visit(std::string(name) + " squared", number); });
}

/// Manifests had them as a list without names: these ones. This list never changes.
inline constexpr std::string_view listed_sums[] = {"weight",
                                                   "loss",
                                                   "finishing",
                                                   "commits rest",
                                                   "rate",
                                                   "rate squared",
                                                   "save wishes",
                                                   "save busy",
                                                   "save failed",
                                                   "save culprits",
                                                   "save complete",
                                                   "save keepers",
                                                   "save session",
                                                   "unseen",
                                                   "unseen squared",
                                                   "micro-batch seconds",
                                                   "estimate seconds",
                                                   "commit seconds",
                                                   "shown 0",
                                                   "shown 1",
                                                   "shown 2",
                                                   "shown 3",
                                                   "shown 0 squared",
                                                   "shown 1 squared",
                                                   "shown 2 squared",
                                                   "shown 3 squared"};

/// From a field of a manifest (manifest.hpp), which is such a list, or has the numbers by name. A name that is younger
/// than the list may be missing: the library that wrote the manifest did not have it. Other names are of no use any
/// more.
template <class Field>
void read_counts(Field const& from, summed_counts& counts) {
  std::vector<double> list;
  if (from.is_list()) {
    if (from.size() != std::size(listed_sums))
      from.refuse("does not have " + std::to_string(std::size(listed_sums)) + " numbers");
    from.for_each([&](Field const& each) { list.push_back(each.real()); });
  }
  for_named_sums(counts, [&](std::string const& name, double& number) {
    auto const listed = std::ranges::find(listed_sums, name);
    const bool was_listed = listed != std::end(listed_sums);
    if (list.empty()) {
      if (was_listed || from.has(name)) number = from[name].real();
    } else if (was_listed) {
      number = list[static_cast<std::size_t>(listed - std::begin(listed_sums))];
    }
  });
}

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
