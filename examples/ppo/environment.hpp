// SPDX-License-Identifier: Apache-2.0
// What both tasks share: random numbers that are the same everywhere, and how a step ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace ppo {

/// Of one environment: what happens in it depends on its seed and its actions alone, whichever rank it lives on.
class random_numbers {
  std::mt19937_64 bits_;

 public:
  explicit random_numbers(std::uint64_t seed) : bits_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  /// Between 0 and 1. A distribution of the standard library would differ from one library to the other.
  double uniform() { return static_cast<double>(bits_() >> 11U) * 0x1p-53; }
  double between(double low, double high) { return low + (high - low) * uniform(); }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(bits_() % count); }
};

/// `terminal`: nothing can be earned any more. `time`: the episode is cut off, and the state that it was left in has a
/// value.
enum class ending { none, terminal, time };

struct outcome {
  double reward;
  ending end;
};

}  // namespace ppo
