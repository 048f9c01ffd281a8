// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules as functions of the samples committed so far. They return a factor for the rule's own learning rate.
#pragma once

#include <cmath>

#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// The same factor for ever.
struct constant {
  double factor = 1.0;
  double operator()(double) const { return factor; }
};

namespace learning_rate {
/// Rises linearly from 0 to 1 over `warmup` samples. At 0 samples it is not 0 but one sample's share, so that the first step
/// moves.
inline double rise(double samples, double warmup) { return samples < warmup ? (samples + 1) / (warmup + 1) : 1.0; }
/// The share of the way from the end of the warm-up to `total`, within 0 and 1.
inline double progress(double samples, double warmup, double total) {
  if (samples <= warmup || total <= warmup) return samples < total ? 0.0 : 1.0;
  return samples >= total ? 1.0 : (samples - warmup) / (total - warmup);
}
}  // namespace learning_rate

/// Linear warm-up over `warmup` samples, then half a cosine down to `final_factor` at `total` samples and constant from there.
struct warmup_cosine {
  double warmup = 0;
  double total = 0;
  double final_factor = 0.1;
  double operator()(double samples) const {
    const double share = learning_rate::progress(samples, warmup, total);
    return learning_rate::rise(samples, warmup) *
           (final_factor + (1 - final_factor) * 0.5 * (1 + std::cos(3.14159265358979323846 * share)));
  }
};

/// Linear warm-up over `warmup` samples, then a straight line down to `final_factor` at `total` samples and constant from there.
struct warmup_linear {
  double warmup = 0;
  double total = 0;
  double final_factor = 0.0;
  double operator()(double samples) const {
    return learning_rate::rise(samples, warmup) * (1 - (1 - final_factor) * learning_rate::progress(samples, warmup, total));
  }
};

}  // namespace ACCO_NAMESPACE
