// SPDX-License-Identifier: Apache-2.0
// What a round decides, from numbers that are summed over ranks and therefore the same everywhere: whether there is
// anything to do, whether to update, by how much to clip. Pure functions of a few numbers: run by a task of the host's
// queue, or by a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acco/layout/update_regions.hpp"
#include "acco/number/finite.hpp"
#include "acco/stage/gradient_norm.hpp"
#include "acco/stage/round_counts.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/storage/update_table.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where a run stands when a round starts.
struct round_position {
  std::uint64_t steps = 0;  ///< updates committed
  double samples = 0;       ///< weight committed
  double rate = 1;          ///< the learning rate's scale
  double loss_scale = 1;    ///< of the gradients that the round carries
  double most_norm = 0;     ///< a norm beyond it is a spike; 0: none is
  bool late = false;        ///< the carried gradients were computed before the last commit was shown
  double moved = 0;         ///< how far the parameters have come since the
                            ///< gradients were measured (`norm_limits::moved`)
};

/// As a rank's counts travel: each number, and then the squares of those that are compared.
constexpr void write(round_counts const& mine, double* to) noexcept {
  const auto number = [&](char const*, double each) { *to++ = each; };
  for_counts(mine, number, number);
  for_counts(mine, [](char const*, double) {}, [&](char const*, double each) { *to++ = each * each; });
}
[[nodiscard]] constexpr summed_counts read_sums(double const* from) noexcept {
  summed_counts all;
  const auto number = [&](char const*, double& each) { each = *from++; };
  for_sums(all, number, number);
  return all;
}

/// What sums begin with as they travel: only where all ranks sum alike is their sum that of as many equal ones.
struct sum_kind {
  static constexpr double by_trainer = 0, of_round = 1, by_library = 0x1p26;
  static constexpr double with_samples = 0x1p-26;  ///< added to that of a round by who brings samples
  /// How many ranks are in a round, of what these numbers have come to.
  [[nodiscard]] static constexpr int in_round(double all) noexcept {
    return static_cast<int>(static_cast<long long>(all) % static_cast<long long>(by_library));
  }
  /// How many of them bring samples, where all are in it.
  [[nodiscard]] static constexpr int bringing(double all, int ranks) noexcept {
    return static_cast<int>((all - ranks * of_round) / with_samples);
  }
};
/// The small numbers of the round in flight; they live where the tasks of a round can read and write them.
struct round_numbers {
  /// As they travel, behind a number that says what they are (`sum_kind`): no other sum is taken for them.
  double counts_mine[1 + count_numbers] = {}, counts_all[1 + count_numbers] = {};
  int bringing = 0;      ///< ranks that bring samples
  bool outside = false;  ///< some ranks were not in this round, and summed other numbers: an error
  round_counts mine;
  summed_counts all;
  double squares_mine = 0, squares_all = 0;
  double squares_together = 0;  ///< of this optimizer and those with which it is clipped (`options::clip_with`)
  double step_weight = 0;       ///< of all gradients that the update uses, the kept ones included
  double loss_scale = 1;        ///< by which the trainer multiplied these gradients
  double norm = 0, clip = 1, scale = 0;
  double own = 1;                                       ///< by what this rank's gradients are
                                                        ///< multiplied to stand for all ranks' sum
  combination mixed;                                    ///< of own and others' gradients, where an estimate takes both
  combination others;                                   ///< the others' mean gradient, of all gradients and this rank's
  bool apply = false;                                   ///< whether the update happens
  bool skip = false;                                    ///< left out because the gradients are not finite, or
  bool spike = false;                                   ///< because their norm is beyond the limit
  bool not_finite = false;                              ///< the same, where that is an error
  bool nothing = false;                                 ///< every rank is finishing, and there is nothing to commit
  bool rates_differ = false;                            ///< the ranks' learning rates do: an error
  bool shown_differ = false;                            ///< the ranks' parameters in use do: an error
  unsigned long long found = 0, first = 0;              ///< elements of this rank's addend that
                                                        ///< are not finite, and the first of them
  unsigned long long diverged = 0, diverged_first = 0;  ///< the same of its slice's change of
                                                        ///< parameters, where that is encoded
  double diverged_mine = 0, diverged_all = 0;           ///< how many, summed over ranks
  digest_words state_mine, state_all;                   ///< of the state, where that is digested

  /// Whether the round has ended in an error that every rank throws.
  [[nodiscard]] constexpr bool ends() const noexcept {
    return outside || not_finite || (spike && !skip) || rates_differ || shown_differ || diverged_all != 0;
  }
};

/// Whether one of the numbers, of which the sum and the sum of squares over the ranks are known, differs from the
/// others by more than 1e-6 of its size: hosts of different libraries may round a cosine differently. (N squares -
/// sum^2 is 0 where all are equal, and (N - 1) delta^2 where one differs by delta; beyond some thousand ranks rounding
/// hides so little.)
[[nodiscard]] constexpr bool ranks_differ(double sum, double squares, int ranks) {
  const auto n = static_cast<double>(ranks);
  const double seen = 1e-12 * (n - 1) / (n * n), rounding = 1e-14;
  return n * squares - sum * sum > (seen > rounding ? seen : rounding) * sum * sum;
}

/// Whether the digests of which sum and sum of squares are known are not all the same: whole numbers below 2^32 times
/// the ranks' number, so the sums are exact, and so is the comparison.
[[nodiscard]] constexpr bool digests_differ(digest_numbers const& sums, digest_numbers const& squares, int ranks) {
  for (std::size_t k = 0; k < digest_numbers::count; ++k) {
    if (static_cast<double>(ranks) * squares.word[k] != sums.word[k] * sums.word[k]) return true;
  }
  return false;
}

/// After the counts are summed. Where all ranks are finishing nobody has completed the step: it is dropped, or, where
/// they want it to be committed, only if it weighs nothing.
constexpr void weigh(round_numbers& n, int ranks, bool fresh) {
  n.step_weight = n.all.weight + (fresh ? 0 : n.step_weight);
  n.nothing = n.all.finishing == static_cast<double>(ranks) && (n.all.commits_rest == 0 || n.step_weight == 0);
  n.rates_differ = !n.nothing && ranks_differ(n.all.rate, n.all.squares.rate, ranks);
  n.shown_differ = !n.nothing && digests_differ(n.all.shown, n.all.squares.shown, ranks);
}

/// Without a norm: updates where there is any weight.
constexpr void decide_without_norm(round_numbers& n, double clip = 1) {
  // a GPU comes here also where a host's round has ended
  n.apply = n.step_weight > 0 && !n.outside && !n.nothing && !n.rates_differ && !n.shown_differ;
  n.skip = n.spike = n.not_finite = false;
  n.clip = clip;
  if (n.apply) n.scale = n.clip / (n.step_weight * n.loss_scale);
}

/// What a round does with gradients that it does not like.
struct norm_limits {
  double clip_norm = 0;       ///< 0: no clipping
  bool raises = true;         ///< what is not finite is an error; else the update is left out
  double most = 0;            ///< a norm beyond it is a spike; 0: none is
  bool raises_spike = false;  ///< likewise
  double moved = 0;           ///< how far the parameters have come since the gradients were measured: these count
                              ///< by the share norm / (norm + moved), the inverse of the gap 1 + moved / norm
  double overflows = 0;       ///< from this norm on, after clipping, an element's square may
                              ///< overflow in the masters' type: that is not finite; 0: never
};
/// After the squares are summed: norm, clipping, and no update from what is not finite, not even where it weighs
/// nothing: the round after would add to it. `squares_clipped` are the squares of what is clipped together.
constexpr void decide(round_numbers& n, double squares_clipped, norm_limits const& limits) {
  const double weight = n.step_weight * n.loss_scale;
  n.norm = weight > 0 ? gradient_norm(n.squares_all, weight) : 0;
  const bool finite = is_finite(n.squares_all) && is_finite(n.norm);
  const double near = limits.moved > 0 && n.norm > 0 ? n.norm / (n.norm + limits.moved) : 1;
  decide_without_norm(n, finite && weight > 0 ? near * clip_scale(gradient_norm(squares_clipped, weight), limits.clip_norm) : 1);
  n.spike = finite && limits.most > 0 && n.norm > limits.most && n.apply;
  if (finite && !n.spike) return;
  const bool raises = n.spike ? limits.raises_spike : limits.raises;
  n.apply = false;
  n.skip = !raises;
  n.not_finite = raises && !n.spike;
  n.step_weight = 0;
}
/// What a norm was finite of, and an update could not square: as what is not finite.
constexpr void refuse_overflow(round_numbers& n, norm_limits const& limits) {
  n.apply = false;
  n.skip = !limits.raises;
  n.not_finite = limits.raises;
  n.step_weight = 0;
}

/// What a round that is done has come to, as a copy of the state keeps it, and the reverse.
inline void keep_numbers(round_numbers const& n, completed_round& to) {
  to.counts = n.all;
  to.squares = n.squares_all;
  to.step_weight = n.step_weight;
  to.loss_scale = n.loss_scale;
  to.norm = n.norm;
  to.clip = n.clip;
  to.apply = n.apply;
  to.skip = n.skip;
  to.spike = n.spike;
  to.digest = n.state_all.sum();
}
[[nodiscard]] inline round_numbers numbers_of(completed_round const& from) {
  round_numbers n;
  n.all = from.counts;
  n.all.saving = {};  // it has been heard
  n.squares_all = from.squares;
  n.step_weight = from.step_weight;
  n.loss_scale = from.loss_scale;
  n.norm = from.norm;
  n.clip = from.clip;
  n.apply = from.apply;
  n.skip = from.skip;
  n.spike = from.spike;
  n.state_all = digest_words::of(from.digest);
  return n;
}

// The same as steps of a round: whoever runs them, a task or a kernel, calls them once. One that returns false ends the
// round, where that is possible.

struct begin_step {
  round_numbers* n;
  round_counts mine;
  bool searched;  ///< `found` and `first` are known already
  constexpr void operator()() const {
    n->counts_mine[0] = sum_kind::of_round + (mine.weight > 0 ? sum_kind::with_samples : 0);
    n->mine = mine;
    write(mine, n->counts_mine + 1);
    n->apply = n->skip = n->spike = n->not_finite = n->nothing = n->rates_differ = n->shown_differ = false;
    if (!searched) {
      n->found = 0;
      n->first = ~0ULL;
    }
    n->diverged = 0;
    n->diverged_first = ~0ULL;
    n->diverged_all = 0;
    n->own = 1;
  }
};
/// Of a round in which every owner takes its own gradients: its mean, times the weight of all. Who has none predicts
/// without.
struct weigh_own {
  round_numbers* n;
  constexpr void operator()() const { n->own = n->mine.weight > 0 ? n->all.weight / n->mine.weight : 0; }
};
/// Of a round that takes its own gradients, and for the samples of the other ranks their mean gradient of before, if it
/// `remembers` any: the sum over all ranks that these stand for.
struct mix_own {
  round_numbers* n;
  bool remembers;
  double loss_scale;
  constexpr void operator()() const {
    const double mine = n->mine.weight, all = n->all.weight;
    n->mixed = remembers ? combination{1, (all - mine) * loss_scale} : combination{mine > 0 ? all / mine : 0, 0};
  }
};
/// Of a round that commits all gradients of a step: the others' mean, where they have at least a 64th of the samples.
/// In less the difference of the sums would be rounding.
struct weigh_others {
  round_numbers* n;
  constexpr void operator()() const {
    const double others = n->all.weight - n->mine.weight, factor = others > 0 ? 1 / (others * n->loss_scale) : 0;
    n->others = {factor, -factor, n->apply && others > 0 && 64 * others >= n->all.weight};
  }
};
/// Of a round whose gradients are differences to those at a reference point, which are kept per unit of weight: what is
/// subtracted of a rank's, and added to the sum.
struct weigh_reference {
  round_numbers* n;
  double loss_scale;
  constexpr void operator()() const {
    const double all = n->all.weight * loss_scale;
    n->mixed = {1, -all};
    n->others = {1, all};
  }
};
/// Of a round whose gradients are those at the reference point, once it counts.
struct keep_reference {
  round_numbers* n;
  constexpr void operator()() const { n->others = {n->apply ? 1 / (n->step_weight * n->loss_scale) : 0, 0, n->apply}; }
};
/// Squares of gradients that every owner takes of its own, or that so many ranks have alike.
struct scale_own {
  round_numbers* n;
  double* squares;
  std::size_t count;
  int holders;
  constexpr void operator()() const {
    for (std::size_t k = 0; k < count; ++k) squares[k] *= n->own * n->own / holders;
  }
};
/// This rank's squares, of all its buckets.
struct add_squares {
  round_numbers* n;
  double const* squares;
  std::size_t count;
  constexpr void operator()() const {
    n->squares_mine = 0;
    for (std::size_t k = 0; k < count; ++k) n->squares_mine += squares[k];
  }
};
struct weigh_step {
  round_numbers* n;
  int ranks;
  bool fresh;
  constexpr bool operator()() const {
    n->outside = sum_kind::in_round(n->counts_all[0]) != ranks;
    n->bringing = n->outside ? 0 : sum_kind::bringing(n->counts_all[0], ranks);
    n->all = !n->outside ? read_sums(n->counts_all + 1) : summed_counts{};
    weigh(*n, ranks, fresh);
    return !n->outside && !n->nothing && !n->rates_differ && !n->shown_differ;
  }
};
/// Decides, and writes what that means for each region.
struct decide_step {
  round_numbers* n;
  double loss_scale;  ///< of the gradients
  norm_limits limits;
  update_region const* regions;
  std::size_t count;
  double const* squares;  ///< by region, over all ranks; nothing where they have not been measured
  double* of_groups;      ///< for the squares of groups that clip themselves: one number for each group
  bool with_others;       ///< it is clipped together with other optimizers, whose squares are known
  region_update* decided;

  constexpr void operator()() const {
    n->loss_scale = loss_scale;
    const bool measured = squares != nullptr;
    double together = n->squares_all;
    if (measured) {
      n->squares_all = together = 0;
      for (std::size_t r = 0; r < count; ++r) of_groups[regions[r].clips_with] = 0;
      for (std::size_t r = 0; r < count; ++r) {
        n->squares_all += squares[r];
        (regions[r].clips_itself ? of_groups[regions[r].clips_with] : together) += squares[r];
      }
    }
    if (with_others) {
      if (is_finite(n->squares_all)) n->squares_all = n->squares_together;
      together = n->squares_together;
    }
    decide(*n, together, limits);
    const double weight = n->step_weight * n->loss_scale;
    bool overflows = false;
    for (std::size_t r = 0; r < count; ++r) {
      double scale = n->scale;
      if (n->apply && regions[r].clips_itself)
        scale = clip_scale(gradient_norm(of_groups[regions[r].clips_with], weight), regions[r].clip_norm) / weight;
      const double largest = n->apply ? square_root(measured ? squares[r] : n->squares_all) * scale : 0;
      overflows = overflows || (limits.overflows > 0 && !(largest < limits.overflows));
      decided[r] = {scale * n->own, n->apply && !(regions[r].leaves && squares[r] == 0)};
    }
    if (!overflows) return;
    refuse_overflow(*n, limits);
    for (std::size_t r = 0; r < count; ++r) decided[r].wanted = false;
  }
};
struct tell_diverged {
  round_numbers* n;
  constexpr void operator()() const { n->diverged_mine = static_cast<double>(n->diverged); }
};
struct stop_if_refused {
  round_numbers* n;
  constexpr bool operator()() const { return !n->not_finite && !(n->spike && !n->skip); }
};
/// This rank's part of the state's digest, for the sum over the ranks.
struct tell_state {
  round_numbers* n;
  unsigned long long const* digests;  ///< whose sum it is
  std::size_t count;
  constexpr void operator()() const {
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += digests[k];
    n->state_mine = digest_words::of(sum);
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
