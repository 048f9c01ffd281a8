// SPDX-License-Identifier: Apache-2.0
// The numbers that the ranks sum before anything else in a round. They are named once, in `for_counts`: that is how
// many there are, how they travel, and what a checkpoint calls them. A new number is a member and a line there, and who
// brings it, at the launch of a round (round/step_loop.hpp). Checkpoints of before lack it: it comes back as it begins
// (checkpoint/named_counts.hpp). A number that leaves is read no more.
#pragma once

#include <cstddef>

#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// What ranks tell each other about saving.
struct save_signals {
  double wishes = 0;    ///< what they are to be kept for, as whoever keeps them
                        ///< counts it; 0: nobody wants a copy of the state
  double busy = 0;      ///< ranks that cannot take one now
  double failed = 0;    ///< ranks whose part of the last one is lost; `culprits` sums their numbers, from 1
  double culprits = 0;  ///< the same
  double complete = 0;  ///< from rank 0: the last one is complete; the number of its name, from 1
  double keepers = 0;   ///< ranks that have somebody who keeps copies
  double session = 0;   ///< from rank 0: a random number of this process
};

/// What travels of a digest: four numbers of 16 bits, whose sums over ranks are exact (stage/world_digest.hpp).
struct digest_numbers {
  static constexpr std::size_t count = 4;
  double word[count] = {};
};

/// Of one rank.
struct round_counts {
  double weight = 0;        ///< of the samples that the round carries
  double loss_sum = 0;      ///< over the same samples
  double finishing = 0;     ///< ranks that are in `finish` and bring nothing that must be committed
  double commits_rest = 0;  ///< of those, ranks that want a step committed though it lacks micro-batches
  double rate = 0;          ///< the learning rate's factor, which is to be the same on every rank
  save_signals saving{};
  // for paces that measure:
  double micro_batch_seconds = 0, estimate_seconds = 0, commit_seconds = 0;
  double speed = 0;        ///< of workers that divide steps by it: steps a second
  digest_numbers shown{};  ///< of the parameters in use at the end of the round before, where they are compared
};
/// Their sums over the ranks.
struct summed_counts : round_counts {
  round_counts squares{};  ///< sums of the squares of those that are compared between the ranks
};

/// Calls summed(name, number) or compared(name, number) for each. Of what is compared between the ranks the squares are
/// summed, too.
template <class Counts, class Summed, class Compared>
constexpr void for_counts(Counts& of, Summed&& summed, Compared&& compared) {
  summed("weight", of.weight);
  summed("loss", of.loss_sum);
  summed("finishing", of.finishing);
  summed("commits rest", of.commits_rest);
  compared("rate", of.rate);
  summed("save wishes", of.saving.wishes);
  summed("save busy", of.saving.busy);
  summed("save failed", of.saving.failed);
  summed("save culprits", of.saving.culprits);
  summed("save complete", of.saving.complete);
  summed("save keepers", of.saving.keepers);
  summed("save session", of.saving.session);
  summed("micro-batch seconds", of.micro_batch_seconds);
  summed("estimate seconds", of.estimate_seconds);
  summed("commit seconds", of.commit_seconds);
  summed("speed", of.speed);
  compared("shown 0", of.shown.word[0]);
  compared("shown 1", of.shown.word[1]);
  compared("shown 2", of.shown.word[2]);
  compared("shown 3", of.shown.word[3]);
}
/// Calls visit(name, number) for each sum, and then squared(name, number) for each sum of squares: the order in which
/// they travel.
template <class Sums, class Visit, class Squared>
constexpr void for_sums(Sums& of, Visit&& visit, Squared&& squared) {
  for_counts(of, visit, visit);
  for_counts(of.squares, [](char const*, double const&) {}, squared);
}
/// How many numbers travel.
inline constexpr std::size_t count_numbers = [] {
  std::size_t count = 0;
  const summed_counts any;
  const auto one_more = [&](char const*, double const&) { ++count; };
  for_sums(any, one_more, one_more);
  return count;
}();

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
