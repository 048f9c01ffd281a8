// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "support/problem.hpp"

/// Numbers of mean 0 and variance 1 (Box and Muller), the same in every run.
inline std::vector<float> gaussian_numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double u = 1 - problem::unit(2 * i + 11), v = problem::unit(2 * i + 12);
    values[i] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }
  return values;
}
