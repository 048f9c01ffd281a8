// SPDX-License-Identifier: Apache-2.0
// Arrays of one group, as an update takes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <acco/storage/elementwise.hpp>
#include <acco/storage/update_table.hpp>

/// The blocks of a slice of `count` elements of region 0.
inline std::vector<acco::update_block> blocks_of(std::size_t count) {
  std::vector<acco::update_block> blocks;
  for (std::size_t i = 0; i < count; i += acco::update_block::most)
    blocks.push_back({i, static_cast<std::uint32_t>(std::min(acco::update_block::most, count - i)), 0});
  return blocks;
}

/// Updates `count` elements of host memory at once; of `arrays` the first three members are given.
template <class Rule, acco::update kind, class Master, class Sum, class Parameter>
void update_now(acco::rule_constants<Rule> const& now, acco::rule_constants<Rule> const& next, double scale,
                acco::update_table<Rule, Master, Sum> arrays, Parameter* out, std::size_t count) {
  arrays.now = &now;
  arrays.next = &next;
  const acco::region_update decided{scale, true};
  arrays.decided = &decided;
  for (acco::update_block const& block : blocks_of(count)) acco::elementwise::apply<Rule, kind>(arrays, block, out);
}
