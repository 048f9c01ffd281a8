// SPDX-License-Identifier: Apache-2.0
// Muon: momentum, orthogonalised matrix by matrix (K. Jordan, 2024; at scale: Liu et al., arXiv 2502.16982).
#pragma once

#include <array>
#include <cstddef>

#include "acco/number/newton_schulz.hpp"
#include "acco/number/require.hpp"
#include "acco/rule/refuse_of_group.hpp"
#include "acco/rule/update_rule.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// By what an orthogonalised matrix is multiplied.
enum class muon_scale {
  as_adamw,  ///< 0.2 sqrt(max(rows, columns)): elements move about as far
             ///< as AdamW's, whose learning rate fits (arXiv 2502.16982)
  spectral   ///< sqrt(max(1, rows / columns)): the change of a layer's outputs is about the learning rate (K. Jordan)
};

/// m <- mu m + (1 - mu) g; u = (1 - mu) g + mu m, or m without Nesterov; p <- p (1 - lr wd) - lr scale
/// orthogonalised(u), u being a tensor of two dimensions, or of more, as a matrix of as many rows as the first. For
/// hidden layers: embeddings, heads and vectors do better with AdamW,
///
///   acco::parameter_layout layout;
///   const auto others = layout.add_group({.rule = 1});
///   layout.add("embedding", {vocabulary, width}, others).add("hidden", {width, width});
///   acco::optimizer training{schedule, acco::rules{acco::muon{}, acco::adamw{}}, storage, world, layout};
///
/// Each matrix lies whole on one rank, which orthogonalises it: nothing travels that would not without (docs/muon.md).
/// Matrices fused of several, like those of queries, keys and values, are orthogonalised together: register them apart.
struct muon {
  double learning_rate = 1e-3;
  double momentum = 0.95;
  double weight_decay = 0.1;
  bool nesterov = true;
  muon_scale scale = muon_scale::as_adamw;
  unsigned iterations = 5;  ///< of Newton and Schulz

  static constexpr char const* name = "muon";
  static constexpr std::size_t slot_count = 1;  ///< momentum
  static constexpr bool bounded_step = true;

  struct constants {
    double momentum, keep, step_size;
    bool nesterov;
    muon_scale scale;
    unsigned iterations;
  };

  [[nodiscard, gnu::always_inline]] constants prepare(update_step const& step, update_group const& group) const {
    const double rate = learning_rate * step.learning_rate_scale * group.learning_rate_scale;
    return {group.momentum.value_or(momentum),
            1 - rate * group.weight_decay.value_or(weight_decay),
            rate,
            nesterov,
            scale,
            iterations};
  }

  [[nodiscard]] static constexpr bool whole(update_group const&) noexcept { return true; }
  [[nodiscard]] static constexpr std::size_t scratch_of(std::size_t rows, std::size_t columns) noexcept {
    return matrices::scratch_of_orthogonalize(rows, columns);
  }
  template <class Real>
  static constexpr Real before_matrix(Real gradient, std::array<Real, slot_count>& slots, constants const& c) {
    const Real fresh = Real(1 - c.momentum) * gradient;
    slots[0] = Real(c.momentum) * slots[0] + fresh;
    return c.nesterov ? fresh + Real(c.momentum) * slots[0] : slots[0];
  }
  template <class Real>
  static void on_matrix(matrix_view<Real> const& matrix, constants const& c) {
    const auto rows = static_cast<double>(matrix.rows), columns = static_cast<double>(matrix.columns);
    const double larger = rows < columns ? columns : rows, stands = rows < columns ? 1 : rows / columns;
    matrices::orthogonalize(matrix, {.iterations = c.iterations},
                            c.scale == muon_scale::as_adamw ? 0.2 * __builtin_sqrt(larger) : __builtin_sqrt(stands));
  }
  template <class Real>
  static constexpr void after_matrix(Real& parameter, Real element, std::array<Real, slot_count>&, constants const& c) {
    parameter = parameter * Real(c.keep) - Real(c.step_size) * element;
  }

  /// Throws `usage_error` unless learning_rate and weight_decay are finite and not negative, momentum lies in [0, 1),
  /// and there are 1 to 100 iterations. The optimizer's constructor calls it.
  void check(error_place where = {}) const {
    require_not_negative("muon::learning_rate", learning_rate, where);
    require_share("muon::momentum", momentum, where);
    require_not_negative("muon::weight_decay", weight_decay, where);
    if (iterations == 0 || iterations > 100) {
      throw usage_error(where, text("muon::iterations is ", iterations), text("Choose 1 to 100; 5 is usual"));
    }
  }
  void check_group(update_group const& group, error_place where = {}) const {
    require_share("update_group::momentum", group.momentum.value_or(momentum), where);
    if (group.beta1 || group.beta2 || group.epsilon) refuse_of_group("beta or epsilon", name, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("learning_rate", learning_rate);
    visit("momentum", momentum);
    visit("weight_decay", weight_decay);
    visit("nesterov", nesterov);
    visit("scale", static_cast<unsigned>(scale));
    visit("iterations", iterations);
  }
};
static_assert(update_rule<muon> && matrix_rule<muon>);

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
