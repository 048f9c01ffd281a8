// SPDX-License-Identifier: Apache-2.0
// What ends a training because of what its rounds have found: the errors that all ranks throw alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "acco/collective/blocking.hpp"
#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/digests.hpp"
#include "acco/round/gradient_accumulator.hpp"
#include "acco/round/membership.hpp"
#include "acco/round/non_finite.hpp"
#include "acco/round/outside_rounds.hpp"
#include "acco/round/tasks.hpp"
#include "acco/stage/state_copy.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Refers to what an engine owns. The trainer's thread calls all members, on every rank with the same round, once it
/// is done; what they throw says so on every rank.
template <class Storage>
class round_verdicts {
 public:
  using tasks_type = round_tasks<Storage>;

  round_verdicts(tasks_type& tasks, gradient_accumulator<Storage> const& accumulator, parameter_layout const& layout,
                 options const& chosen, membership& together) noexcept
      : tasks_(tasks), accumulator_(accumulator), layout_(layout), options_(chosen), membership_(together) {}

  /// Of a round that `ends()`. No parameter has changed. `rate` is this rank's.
  void raise(double rate) const {
    round_numbers const& n = tasks_.numbers();
    if (n.outside) raise_different_sums(n.counts_all[0], tasks_.backend().size(), place());
    membership_.together([&] {
      if (n.rates_differ) raise_rates(rate);
      if (n.shown_differ) raise_in_use();
      if (n.spike) {
        throw spike_error(place(),
                          text("the norm of this step's gradient is ", n.norm, ", more than ", options_.norm_limit,
                               " times the median of those of the last updates"),
                          text("Restore the last checkpoint, and leave these data out; or set options::on_norm_spike"));
      }
      raise_non_finite();
    });
  }
  /// Too many updates in a row were skipped.
  void look_for_skips(run_counters const& run) const {
    if (run.skipped <= options_.skip_limit) return;
    round_numbers const& n = tasks_.numbers();
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

 private:
  [[nodiscard]] error_place const& place() const noexcept { return tasks_.queue().place; }

  /// Names ranks of different learning rates; `mine` is this rank's.
  [[noreturn]] void raise_rates(double mine) const {
    std::vector<double> all(static_cast<std::size_t>(ranks()), 0.0);
    all[static_cast<std::size_t>(tasks_.backend().rank())] = mine;
    sum_over_ranks(tasks_, all);
    raise_different_rates(all, tasks_.samples_before(), place());
  }
  /// Names who has other parameters in use than the others.
  void raise_in_use() const {
    if constexpr (digests<Storage>) {
      std::vector<std::uint64_t> mine(layout_.tensor_count());
      for (std::size_t k = 0; k < mine.size(); ++k) mine[k] = tasks_.shown(k);
      raise_different_parameters(mine, layout_, ranks(), place(), [this](std::span<std::uint64_t> all, int root) {
        broadcast_and_wait(tasks_.queue(), tasks_.backend(),
                           std::span<char>(reinterpret_cast<char*>(all.data()), all.size_bytes()), root);
      });
    }
  }
  /// Names who brought infinite or NaN gradients, if the round ended for that, or whose update gave such parameters, if
  /// its encoding refused them.
  void raise_non_finite() const {
    round_numbers const& n = tasks_.numbers();
    const auto find = [this](unsigned long long count, unsigned long long first) {
      return find_first(tasks_.backend().rank(), ranks(), count, count != 0 ? accumulator_.offset_of(first) : 0,
                        [this](std::span<double> sums) { sum_over_ranks(tasks_, sums); });
    };
    if (n.not_finite) raise_non_finite_gradients(find(n.found, tasks_.first_not_finite()), layout_, place());
    if (n.diverged_all != 0) raise_non_finite_update(find(n.diverged, n.diverged_first), layout_, place());
  }
  [[nodiscard]] int ranks() const noexcept { return tasks_.backend().size(); }

  tasks_type& tasks_;
  gradient_accumulator<Storage> const& accumulator_;
  parameter_layout const& layout_;
  options const& options_;
  membership& membership_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
