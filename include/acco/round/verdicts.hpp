// SPDX-License-Identifier: Apache-2.0
// What ends a training because of what its rounds have found: the errors that all ranks throw alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "acco/error.hpp"
#include "acco/options.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/habits.hpp"
#include "acco/round/membership.hpp"
#include "acco/round/state_copy.hpp"
#include "acco/round/works.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Refers to what an engine owns. The trainer's thread calls all members, on every rank with the same round, once it has been
/// worked off; what they throw says so on every rank.
template <class Rule, class Storage, class Backend>
class round_verdicts {
 public:
  using works_type = round_works<Rule, Storage, Backend>;

  round_verdicts(works_type& works, options const& chosen, habit_watch<Storage> const& habits,
                 membership<Backend>& together) noexcept
      : works_(works), options_(chosen), habits_(habits), membership_(together) {}

  /// Of a round that `ends()`. No parameter has changed. `rate` is this rank's.
  void raise(double rate) const {
    round_numbers const& n = works_.numbers();
    if (n.outside) raise_different_sums(n.counts_all[0], works_.backend().size(), place());
    membership_.together([&] {
      if (n.rates_differ) works_.raise_rates(rate);
      if (n.shown_differ) works_.raise_shown();
      if (n.spike) {
        throw spike_error(place(),
                          text("the norm of this step's gradient is ", n.norm, ", more than ", options_.norm_limit,
                               " times the median of those of the last updates"),
                          text("Restore the last checkpoint, and leave these data out; or set options::on_norm_spike"));
      }
      works_.raise_non_finite();
    });
  }
  /// Too many updates in a row were skipped.
  void look_for_skips(run_counters const& run) const {
    if (run.skipped <= options_.skip_limit) return;
    round_numbers const& n = works_.numbers();
    membership_.together([&] {
      if (n.spike) {
        throw spike_error(
            place(),
            text(run.skipped, " updates in a row were skipped, the last one because the gradient's norm, ", n.norm,
                 ", is more than ", options_.norm_limit, " times the median of the last updates"),
            text("The model has diverged, or the limit is too near: raise options::norm_limit or options::skip_limit"));
      }
      throw non_finite_error(
          place(), text(run.skipped, " updates in a row were skipped because of gradients that are not finite"),
          text("The model has diverged: start again with a lower learning rate, or raise options::skip_limit"));
    });
  }
  /// Too many steps in a row weighed nothing: of all ranks, which may be those of one worker among others.
  void look_for_weight(run_counters const& run, bool of_worker) const {
    if (run.empty <= options_.empty_limit) return;
    membership_.together([&] {
      if (of_worker) {
        throw usage_error(place(), text(run.empty, " steps in a row weighed nothing on any rank of this worker"),
                          text("Without samples it comes to no exchange, and the other workers wait for it: where its data have "
                               "run out, call finish; or raise options::empty_limit"));
      }
      throw usage_error(place(), text(run.empty, " steps in a row weighed nothing on any rank"),
                        text("Tell accumulated the samples of each micro-batch, or raise options::empty_limit"));
    });
  }
  /// Gradients are missing on all ranks, or nothing is learned from them, in too many steps in a row; counts them.
  void look_for_gradients(run_counters& run, double rate) const {
    round_numbers const& n = works_.numbers();
    if (commits(works_.plan()) && n.step_weight > 0 && !n.skip) {
      run.silent = n.squares_all == 0 ? run.silent + 1 : 0;
      run.had_gradients = run.had_gradients || n.squares_all != 0;
      run.idle = rate == 0 ? run.idle + 1 : 0;
    }
    if (run.idle > std::max(options_.empty_limit, habit_watch<Storage>::silent_parts)) {
      membership_.together([&] {
        throw usage_error(place(), text("the learning rate has been 0 in ", run.idle, " steps in a row"),
                          text("Shapes count samples: where warm-up and total are meant in steps, write acco::in_steps{...}. "
                               "Where this is meant, raise options::empty_limit, or set check_habits = habit_checks::off"));
      });
    }
    const double unseen = n.all.unseen, ranks = works_.backend().size();
    const bool same = unseen > 0 && ranks * n.all.squares.unseen == unseen * unseen;
    if ((run.silent == 0 || run.silent < (run.had_gradients ? options_.empty_limit : habit_watch<Storage>::silent_parts)) &&
        !(same && run.had_gradients))
      return;
    membership_.together([&] {
      if (same && run.had_gradients) habits_.raise_unseen(place());
      throw usage_error(
          place(),
          text("gradients() stayed zero on all ranks, in ", run.silent,
               " steps in a row, though the micro-batches have a weight"),
          text("Add to the span that gradients() returns now: not to one of before the last report, nor to tensors that a "
               "zero_grad has detached from it. Where this is meant, options::check_habits = habit_checks::off"));
    });
  }

 private:
  [[nodiscard]] error_place const& place() const noexcept { return works_.queue().place; }

  works_type& works_;
  options const& options_;
  habit_watch<Storage> const& habits_;
  membership<Backend>& membership_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
