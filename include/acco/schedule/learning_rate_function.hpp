// SPDX-License-Identifier: Apache-2.0
// What options::learning_rate holds: any function of the samples, or of the steps, that a training has committed.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "acco/error.hpp"
#include "acco/number/require.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// Where a training is when it asks for a step's learning rate.
struct training_position {
  double samples = 0;       ///< weight committed so far, over all ranks: samples, or tokens, as `accumulated` is told
  std::uint64_t steps = 0;  ///< updates committed so far: 0 for the first step
};

/// A learning rate's factor in terms of steps: `in_steps{acco::warmup_cosine{.warmup = 100, .total = 10000}}` rises
/// during the first 100 updates. Every step counts, how many samples it has does not.
template <class Schedule>
struct in_steps {
  Schedule schedule;
  double operator()(training_position const& at) const { return schedule(static_cast<double>(at.steps)); }
  void check(error_place where = {}) const {
    if constexpr (requires { schedule.check(where); }) schedule.check(where);
  }
};
template <class Schedule>
in_steps(Schedule) -> in_steps<Schedule>;

/// The same in terms of samples, where the weights that `accumulated` is told are samples. A schedule alone means the
/// same.
template <class Schedule>
struct in_samples {
  Schedule schedule;
  double operator()(training_position const& at) const { return schedule(at.samples); }
  void check(error_place where = {}) const {
    if constexpr (requires { schedule.check(where); }) schedule.check(where);
  }
};
template <class Schedule>
in_samples(Schedule) -> in_samples<Schedule>;

/// The same in terms of tokens, of which every sample has `tokens_per_sample`: 1 where the weights are tokens
/// themselves.
template <class Schedule>
struct in_tokens {
  Schedule schedule;
  double tokens_per_sample = 1;
  double operator()(training_position const& at) const { return schedule(at.samples * tokens_per_sample); }
  void check(error_place where = {}) const {
    require_positive("in_tokens::tokens_per_sample", tokens_per_sample, where);
    if constexpr (requires { schedule.check(where); }) schedule.check(where);
  }
};
template <class Schedule>
in_tokens(Schedule, double = 1) -> in_tokens<Schedule>;

/// Holds a callable that takes the samples committed (a double), or a `training_position`; or nothing. What has
/// `check()` is asked by the optimizer's constructor.
class learning_rate_function {
 public:
  /// Holds nothing.
  learning_rate_function() = default;
  template <class Rate>
    requires(!std::same_as<Rate, learning_rate_function> && (std::is_invocable_r_v<double, Rate const&, double> ||
                                                             std::is_invocable_r_v<double, Rate const&, training_position>))
  learning_rate_function(Rate rate) {
    if (holds_nothing(rate)) return;
    if constexpr (requires { rate.check(error_place{}); }) {
      check_ = [rate](error_place const& where) { rate.check(where); };
    }
    if constexpr (std::is_invocable_r_v<double, Rate const&, double>) {
      value_ = [kept = std::move(rate)](training_position const& at) -> double { return kept(at.samples); };
    } else {
      value_ = std::move(rate);
    }
  }

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(value_); }
  [[nodiscard]] double operator()(training_position const& at) const { return value_(at); }
  /// Throws what the callable's own check() throws.
  void check(error_place where) const {
    if (check_) check_(where);
  }

 private:
  template <class Rate>
  static bool holds_nothing(Rate const&) noexcept {
    return false;
  }
  template <class Signature>
  static bool holds_nothing(std::function<Signature> const& rate) noexcept {
    return !rate;
  }
  template <class Result, class Argument>
  static bool holds_nothing(Result (*const& rate)(Argument)) noexcept {
    return rate == nullptr;
  }

  std::function<double(training_position const&)> value_;
  std::function<void(error_place const&)> check_;
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
