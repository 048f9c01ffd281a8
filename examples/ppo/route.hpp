// SPDX-License-Identifier: Apache-2.0
// A car on a road of bends, rewarded in the manner of CaRL (Jaeger et al., arXiv 2504.17838): a step earns the share of
// the route that it completes and nothing else. Too fast in a bend, the share is multiplied by a half. Off the road the
// episode ends, and with it all that could still be earned.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "environment.hpp"

namespace ppo {

struct route {
  static constexpr char const* name = "route";
  static constexpr std::size_t observations = 6, actions = 15;
  static constexpr double best = 1;  ///< return of an episode: the whole route, never too fast

  static constexpr double length = 200, bend = 20, sharpest = 0.06, half_width = 2.5;  // m, m, 1/m, m
  static constexpr double fastest = 15, most_sideways = 5, seconds = 0.2;              // m/s, m/s^2
  static constexpr int patience = 150;                                                 // steps

  std::array<double, 13> curvatures{};              ///< of the road, bend by bend; two more than the route has
  double along = 0, aside = 0, heading = 0, v = 0;  ///< on the road; heading is relative to it
  int step_count = 0;

  [[nodiscard]] double curvature(double where) const {
    return curvatures[std::min(static_cast<std::size_t>(std::max(where, 0.0) / bend), curvatures.size() - 1)];
  }

  void reset(random_numbers& random) {
    for (double& each : curvatures) each = random.between(-sharpest, sharpest);
    *this = {.curvatures = curvatures, .aside = random.between(-0.5, 0.5), .v = 5};
  }
  [[nodiscard]] std::array<double, observations> observe() const {
    return {aside / half_width,
            3 * heading,
            v / fastest,
            curvature(along) / sharpest,
            curvature(along + bend / 2) / sharpest,
            curvature(along + bend) / sharpest};
  }
  /// Five curvatures to drive by, times: brake, roll, accelerate.
  outcome step(std::size_t action) {
    constexpr std::array pedals{-4.0, 0.0, 2.0};  // m/s^2
    const double steering = 0.04 * (static_cast<double>(action / 3) - 2);
    v = std::clamp(v + seconds * pedals[action % 3], 0.0, fastest);
    const double before = along, road = curvature(along);
    const double forward = v * std::cos(heading) / (1 - aside * road);
    aside += seconds * v * std::sin(heading);
    heading += seconds * (v * steering - road * forward);
    along += seconds * forward;
    const double share = (std::min(along, length) - before) / length;
    const double penalty = v * v * std::abs(steering) > most_sideways ? 0.5 : 1;
    if (std::abs(aside) > half_width) return {0, ending::terminal};
    if (along >= length) return {penalty * share, ending::terminal};
    return {penalty * share, ++step_count == patience ? ending::time : ending::none};
  }
};

}  // namespace ppo
