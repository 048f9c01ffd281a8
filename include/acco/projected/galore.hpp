// SPDX-License-Identifier: Apache-2.0
// GaLore: matrices are trained in a basis of few directions of their gradients, so that state, gradients and parameters that
// travel are those of small matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/projected/projected_engine.hpp"
#include "acco/projected/projection_settings.hpp"
#include "acco/schedule/decorated_rule.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/schedule/synchronous.hpp"

namespace ACCO_NAMESPACE {

/// As `galore::projects`.
[[nodiscard]] inline bool every_matrix(parameter_layout::tensor const&) { return true; }

/// Stands where a schedule stands: `acco::optimizer{acco::galore{.rank = 128}, acco::adamw{}, storage, world, layout}` (Zhao et
/// al., arXiv 2403.03507, Algorithm 2).
///
/// A matrix W of m rows and n columns, m < n, with gradient G is trained as the r x n coordinates z in an orthonormal basis P of
/// r = `rank` columns:
///
///   W = B + scale P z,    z <- rule(z, P' G)
///
/// and from the other side, W = B + scale z P', where m >= n. With `adamw` that is W <- W - lr scale P N, N being Adam's update
/// by P' G: the published method. All `inner` does with gradients and parameters it does with z: its rounds, overlapped or not,
/// encoded or not, and its state have r / min(m, n) of the elements, in both directions. Every rank expands z into the trainer's
/// parameters when a round has landed; what is shown is B + scale P z always, of estimates too.
///
/// Every `every` updates, and before the first, when a step begins: B <- W, z <- 0, and P <- the r largest left singular vectors
/// (right ones where m >= n) of the mean gradient of all ranks, of the step that begins, of its first round where it has two.
/// They are found by `iterations` of subspace iteration from a random beginning, in which the ranks sum thin matrices, 2 r (m +
/// n) numbers an iteration, and none has the whole mean: 1 is a rough basis, 2 a good one. The rule's moments stay, in the old
/// basis, as published; what codes have lost is forgotten. A gradient that is not finite, or zero on all ranks, leaves the bases
/// as they are; the next step tries again.
///
/// Projected are tensors of two dimensions or more, of as many rows as the first, whose smaller side is longer than `rank` and
/// which `projects` admits. The others are trained as they are. Weight decay that is decoupled decays W, as published: B shrinks
/// beside z. Rules that let the parameter in otherwise, as far as three questions tell, are refused, and so are rules for
/// matrices. `clip_norm`, norms in reports and `norm_limit` are of the projected gradients.
///
/// Parameters and gradients stay whole on every rank, and so does B: what galore saves is the rule's state, and traffic
/// (docs/galore.md has the bytes). They never move, as if with `stable_addresses`. No checkpoints, averages or
/// snapshots; habits are not checked.
template <class Inner = synchronous<>>
struct galore {
  Inner inner = {};                        ///< any schedule without predictor and compensation
  std::size_t rank = 128;                  ///< numbers of a matrix's side that are left of its smaller one
  std::uint64_t every = 200;               ///< updates from one basis to the next
  double scale = 0.25;                     ///< by which what z has come to is multiplied; the paper's alpha
  unsigned iterations = 2;                 ///< of the search for a basis, each of two sums over ranks
  tensor_choice projects = &every_matrix;  ///< which of the tensors that can be are projected: the same on every rank

  static constexpr char const* name = "galore";
};

template <class Inner>
struct level_around<galore<Inner>> {
  static constexpr bool is_one = true;
  using inner = Inner;
  static_assert(!level_around<Inner>::is_one, "acco: galore goes around a schedule, and not around local updates or galore");
  static_assert(!has_predictor<Inner> && !has_compensation<Inner>,
                "acco: galore renews what coordinates mean, and a predictor or a compensation remembers them: give it a schedule "
                "without");

  /// `Flags`: `made_here` of the file that makes it.
  template <class Flags, class Rule, class Storage, class Backend>
  static auto* make(galore<Inner> const& method, Rule rule, Storage storage, Backend backend, parameter_layout layout,
                    options chosen) {
    const projection_settings settings{.rank = method.rank,
                                       .every = method.every,
                                       .scale = method.scale,
                                       .iterations = method.iterations,
                                       .projects = method.projects};
    auto decorated = rule_under(method.inner, std::move(rule));
    return new projected_engine<decltype(decorated), Storage, Backend>(settings, method.inner, std::move(decorated),
                                                                       std::move(storage), std::move(backend), std::move(layout),
                                                                       std::move(chosen));
  }
};

}  // namespace ACCO_NAMESPACE
