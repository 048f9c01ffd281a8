// SPDX-License-Identifier: Apache-2.0
// What a trainer may choose beside schedule, rule, storage and backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "acco/error.hpp"
#include "acco/layout/update_regions.hpp"
#include "acco/number/require.hpp"
#include "acco/schedule/learning_rate.hpp"
#include "acco/schedule/learning_rate_function.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// What happens when a gradient is infinite or not a number. Every rank decides alike.
enum class non_finite {
  raise,  ///< every rank throws `non_finite_error`, which names the rank and the tensor
  skip,   ///< the update is left out; its samples do not count as committed
};

/// What happens when the norm of the gradients of a step is beyond `options::norm_limit`. Every rank decides alike.
enum class norm_spike {
  raise,  ///< every rank throws `spike_error`; no parameter has changed
  skip,   ///< the update is left out; its samples do not count as committed
};

/// Whether to look for habits of trainers that break a training silently (usage/checked_engine.hpp): gradients that are
/// cleared or stay zero, parameters that are written to, spans of before a report. In host memory only.
enum class habit_checks {
  in_debug_builds,  ///< where the file that makes the optimizer is compiled without NDEBUG
  on,
  off
};

struct options {
  double clip_norm = 0;  ///< largest global norm of the mean gradient; 0: no clipping
  std::function<double(double)> clip_with =
      {};  ///< where other optimizers are clipped by the same norm: told the square of the
           ///< norm of this one's mean gradient, returns that of all, the same on every rank.
           ///< Called once a round, on the communication thread; it may wait for the others'
           ///< rounds, which are to be in flight then: not under `synchronous`. Told -1 where
           ///< the round has failed: the others' must not wait for it. In host memory
  learning_rate_function learning_rate =
      constant{};                 ///< factor for the rule's learning rate, a function of the samples committed
                                  ///< (`in_steps`: of the updates): 0 at `initialize`, then those that the
                                  ///< training has reached, no others. Called when a round starts, under
                                  ///< weight_prediction also on the communication thread. What it returns is
                                  ///< checked (`rate_at`), and compared between ranks in every round (under local
                                  ///< updates between those of a worker)
  bool stable_addresses = false;  ///< `parameters()` and `gradients()` never move; costs a copy of both a round
  bool in_place = false;          ///< gradients that an estimate leaves for the commit (`two_phase` whose estimates
                                  ///< are coded, or own_slice) stay in `gradients()`, which saves an array as large
                                  ///< as them: it must not be cleared before the commit then. In host memory
  double deadline = 600;          ///< seconds that any rank waits for another; 1e9 is for ever
  non_finite on_non_finite = non_finite::raise;
  std::size_t skip_limit = 100;            ///< updates in a row that may be skipped before an error is thrown after all
  std::size_t empty_limit = 100;           ///< steps in a row, of all ranks, that may weigh nothing before an
                                           ///< error is thrown; under local updates of all ranks of a worker
  double loss_scale = 1;                   ///< by which the trainer multiplies all losses, or gradients,
                                           ///< so that small ones do not vanish in `half`: they are
                                           ///< divided by it in full precision. Not the `loss_sum`s.
                                           ///< A power of two changes no bit of what is finite
  double average_decay = 0;                ///< 0.999, say: keeps an exponential moving average of the
                                           ///< committed weights (sharded; `gather_average`), which begins
                                           ///< as the initial ones: a <- decay a + (1 - decay) weights
  norm_detail norms = norm_detail::total;  ///< whose norms `any_optimizer::norms` tells
  habit_checks check_habits = habit_checks::in_debug_builds;  ///< costs a copy of parameters and gradients,
                                                              ///< where spans move two of each, and a few
                                                              ///< passes over both each micro-batch
  std::size_t keep_checkpoints = 2;  ///< in the folder of a run, when a new one is complete; never fewer than one
  double norm_limit = 0;             ///< the norm of a step's mean gradient, before clipping, may be this many
                                     ///< times the median of those of the last 64 updates, once there are 16;
                                     ///< 0: no limit. 10, say
  norm_spike on_norm_spike = norm_spike::raise;
  std::uint64_t compare_every = 100;  ///< rounds from one comparison of the ranks' parameters in
                                      ///< use to the next, in every bit (`corruption_error`); 0:
                                      ///< never. A pass over the parameters, hidden in the round
  bool compare_frozen = false;        ///< frozen tensors, too, but for those that are `per_rank`: nobody may write
                                      ///< to them while this optimizer trains, for they are read by another thread
  std::uint64_t digest_every = 0;     ///< updates from one `round_report::digest` to the next; 0:
                                      ///< none. A pass over this rank's state, hidden in the round
  std::size_t bucket_elements = 0;    ///< trainable elements that travel as one collective, over all
                                      ///< ranks: while one bucket is under way another is updated;
                                      ///< 0: chosen by the storage (host: 2^20 for each rank)

  /// Throws `usage_error` on values that mean nothing: numbers that are infinite, NaN or out of range, no learning
  /// rate, or one of the library's that lacks something (a forgotten `total`). The optimizer's constructor calls it.
  void check(error_place where = {}) const {
    require_not_negative("options::clip_norm", clip_norm, where);  // 0: no clipping
    require_positive("options::deadline", deadline, where);
    require_share("options::average_decay", average_decay, where);
    require_not_negative("options::norm_limit", norm_limit, where);
    if (norm_limit != 0 && norm_limit <= 1) {
      throw usage_error(where,
                        text("options::norm_limit is ", norm_limit, ": half of all gradients have a norm beyond their median"),
                        text("Give a factor above 1, 10 say, or 0 for no limit"));
    }
    require_positive("options::loss_scale", loss_scale, where);
    if (!learning_rate)
      throw usage_error(where, text("options::learning_rate is empty"), text("Give acco::constant{} or any callable"));
    learning_rate.check(where);
  }

  /// Whether a gradient that is not finite is an error.
  [[nodiscard]] bool raises() const noexcept { return on_non_finite == non_finite::raise; }
  /// What `learning_rate` returns there. Throws `usage_error` where that is negative, infinite or NaN.
  [[nodiscard]] double rate_at(training_position const& at, error_place where) const {
    const double rate = learning_rate(at);
    if (!(is_finite(rate) && rate >= 0)) {
      throw usage_error(where, text("options::learning_rate returned ", rate, " at ", at.samples, " samples"),
                        text("It must return a finite factor, 0 or more, for every number of samples"));
    }
    return rate;
  }

  /// Calls visit(what, number) for everything on which ranks must agree; of the learning rate, its first value.
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("clip_norm", clip_norm);
    if (clip_with) visit("clip_with", 1);  // older checkpoints lack it
    visit("skip non-finite", !raises());
    visit("skip_limit", skip_limit);
    visit("empty_limit", empty_limit);
    if (loss_scale != 1) visit("loss_scale", loss_scale);  // older checkpoints lack it
    visit("average_decay", average_decay);
    visit("norms", static_cast<int>(norms));
    visit("norm_limit", norm_limit);
    visit("on_norm_spike", static_cast<int>(on_norm_spike));
    visit("compare_every", compare_every);
    visit("compare_frozen", compare_frozen);
    visit("digest_every", digest_every);
    visit("bucket_elements", bucket_elements);
    visit("learning_rate(0)", learning_rate({}));
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
