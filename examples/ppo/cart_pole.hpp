// SPDX-License-Identifier: Apache-2.0
// A pole on a cart, pushed left or right (Barto, Sutton, Anderson 1983, IEEE Transactions on Systems, Man, and
// Cybernetics 13(5), the appendix): 1 for every step until the pole falls or the cart leaves its track.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "environment.hpp"

namespace ppo {

struct cart_pole {
  static constexpr char const* name = "cart_pole";
  static constexpr std::size_t observations = 4, actions = 2;
  static constexpr double best = 500;  ///< return of an episode

  static constexpr double gravity = 9.8, cart = 1.0, pole = 0.1, half_length = 0.5, push = 10;
  static constexpr double friction = 0.0005, hinge_friction = 0.000002, seconds = 0.02;
  static constexpr double fallen = 12 * std::numbers::pi / 180, end_of_track = 2.4;

  double x = 0, speed = 0, angle = 0, turning = 0;
  int step_count = 0;

  struct accelerations {
    double x, angle;
  };
  /// Of the cart and of the pole.
  [[nodiscard]] accelerations accelerate(double force) const {
    const double mass = cart + pole, sine = std::sin(angle), cosine = std::cos(angle);
    const double drag = speed == 0 ? 0 : std::copysign(friction, speed);
    const double of_angle = (gravity * sine + cosine * (-force - pole * half_length * turning * turning * sine + drag) / mass -
                             hinge_friction * turning / (pole * half_length)) /
                            (half_length * (4.0 / 3 - pole * cosine * cosine / mass));
    return {(force + pole * half_length * (turning * turning * sine - of_angle * cosine) - drag) / mass, of_angle};
  }

  void reset(random_numbers& random) {
    for (double* each : {&x, &speed, &angle, &turning}) *each = random.between(-0.05, 0.05);
    step_count = 0;
  }
  [[nodiscard]] std::array<double, observations> observe() const { return {x, speed, angle, turning}; }
  outcome step(std::size_t action) {
    auto const [of_x, of_angle] = accelerate(action == 0 ? -push : push);
    x += seconds * speed;
    speed += seconds * of_x;
    angle += seconds * turning;
    turning += seconds * of_angle;
    if (std::abs(x) > end_of_track || std::abs(angle) > fallen) return {1, ending::terminal};
    return {1, ++step_count == static_cast<int>(best) ? ending::time : ending::none};
  }
};

}  // namespace ppo
