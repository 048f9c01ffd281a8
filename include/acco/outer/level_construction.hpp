// SPDX-License-Identifier: Apache-2.0
// What an engine of local updates is constructed from, and how that is described: to the other ranks, and to whoever
// keeps states.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/outer/exchange_settings.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/construction.hpp"
#include "acco/stage/state_copy.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// The settings in a world of so many ranks, for a rule of so many slots, checked.
inline exchange_settings checked(exchange_settings settings, int rank, int ranks, std::size_t slots) {
  const error_place where{.rank = rank};
  const int group = settings.ranks_a_worker;
  if (group < 1 || ranks % group != 0) {
    throw usage_error(where, text("local_updates::ranks_a_group is ", group, ", and the world has ", ranks, " ranks"),
                      text("Give a number that divides the ranks of the world"));
  }
  settings.workers = ranks / group;
  if (settings.delay == whole_round) settings.delay = settings.steps;
  settings.check(where, slots);
  return settings;
}
/// What an engine of local updates can do. The engines of exchanges know no groups: so here.
template <class Wire>
options checked_for_level(options chosen, Wire const& /*exchange*/, parameter_layout const& layout, int rank) {
  chosen.check({.rank = rank});
  check_zeros<typename Wire::gradient_encoding>("changes of workers", layout, {.rank = rank});
  check_zeros<typename Wire::parameter_encoding>("anchors", layout, {.rank = rank});
  const auto refuse = [&](char const* what, char const* advice) {
    throw usage_error({.rank = rank}, text("options::", std::string_view(what), " is not there for local updates"), text(advice));
  };
  if (chosen.digest_every != 0) refuse("digest_every", "Ask world_digest() at a report");
  return chosen;
}
/// For the engine of an exchange.
inline options of_outer(options const& chosen) {
  options mine;
  mine.deadline = chosen.deadline;
  mine.average_decay = chosen.average_decay;
  mine.compare_every = chosen.compare_every;
  mine.empty_limit = chosen.empty_limit;
  return mine;
}

/// The outer rule, which knows whether it is given means of parameters.
template <class Rule>
Rule told(Rule rule, [[maybe_unused]] exchange_settings const& settings) {
  if constexpr (requires { rule.of_means; }) rule.of_means = settings.sends_parameters();
  return rule;
}

/// The arrays of a worker's state, and the averages, which are the anchor's.
inline state_shape shape_of_level(state_shape of_worker, options const& chosen) {
  if (chosen.average_decay > 0) {
    of_worker.add({.name = state_shape::average, .type = of_worker.master, .start = array_start::parameters});
  }
  return of_worker;
}

/// Lines "what = value", made once: later the learning rate is asked elsewhere.
class level_construction {
 public:
  level_construction(exchange_settings const& settings, std::vector<char> const& of_worker,
                     std::vector<char> const& of_exchange) {
    description level;
    level.add_all("local_updates.", settings);
    const std::string_view ours = level.lines(), inner(of_worker.data(), of_worker.size()),
                           outer(of_exchange.data(), of_exchange.size());
    whole.append(ours).append(inner).append(outer);
    add(ours, "", [](std::string_view line) { return !line.starts_with("local_updates.ranks_a_group"); });
    add(outer, "outer: ", [of_schedule = true](std::string_view line) mutable {
      of_schedule = of_schedule && !line.starts_with("acco = ");
      // the usual one, of which states of before do not tell
      if (line == "commit feedback = residual\n" || line == "commit feedback.decay = 1\n") return false;
      return of_schedule || line.starts_with("rule") || line.starts_with("options.average_decay");
    });
    of_states.append(inner);
  }

  std::string whole;      ///< the same on all ranks
  std::string of_states;  ///< by which states are compared: nothing of the world; all of the level before the worker's

 private:
  template <class Wanted>
  void add(std::string_view lines, char const* before, Wanted&& wanted) {
    while (!lines.empty()) {
      const std::string_view line = lines.substr(0, lines.find('\n') + 1);
      if (wanted(line)) of_states.append(before).append(line);
      lines.remove_prefix(line.size());
    }
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
