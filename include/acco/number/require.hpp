// SPDX-License-Identifier: Apache-2.0
// Numbers that a user gives, checked where they are given: the error names the number, its value, and what is allowed.
#pragma once

#include "acco/error.hpp"
#include "acco/number/finite.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Each throws `usage_error` that says "`name` is `value`" and what to give instead. NaN and infinity are never
/// allowed.
inline void require_not_negative(char const* name, double value, error_place where = {}) {
  if (!(is_finite(value) && value >= 0))
    throw usage_error(where, text(name, " is ", value), text("Give a finite number, 0 or more"));
}
inline void require_positive(char const* name, double value, error_place where = {}) {
  if (!(is_finite(value) && value > 0)) throw usage_error(where, text(name, " is ", value), text("Give a finite number above 0"));
}
/// 0 <= value < 1: how much of an average is kept.
inline void require_share(char const* name, double value, error_place where = {}) {
  if (!(is_finite(value) && value >= 0 && value < 1))
    throw usage_error(where, text(name, " is ", value), text("Give a number from 0 to below 1"));
}
/// 0 <= value <= 1.
inline void require_part(char const* name, double value, error_place where = {}) {
  if (!(is_finite(value) && value >= 0 && value <= 1))
    throw usage_error(where, text(name, " is ", value), text("Give a number from 0 to 1"));
}

}  // namespace ACCO_NAMESPACE
