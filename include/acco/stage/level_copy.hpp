// SPDX-License-Identifier: Apache-2.0
// The state of a level of local updates, as it leaves an engine and comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "acco/stage/state_copy.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

// Of a level of local updates: its state is the anchor's, and beside it every worker's.

/// Of the exchanges of one fragment, on one rank.
struct fragment_numbers {
  run_numbers run;
  bool shows = false, arrives = false;  ///< whether the arrays `shown` and `arriving` mean anything
  bool pending = false;                 ///< the worker has made a step since its last exchange began
  std::uint64_t exchanges = 0, exchanges_before = 0;
  double samples = 0, sent_samples = 0;
};
/// Of one rank.
struct level_numbers {
  int workers = 1, ranks_a_worker = 1;
  run_numbers worker;
  bool shows = false, arrives = false;           ///< as in `fragment_numbers`
  std::uint64_t phase = 0, seen = 0;             ///< the worker's steps of this round; its
                                                 ///< updates when the level acted last
  std::uint64_t steps_before = 0;                ///< of the level
  std::uint64_t whole_steps = 0, own_steps = 0;  ///< when the world changed last (outer/regroup.hpp)
  double whole_samples = 0, own_samples = 0;
  std::uint64_t own_round = 0;  ///< the worker's steps from one exchange to the next; 0: not kept
  double seconds_a_step = 0;    ///< of its own, measured; 0: not known
  std::vector<fragment_numbers> fragments;
};
/// Elements of an array that lie on this rank: `count` of them from the trainable element `first` on.
struct state_range {
  std::size_t first, count;
  void const* from;
};
/// An array of the whole level: every rank has all, in the same order, and of each the ranges that lie there.
struct level_array {
  std::string name;
  element_type type;
  std::vector<state_range> mine;
};
struct level_view {
  level_numbers const* numbers;
  std::span<level_array const> arrays;
  std::uint64_t digest;      ///< this rank's part, without the numbers
  char const* problem = "";  ///< why this rank has no state of that cut
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
