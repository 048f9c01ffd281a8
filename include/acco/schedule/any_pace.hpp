// SPDX-License-Identifier: Apache-2.0
// A pace that is chosen while the program runs.
#pragma once

#include <array>
#include <concepts>

#include "acco/error.hpp"
#include "acco/schedule/auto_pace.hpp"
#include "acco/schedule/pace.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// A `fixed_pace`, an `elastic_pace` or an `auto_pace`: one type, so that a schedule is compiled once for all of them.
class any_pace {
 public:
  constexpr any_pace() = default;
  constexpr any_pace(fixed_pace pace) noexcept : fixed_(pace) {}
  constexpr any_pace(elastic_pace pace) noexcept : kind_(elastic), elastic_(pace) {}
  constexpr any_pace(auto_pace pace) noexcept : kind_(found), found_(pace) {}

  /// Of the pace that it is.
  [[nodiscard]] constexpr char const* name_of_kind() const noexcept {
    return kind_ == fixed ? fixed_pace::name : kind_ == elastic ? elastic_pace::name : auto_pace::name;
  }
  [[nodiscard]] constexpr unsigned minimum(step_part part) const noexcept {
    return kind_ == fixed ? fixed_.minimum(part) : kind_ == elastic ? elastic_.minimum(part) : found_.minimum(part);
  }
  [[nodiscard]] constexpr unsigned maximum(step_part part) const noexcept {
    return kind_ == fixed ? fixed_.maximum(part) : kind_ == elastic ? elastic_.maximum(part) : found_.maximum(part);
  }
  /// Whether it is an `auto_pace`, which wants to know what a step has taken.
  [[nodiscard]] constexpr bool measures() const noexcept { return kind_ == found; }
  constexpr void measured(pace_seconds const& seconds) noexcept {
    if (measures()) found_.measured(seconds);
  }
  [[nodiscard]] constexpr std::array<double, 5> save_state() const noexcept {
    return measures() ? found_.save_state() : std::array<double, 5>{};
  }
  constexpr void load_state(std::array<double, 5> const& of) noexcept {
    if (measures()) found_.load_state(of);
  }
  /// What it is, for a schedule that takes nothing else. Throws `usage_error` where it is another.
  [[nodiscard]] constexpr fixed_pace only_fixed() const {
    if (kind_ != fixed) {
      throw usage_error({}, text("the schedule waits for every round, and its pace is not a fixed one"),
                        text("Give it a fixed_pace: with another one a rank has nothing to do meanwhile"));
    }
    return fixed_;
  }

 private:
  enum { fixed, elastic, found } kind_ = fixed;
  fixed_pace fixed_ = {};
  elastic_pace elastic_ = {};
  auto_pace found_ = {};
};
static_assert(pace<any_pace> && measuring_pace<any_pace>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
