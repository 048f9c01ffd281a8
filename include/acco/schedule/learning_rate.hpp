// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules as functions of the samples committed so far. They return a factor for the rule's own learning rate.
// Each has check(), which throws `usage_error`: the optimizer's constructor calls it where it is given as options::learning_rate,
// and the call operator wherever it is used, inside a lambda too.
#pragma once

#include <cmath>

#include "acco/error.hpp"
#include "acco/number/demand.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// The same factor for ever.
struct constant {
  double factor = 1.0;
  double operator()(double) const {
    check();
    return factor;
  }
  /// The factor is finite and not negative.
  void check(error_place where = {}) const { demand_not_negative("constant::factor", factor, where); }
};

namespace learning_rate {
/// Rises linearly from 0 to 1 over `warmup` samples. At 0 samples it is not 0 but one sample's share, so that the first step
/// moves: by nearly nothing where a sample is a token and `warmup` many steps long. A step's factor is that of the samples before
/// it: to count the coming step's own, give `warmup_cosine` in a lambda that adds them.
inline double rise(double samples, double warmup) { return samples < warmup ? (samples + 1) / (warmup + 1) : 1.0; }
/// The share of the way from the end of the warm-up to `total`, within 0 and 1.
inline double progress(double samples, double warmup, double total) {
  if (samples <= warmup || total <= warmup) return samples < total ? 0.0 : 1.0;
  return samples >= total ? 1.0 : (samples - warmup) / (total - warmup);
}
inline void demand_total(char const* name, double total, double warmup, error_place where) {
  if (!(is_finite(total) && total > 0 && total >= warmup)) {
    throw usage_error(where, text(name, " is ", total, ", with a warmup of ", warmup),
                      text("Give the samples of the whole training, the warm-up included"));
  }
}
}  // namespace learning_rate

/// Linear warm-up over `warmup` samples, then half a cosine down to `final_factor` at `total` samples and constant from there.
struct warmup_cosine {
  double warmup = 0;
  double total = 0;  ///< must be given: at least `warmup`
  double final_factor = 0.1;
  double operator()(double samples) const {
    check();
    const double share = learning_rate::progress(samples, warmup, total);
    return learning_rate::rise(samples, warmup) *
           (final_factor + (1 - final_factor) * 0.5 * (1 + std::cos(3.14159265358979323846 * share)));
  }
  void check(error_place where = {}) const {
    demand_not_negative("warmup_cosine::warmup", warmup, where);
    learning_rate::demand_total("warmup_cosine::total", total, warmup, where);
    demand_not_negative("warmup_cosine::final_factor", final_factor, where);
  }
};

/// Linear warm-up over `warmup` samples, then a straight line down to `final_factor` at `total` samples and constant from there.
struct warmup_linear {
  double warmup = 0;
  double total = 0;  ///< must be given: at least `warmup`
  double final_factor = 0.0;
  double operator()(double samples) const {
    check();
    return learning_rate::rise(samples, warmup) * (1 - (1 - final_factor) * learning_rate::progress(samples, warmup, total));
  }
  void check(error_place where = {}) const {
    demand_not_negative("warmup_linear::warmup", warmup, where);
    learning_rate::demand_total("warmup_linear::total", total, warmup, where);
    demand_not_negative("warmup_linear::final_factor", final_factor, where);
  }
};

}  // namespace ACCO_NAMESPACE
