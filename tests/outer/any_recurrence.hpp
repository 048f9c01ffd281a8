// SPDX-License-Identifier: Apache-2.0
// A method of local updates that is chosen while a test runs: all settings that any recurrence has.
#pragma once

#include <acco/outer.hpp>

template <class Rule>
struct any_recurrence {
  Rule rule = {};
  unsigned delay = 0;
  acco::work_meanwhile work = acco::work_meanwhile::keep;
  double keep_local = 0;
  acco::worker_weights weights = acco::worker_weights::equal;
  bool by_gap = false;

  [[nodiscard]] constexpr acco::exchange_settings settings() const {
    return {.delay = delay, .work = work, .keep_local = keep_local, .weights = weights, .by_gap = by_gap};
  }
};
