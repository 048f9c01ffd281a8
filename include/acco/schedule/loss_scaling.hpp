// SPDX-License-Identifier: Apache-2.0
// Dynamic loss scaling, for gradients of few exponent bits (Micikevicius et al., arXiv 1710.03740, section 3.2).
#pragma once

#include <cstdint>

#include "acco/error.hpp"
#include "acco/number/demand.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Small gradients vanish in `half`. The trainer multiplies its loss, and so its gradients, by `any_optimizer::loss_scale()`; the
/// optimizer divides them again, in full precision. The scale backs off whenever a gradient overflowed (that update is skipped,
/// on every rank alike), and grows after `interval` updates without one. Powers of two change no bit of a finite gradient.
struct loss_scaling {
  double initial = 65536;
  double growth = 2, backoff = 0.5;  ///< factors
  std::uint64_t interval = 2000;     ///< updates in a row
  double least = 1, most = 16777216;

  /// Throws `usage_error`.
  void check(error_place where = {}) const {
    demand_positive("loss_scaling::least", least, where);
    demand_positive("loss_scaling::most", most, where);
    if (!(initial >= least && initial <= most)) {
      throw usage_error(where, text("loss_scaling::initial is ", initial, ", least ", least, ", most ", most),
                        text("Let it lie between the two"));
    }
    if (!(growth >= 1 && is_finite(growth) && backoff > 0 && backoff < 1 && interval != 0)) {
      throw usage_error(
          where, text("loss_scaling has growth ", growth, ", backoff ", backoff, ", interval ", interval),
          text("growth is 1 or more (1: it never grows), backoff lies between 0 and 1, interval is 1 update or more"));
    }
  }
  /// Calls visit(what, number) for everything on which ranks must agree.
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("loss_scale.initial", initial);
    visit("loss_scale.growth", growth);
    visit("loss_scale.backoff", backoff);
    visit("loss_scale.interval", interval);
    visit("loss_scale.least", least);
    visit("loss_scale.most", most);
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
