// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules as functions of what has been committed so far: of samples, or, wrapped in `in_steps`, of
// steps (learning_rate_function.hpp). They return a factor for the rule's own learning rate. All numbers of one
// schedule have one unit. Each has check(), which throws `usage_error`: the optimizer's constructor calls it where it
// is given as options::learning_rate, and the call operator wherever it is used, inside a lambda too.
#pragma once

#include "acco/error.hpp"
#include "acco/number/require.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// The same factor for ever.
struct constant {
  double factor = 1.0;
  double operator()(double) const {
    check();
    return factor;
  }
  /// The factor is finite and not negative.
  void check(error_place where = {}) const { require_not_negative("constant::factor", factor, where); }
};

namespace learning_rate {
/// Rises linearly from 0 to 1 over `warmup`. A step's factor is that of what was committed before it and of `step`, its
/// own: so the first step moves, and the first one behind the warm-up is the first at 1.
inline double rise(double samples, double warmup, double step) {
  return samples < warmup ? (samples + step) / (warmup + step) : 1.0;
}
/// The share of the way from the end of the warm-up to `total`, within 0 and 1.
inline double progress(double samples, double warmup, double total) {
  if (samples <= warmup || total <= warmup) return samples < total ? 0.0 : 1.0;
  return samples >= total ? 1.0 : (samples - warmup) / (total - warmup);
}
inline void require_total(char const* name, double total, double warmup, error_place where) {
  if (!(is_finite(total) && total > 0 && total >= warmup)) {
    throw usage_error(where, text(name, " is ", total, ", with a warmup of ", warmup),
                      text("Give the samples of the whole training, the warm-up included"));
  }
}
/// The same of all that warm up.
inline void require_warmup(char const* warmup_name, double warmup, char const* step_name, double step, error_place where) {
  require_not_negative(warmup_name, warmup, where);
  require_positive(step_name, step, where);
}
}  // namespace learning_rate

/// Linear warm-up over `warmup` samples, then half a cosine down to `final_factor` at `total` samples and constant from
/// there.
struct warmup_cosine {
  double warmup = 0;
  double total = 0;  ///< must be given: at least `warmup`
  double final_factor = 0.1;
  double step = 1;  ///< samples of a step, which the warm-up counts ahead; 1 is right where the unit is steps
  double operator()(double samples) const {
    check();
    const double share = learning_rate::progress(samples, warmup, total);
    return learning_rate::rise(samples, warmup, step) *
           (final_factor + (1 - final_factor) * 0.5 * (1 + __builtin_cos(3.14159265358979323846 * share)));
  }
  void check(error_place where = {}) const {
    learning_rate::require_warmup("warmup_cosine::warmup", warmup, "warmup_cosine::step", step, where);
    learning_rate::require_total("warmup_cosine::total", total, warmup, where);
    require_not_negative("warmup_cosine::final_factor", final_factor, where);
  }
};

/// Linear warm-up over `warmup` samples, then a straight line down to `final_factor` at `total` samples and constant
/// from there.
struct warmup_linear {
  double warmup = 0;
  double total = 0;  ///< must be given: at least `warmup`
  double final_factor = 0.0;
  double step = 1;  ///< as warmup_cosine's
  double operator()(double samples) const {
    check();
    return learning_rate::rise(samples, warmup, step) *
           (1 - (1 - final_factor) * learning_rate::progress(samples, warmup, total));
  }
  void check(error_place where = {}) const {
    learning_rate::require_warmup("warmup_linear::warmup", warmup, "warmup_linear::step", step, where);
    learning_rate::require_total("warmup_linear::total", total, warmup, where);
    require_not_negative("warmup_linear::final_factor", final_factor, where);
  }
};

/// How `warmup_stable_decay` goes down in its last part, of which `share` (0 to 1) is over.
enum class cooldown {
  linear,                ///< 1 - share
  one_minus_square_root  ///< 1 - sqrt(share): Hägele et al., arXiv 2405.18392, section 3
};

/// Linear warm-up over `warmup` samples, then 1, then down to `final_factor` during the last `decay` samples before
/// `total`, and constant from there: WSD, Hu et al., arXiv 2404.06395, section 4. The stable part does not depend on
/// `total`: it can be gone on from.
struct warmup_stable_decay {
  double warmup = 0;
  double total = 0;  ///< must be given: at least `warmup + decay`
  double decay = 0;  ///< 0: none, the factor stays 1
  double final_factor = 0.0;
  cooldown shape = cooldown::linear;
  double step = 1;  ///< as warmup_cosine's
  double operator()(double samples) const {
    check();
    if (samples < warmup || decay == 0) return learning_rate::rise(samples, warmup, step);
    const double share = learning_rate::progress(samples, total - decay, total);
    return 1 - (1 - final_factor) * (shape == cooldown::linear ? share : __builtin_sqrt(share));
  }
  void check(error_place where = {}) const {
    learning_rate::require_warmup("warmup_stable_decay::warmup", warmup, "warmup_stable_decay::step", step, where);
    require_not_negative("warmup_stable_decay::decay", decay, where);
    if (!(is_finite(total) && total > 0 && total >= warmup + decay)) {
      throw usage_error(where,
                        text("warmup_stable_decay::total is ", total, ", with a warmup of ", warmup, " and a decay of ", decay),
                        text("Give the samples of the whole training, both included"));
    }
    require_not_negative("warmup_stable_decay::final_factor", final_factor, where);
  }
};

/// Linear warm-up over `warmup` samples, then half a cosine from 1 down to `final_factor` during `period` samples, and
/// again from 1, each time `stretch` times as long: SGDR, Loshchilov and Hutter, arXiv 1608.03983, section 3.
struct warmup_cosine_restarts {
  double warmup = 0;
  double period = 0;   ///< must be given
  double stretch = 1;  ///< 1 or more
  double final_factor = 0.0;
  double step = 1;  ///< as warmup_cosine's
  double operator()(double samples) const {
    check();
    if (samples < warmup) return learning_rate::rise(samples, warmup, step);
    double since = samples - warmup, length = period;
    // Where the beginning of a period is as near as rounding, it begins.
    if (stretch == 1) {
      double k = __builtin_floor(since / period);
      if ((k + 1) * period <= since + 1e-12 * samples) ++k;
      since = __builtin_fmax(0, since - k * period);
    } else {
      // k whole periods take length (stretch^k - 1) / (stretch - 1).
      const double growth = stretch - 1, log_stretch = __builtin_log(stretch), ratio = since / period * growth;
      const auto begin_of = [&](double k) { return period * (__builtin_expm1(k * __builtin_log1p(growth)) / growth); };
      double k = __builtin_floor(
          (is_finite(ratio) ? __builtin_log1p(ratio) : __builtin_log(since / period) + __builtin_log(growth)) / log_stretch);
      if (k > 0 && begin_of(k) > since) --k;
      if (begin_of(k + 1) <= since * (1 + 1e-12)) ++k;
      since = __builtin_fmax(0, since - begin_of(k));
      length *= __builtin_exp(k * log_stretch);
    }
    return final_factor + (1 - final_factor) * 0.5 * (1 + __builtin_cos(3.14159265358979323846 * since / length));
  }
  void check(error_place where = {}) const {
    learning_rate::require_warmup("warmup_cosine_restarts::warmup", warmup, "warmup_cosine_restarts::step", step, where);
    require_positive("warmup_cosine_restarts::period", period, where);
    if (!(is_finite(stretch) && stretch >= 1)) {
      throw usage_error(where, text("warmup_cosine_restarts::stretch is ", stretch), text("Give 1 or more"));
    }
    require_not_negative("warmup_cosine_restarts::final_factor", final_factor, where);
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
