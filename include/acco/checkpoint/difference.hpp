// SPDX-License-Identifier: Apache-2.0
// What keeps a training from going on from a checkpoint.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "acco/checkpoint/manifest.hpp"
#include "acco/checkpoint/plan.hpp"
#include "acco/checkpoint/regrouped.hpp"
#include "acco/checkpoint/restored.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE::checkpoints {

/// What it says, without the library's name, to be said in another's words.
[[nodiscard]] inline std::string words_of(std::exception const& e) {
  const std::string_view words = e.what();
  return std::string(words.starts_with("acco: ") ? words.substr(6) : words);
}

/// Of the lines that describe a construction (round/construction.hpp): those of the schedule; those that may never
/// differ; all but the library's version, what looks on, and options that went.
[[nodiscard]] inline std::vector<std::string> schedule_lines(std::vector<std::string> const& lines) {
  std::vector<std::string> found;
  for (std::string const& line : lines) {
    if (line.starts_with("acco = ")) break;
    found.push_back(line);
  }
  return found;
}
[[nodiscard]] inline std::vector<std::string> fixed_lines(std::vector<std::string> const& lines) {
  std::vector<std::string> found;
  for (std::string const& line : lines) {
    for (char const* const what : {"parameters = ", "parameter type = ", "master type = ", "rule = ", "outer: rule = ",
                                   "layout: tensor = ", "layout: extent = "}) {
      if (line.starts_with(what)) found.push_back(without_version(line));
    }
  }
  return found;
}
[[nodiscard]] inline std::vector<std::string> compared_lines(std::vector<std::string> const& lines) {
  std::vector<std::string> found;
  for (std::string const& line : lines) {
    bool looks_on = false;
    for (char const* const what : {"acco = ", "options.snapshots = ", "options.snapshot_every = ", "options.compare_every = ",
                                   "options.compare_frozen = ", "options.digest_every = "})
      looks_on = looks_on || line.starts_with(what);
    if (!looks_on) found.push_back(without_version(line));
  }
  return found;
}

/// Whether it was saved by as many ranks, in as many workers.
template <class Engine>
[[nodiscard]] bool same_ranks(Engine& on, manifest const& m) {
  auto const& level = m.ranks.front().level;
  return m.ranks.size() == static_cast<std::size_t>(on.ranks()) && (!level || level->ranks_a_worker == on.shares().ranks());
}

/// In which arrays of the state a checkpoint and a training differ; what wires keep may.
[[nodiscard]] inline std::string difference(state_shape const& then, state_shape const& now) {
  const auto states = [](state_shape const& shape) {
    return std::ranges::count(shape.kept, array_use::state, [](kept_array const& each) { return each.use; });
  };
  if (states(then) != states(now))
    return "the checkpoint has " + std::to_string(states(then)) + " arrays a parameter, this training has " +
           std::to_string(states(now));
  for (std::size_t array = 0; array < now.owned(); ++array) {
    const std::size_t found = counterpart(now, array, then);
    if (found >= then.owned()) continue;  // what a wire keeps begins anew
    kept_array const &mine = now.kept[array], &its = then.kept[found];
    if (mine.extent != its.extent ||
        (mine.type != its.type && (mine.extent == array_extent::shard || mine.use == array_use::state)))
      return "the checkpoint's array '" + its.name + "' is of another type or extent than this training's '" + mine.name + "'";
  }
  return "";
}

/// Why a training cannot go on from a checkpoint; empty: it can. `same_schedule`: whether a round in flight can go on,
/// too.
template <class Engine>
[[nodiscard]] std::string difference(Engine& on, manifest const& m, changes allowed, bool& same_schedule) {
  const std::vector<std::string> mine = lines_of(on.construction());
  same_schedule = schedule_lines(mine) == schedule_lines(m.construction);
  auto const a = allowed == changes::allowed ? fixed_lines(m.construction) : compared_lines(m.construction);
  auto const b = allowed == changes::allowed ? fixed_lines(mine) : compared_lines(mine);
  const auto told = [](std::vector<std::string> const& lines, std::size_t k) {
    return k < lines.size() ? "'" + lines[k] + "'" : "nothing more";
  };
  for (std::size_t k = 0; k < a.size() || k < b.size(); ++k) {
    if (k < a.size() && k < b.size() && a[k] == b[k]) continue;
    return "the checkpoint has " + told(a, k) + ", this training has " + told(b, k);
  }
  auto const then = places_of(m.construction), now = places_of(mine);
  if (then != now) same_schedule = false;  // a round's norms are of groups
  for (std::size_t k = 0; k < then.size() && k < now.size(); ++k) {
    if (then[k].frozen || now[k].frozen || then[k].rule == now[k].rule) continue;
    return "the checkpoint has the tensor '" + std::string(on.kept_layout()[k].name) + "' under rule " + then[k].rule +
           ", this training has it under rule " + now[k].rule;
  }
  state_shape const& shape = on.shape();
  if (shape.master != m.shape.master || shape.parameter != m.shape.parameter)
    return "the checkpoint's masters or parameters are of another type than its construction says";
  if (const std::string other = difference(m.shape, shape); !other.empty()) return other;
  for (std::size_t array = 0; array < shape.owned(); ++array) {  // what was lost of scaled gradients is scaled
    const bool comes_back = shape.kept[array].use == array_use::feedback && counterpart(shape, array, m.shape) < m.shape.owned();
    const std::string then_scale = value_of(m.construction, "options.loss_scale"), scale = value_of(mine, "options.loss_scale");
    if (comes_back && then_scale != scale)
      return std::string("the checkpoint's '")
          .append(shape.kept[array].name)
          .append("' is of gradients under another options::loss_scale: '")
          .append(then_scale)
          .append("' then, '")
          .append(scale)
          .append("' now");
  }
  return "";
}

}  // namespace ACCO_NAMESPACE::checkpoints

#include "acco/restore_macros.hpp"
