// SPDX-License-Identifier: Apache-2.0
// What a trainer may choose beside schedule, rule, storage and backend.
#pragma once

#include <cstddef>

#include "acco/error.hpp"
#include "acco/number/demand.hpp"
#include "acco/schedule/learning_rate.hpp"
#include "acco/schedule/learning_rate_function.hpp"

namespace ACCO_NAMESPACE {

/// What happens when a gradient is infinite or not a number. Every rank decides alike.
enum class non_finite {
  raise,  ///< every rank throws `non_finite_error`, which names the rank and the tensor
  skip,   ///< the update is left out; its samples do not count as committed
};

struct options {
  double clip_norm = 0;  ///< largest global norm of the mean gradient; 0: no clipping
  learning_rate_function learning_rate =
      constant{};                 ///< factor for the rule's learning rate, a function of the samples committed
                                  ///< (`in_steps`: of the updates): 0 at `initialize`, then those that the
                                  ///< training has reached, no others. Called when a round starts, under
                                  ///< weight_prediction also on the communication thread. What it returns is
                                  ///< checked (`rate_at`), and compared between ranks in every round
  bool stable_addresses = false;  ///< `parameters()` and `gradients()` never move; costs a copy of both a round
  double deadline = 600;          ///< seconds that any rank waits for another; 1e9 is for ever
  non_finite on_non_finite = non_finite::raise;
  std::size_t skip_limit = 100;     ///< updates in a row that may be skipped before an error is thrown after all
  std::size_t empty_limit = 100;    ///< steps in a row, of all ranks, that may weigh nothing before an error is thrown
  std::size_t bucket_elements = 0;  ///< trainable elements that travel as one collective, over all ranks: while one bucket is
                                    ///< under way another is updated; 0: chosen by the storage (host: 2^20 for each rank)

  /// Throws `usage_error` on values that mean nothing: numbers that are infinite, NaN or out of range, no learning rate, or one
  /// of the library's that lacks something (a forgotten `total`). The optimizer's constructor calls it.
  void check(error_place where = {}) const {
    demand_not_negative("options::clip_norm", clip_norm, where);  // 0: no clipping
    demand_positive("options::deadline", deadline, where);
    if (!learning_rate)
      throw usage_error(where, text("options::learning_rate is empty"), text("Give acco::constant{} or any callable"));
    learning_rate.check(where);
  }

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
    visit("skip non-finite", on_non_finite == non_finite::skip);
    visit("skip_limit", skip_limit);
    visit("empty_limit", empty_limit);
    visit("bucket_elements", bucket_elements);
    visit("learning_rate(0)", learning_rate({}));
  }
};

}  // namespace ACCO_NAMESPACE
