// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
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

/// What `e` loses of numbers, in parts of their squares; whole blocks.
template <class Encoding>
double lost_of(Encoding const& e, std::span<float const> values) {
  std::byte bytes[Encoding::block_bytes];
  float decoded[Encoding::block_size];
  double lost = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); i += Encoding::block_size) {
    e.encode(values.data() + i, bytes);
    e.decode(bytes, decoded);
    for (std::size_t k = 0; k < Encoding::block_size; ++k) {
      const double x = static_cast<double>(values[i + k]), difference = x - static_cast<double>(decoded[k]);
      lost += difference * difference;
      all += x * x;
    }
  }
  return lost / all;
}
