// SPDX-License-Identifier: Apache-2.0
// GaLore: matrices are trained in bases of few directions of their gradients, so that state, gradients and parameters
// that travel are those of small matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "acco/collective/backend_in_use.hpp"
#include "acco/handed.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/options.hpp"
#include "acco/projected/galore_engine.hpp"
#include "acco/projected/matrix_decay.hpp"
#include "acco/projected/projected_layout.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/schedule/decorated_rule.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/schedule/synchronous.hpp"
#include "acco/usage/checked_engine.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// As `galore::projects`.
[[nodiscard]] inline bool every_matrix(parameter_layout::tensor const&) { return true; }

/// Stands where a schedule stands: `acco::optimizer{acco::galore{.rank = 128}, acco::adamw{}, storage, world, layout}`
/// (Zhao et al., arXiv 2403.03507, Algorithm 2).
///
/// A matrix W of m rows and n columns, m < n, with gradient G has an orthonormal basis P of r = `rank` columns. The
/// rule trains r x n coordinates z by the gradient P' G, and W moves by scale P times what z moves by; from the other
/// side, by G P, where m >= n. With `adamw` that is W <- W - lr scale P N, N being Adam's update by P' G: the published
/// method. All that `inner` does with gradients and parameters it does with z: its rounds, overlapped or not, encoded
/// or not, and its state have r / min(m, n) of the elements, in both directions. Every rank moves W when a round has
/// landed; what is shown is W at z always, of estimates too.
///
/// Every `every` updates, and before the first, when a step begins, P becomes the r largest left singular vectors
/// (right ones where m >= n) of the mean gradient of all ranks, of the step that begins, of its first round where it
/// has two. They are found by `iterations` of subspace iteration: 1 is a rough basis, 2 a good one. The rule's moments,
/// and what codes have lost, stay, as published. A gradient that is not finite leaves the bases as they are; the next
/// step tries again. So does each step for a matrix that has no basis yet, because its gradient has been zero on all
/// ranks.
///
/// Projected are tensors of two dimensions or more, of as many rows as the first, whose smaller side is longer than
/// `rank` and which `projects` admits. The others are trained as they are. Weight decay that is decoupled decays W, as
/// published. Rules that let the parameter in otherwise, as far as three questions tell, are refused. `clip_norm`,
/// norms in reports and `norm_limit` are of the projected gradients. docs/galore.md has bytes, and limits.
template <class Inner = synchronous<>>
struct galore {
  Inner inner = {};           ///< any schedule without predictor and compensation
  std::size_t rank = 128;     ///< numbers of a matrix's smaller side that are left of it
  std::uint64_t every = 200;  ///< updates from one basis to the next
  double scale = 0.25;        ///< by which what z moves by is multiplied; the paper's alpha
  unsigned iterations = 2;    ///< of the search for a basis
  bool (*projects)(parameter_layout::tensor const&) = &every_matrix;  ///< of those that can be: the same on every rank

  static constexpr char const* name = "galore";
};

template <class Inner>
struct level_around<galore<Inner>> {
  static constexpr bool is_one = true;
  using inner = Inner;
  static_assert(!level_around<Inner>::is_one, "acco: galore goes around a schedule, and not around local updates or galore");
  static_assert(!has_predictor<Inner> && !has_compensation<Inner> && !has_reference<Inner>,
                "acco: galore renews what coordinates mean, and a predictor, a compensation or a reference point remembers "
                "them: give it a schedule without");

  template <class Rule, class Storage, class Backend>
  static auto* make(bool checked, galore<Inner> const& level, Rule rule, Storage storage, Backend backend,
                    parameter_layout layout, options chosen) {
    using real = typename Storage::master_type;
    static_assert(!matrix_rule<Rule>,
                  "acco: galore trains coordinates one by one: give it an elementwise rule, adamw, lion or sgd");
    static_assert(!keeps_average<Rule>, "acco: coordinates of different bases have no mean: gpa is not there for galore");
    static_assert(Storage::host_memory && std::is_same_v<typename Storage::parameter_type, real> &&
                      std::is_same_v<typename Storage::gradient_type, real>,
                  "acco: galore multiplies matrices in host memory, of one type, so far: give it host_storage<float> or "
                  "host_storage<double>");
    const projection_settings settings{level.rank, level.every, level.scale, level.iterations, level.projects};
    const error_place where{.rank = backend.rank()};
    auto schedule = level.inner;
    auto decorated = rule_under(schedule, std::move(rule));
    projected_layout projected(std::move(layout), settings, where);
    auto kept = share_kept_by<real>(decorated, projected, where);
    return new_engine<galore_engine<Storage>>(
        checked, storage, settings, std::move(projected), std::move(kept),
        received(new_schedule<Inner, Storage>(std::move(schedule))),
        received(new_rule<decltype(decorated), Storage>(std::move(decorated))), std::move(storage),
        received(new_backend<Backend, Storage, gathers_codes<Inner>>(std::move(backend))), std::move(chosen));
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
