// SPDX-License-Identifier: Apache-2.0
// What a trainer may choose beside schedule, rule, storage and backend.
#pragma once

#include <cstddef>
#include <functional>

#include "acco/error.hpp"
#include "acco/schedule/learning_rate.hpp"

namespace ACCO_NAMESPACE {

/// What happens when a gradient is infinite or not a number. Every rank decides alike.
enum class non_finite {
  raise,  ///< every rank throws `non_finite_error`, which names the rank and the tensor
  skip,   ///< the update is left out; its samples do not count as committed
};

struct options {
  double clip_norm = 0;                                      ///< largest global norm of the mean gradient; 0: no clipping
  std::function<double(double)> learning_rate = constant{};  ///< factor for the rule's learning rate, a function of the samples
                                                             ///< committed; called when a round starts, under weight_prediction
                                                             ///< also on the communication thread; must be the same on every rank
  bool stable_addresses = false;  ///< `parameters()` and `gradients()` never move; costs a copy of both a round
  double deadline = 600;          ///< seconds that any rank waits for another
  non_finite on_non_finite = non_finite::raise;
  std::size_t skip_limit = 100;  ///< updates in a row that may be skipped before an error is thrown after all

  /// Throws `usage_error` on values that mean nothing.
  void check() const {
    if (!(clip_norm >= 0))
      throw usage_error({}, text("options::clip_norm is ", clip_norm), text("Give a positive norm, or 0 for no clipping"));
    if (!(deadline > 0))
      throw usage_error({}, text("options::deadline is ", deadline), text("Give a positive number of seconds"));
    if (!learning_rate)
      throw usage_error({}, text("options::learning_rate is empty"), text("Give acco::constant{} or any callable"));
  }

  /// Calls visit(what, number) for everything on which ranks must agree; the learning rate is compared at a few points.
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("clip_norm", clip_norm);
    visit("skip non-finite", on_non_finite == non_finite::skip);
    visit("skip_limit", skip_limit);
    visit("learning_rate(0)", learning_rate(0));
    visit("learning_rate(1000)", learning_rate(1e3));
    visit("learning_rate(1000000)", learning_rate(1e6));
  }
};

}  // namespace ACCO_NAMESPACE
