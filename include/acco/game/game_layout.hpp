// SPDX-License-Identifier: Apache-2.0
// Who moves a tensor of a game, and where it may be.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/number/demand.hpp"

namespace ACCO_NAMESPACE {

/// What a player may say of a tensor.
struct tensor_moves {
  double step_scale = 1;  ///< factor of the method's step
  double bound = 0;       ///< every element stays in [-bound, bound], rounded to fp32, wherever it is evaluated; 0: anywhere
};

/// The tensors of a game in the order in which they lie, without gaps, in the flat parameter and gradient buffers. Each is added
/// by what its player does, so no sign can be forgotten:
///
///   acco::game_layout game;
///   game.minimize("weights", {64, 10}).maximize("perturbation", {256, 64}, {.bound = 0.1});
///
/// The trainer hands over gradients as they are, of both: those of a `maximize`d tensor are negated here. So the operator is
///   F(x, y) = (df/dx, -df/dy)    for min over x, max over y of f(x, y).
/// Where every player has a loss of its own (a GAN), all tensors are `minimize`d, each with the gradient of its player's loss; of
/// a variational inequality that is no game, too, with the operator itself.
class game_layout {
 public:
  /// A tensor, for the player who makes the objective small; what the trainer adds is the operator's part as it is. Throws
  /// `usage_error` as `parameter_layout::add` does, and for numbers in `moves` that mean nothing.
  game_layout& minimize(std::string_view name, std::initializer_list<std::size_t> shape, tensor_moves moves = {}) {
    return add(name, {shape.begin(), shape.size()}, moves, false);
  }
  /// The same for the player who makes the objective large: the operator is minus what the trainer adds.
  game_layout& maximize(std::string_view name, std::initializer_list<std::size_t> shape, tensor_moves moves = {}) {
    return add(name, {shape.begin(), shape.size()}, moves, true);
  }
  game_layout& minimize(std::string_view name, std::span<std::size_t const> shape, tensor_moves moves = {}) {
    return add(name, shape, moves, false);
  }
  game_layout& maximize(std::string_view name, std::span<std::size_t const> shape, tensor_moves moves = {}) {
    return add(name, shape, moves, true);
  }

  [[nodiscard]] parameter_layout const& tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::size_t size() const noexcept { return tensors_.size(); }
  [[nodiscard]] bool is_maximized(std::size_t tensor) const noexcept { return of_[tensor].maximized; }
  [[nodiscard]] tensor_moves const& moves(std::size_t tensor) const noexcept { return of_[tensor].moves; }
  /// The first tensor with a bound; `tensors().tensor_count()` where there is none.
  [[nodiscard]] std::size_t first_bounded() const noexcept {
    std::size_t k = 0;
    while (k < of_.size() && of_[k].moves.bound == 0) ++k;
    return k;
  }
  /// Calls visit(what, name or number) for everything on which ranks must agree.
  template <class Visitor>
  void describe(Visitor&& visit) const {
    tensors_.describe(visit);
    for (player_of const& each : of_) {
      visit("maximized", each.maximized);
      visit("step_scale", each.moves.step_scale);
      visit("bound", each.moves.bound);
    }
  }

 private:
  struct player_of {
    tensor_moves moves;
    bool maximized;
  };
  game_layout& add(std::string_view name, std::span<std::size_t const> shape, tensor_moves moves, bool maximized) {
    demand_positive("tensor_moves::step_scale", moves.step_scale);
    demand_not_negative("tensor_moves::bound", moves.bound);
    if (moves.bound != 0 && moves.bound < static_cast<double>(std::numeric_limits<float>::min())) {
      throw usage_error({}, text("tensor_moves::bound is ", moves.bound, ", less than every normal number of fp32"),
                        text("Give 0 where elements may be anywhere, and a larger bound otherwise"));
    }
    tensors_.add(name, shape);
    of_.push_back({moves, maximized});
    return *this;
  }

  parameter_layout tensors_;
  std::vector<player_of> of_;
};

}  // namespace ACCO_NAMESPACE
