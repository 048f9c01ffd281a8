// SPDX-License-Identifier: Apache-2.0
// Everything of a simulation follows from one 64-bit seed, through these.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simulation {

constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

/// A stream of numbers that look random.
class stream {
 public:
  explicit stream(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t next() { return mix(state_++); }
  /// 0 to `bound` - 1.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  /// `least` to `most`.
  std::size_t between(std::size_t least, std::size_t most) { return least + below(most - least + 1); }
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }
  bool chance(double probability) { return unit() < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace simulation
