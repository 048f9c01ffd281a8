// SPDX-License-Identifier: Apache-2.0
// What the tests of games share.
#pragma once

#include <cstddef>

#include <acco/acco.hpp>
#include <acco/game.hpp>

#include "recurrence.hpp"

namespace games {

inline acco::game_layout game_of(std::size_t n, acco::tensor_moves of_y = {}) {
  acco::game_layout game;
  game.minimize("x", {n}).maximize("y", {n}, of_y);
  return game;
}

/// Adds a rank's gradients where the training stands, and hands them over.
template <class Training>
acco::extragradient_report evaluate(Training& training, game_oracle::bilinear::part<float> const& mine) {
  mine.add_gradients(training.parameters().data(), training.gradients().data());
  return training.evaluated();
}

}  // namespace games
