// SPDX-License-Identifier: Apache-2.0
// Where the next gradients are computed under the delayed update: predictors.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/number/require.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// At the committed parameters: nothing is predicted.
struct no_prediction {
  static constexpr char const* name = "none";
};

/// At Opt~(theta[t+1], g), g the gradient that has led to theta[t+1]: the rule's own next step, if its gradient were
/// the same (ACCO-WP in arXiv 2406.02613; SAPipe's option 2). Costs a second pass of the rule and no memory.
struct rule_prediction {
  static constexpr char const* name = "the rule";
};

/// At theta[t+1] + ahead (theta[t+1] - theta[t]): the last change once more. For a rule without momentum and decay this
/// is `rule_prediction` where the gradient stays as it is. Costs no memory.
struct extrapolation {
  double ahead = 1;  ///< of the last change; 0 is no prediction

  static constexpr char const* name = "extrapolation";
  static constexpr std::size_t slot_count = 0;
  struct constants {
    double ahead;
  };
  [[nodiscard]] constexpr constants prepare(update_step const&) const { return {ahead}; }
  template <class Real>
  static constexpr Real show(Real before, Real after, std::array<Real, slot_count>&, constants const& c) {
    return after + Real(c.ahead) * (after - before);
  }
  /// `ahead` is finite and not negative.
  void check(error_place where = {}) const { require_not_negative("extrapolation::ahead", ahead, where); }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("predictor.ahead", ahead);
  }
};

/// At theta[t+1] + ahead v, with v <- decay v + (1 - decay) (theta[t+1] - theta[t]): PipeMare's velocity (arXiv
/// 1910.05124, section 3), for a delay of one step, where its decay is 0.135; there it leads back to older weights,
/// here ahead. Costs one slot, which is in checkpoints. An update that is left out leaves v as it is.
struct velocity {
  double ahead = 1;
  double decay = 0.135;

  static constexpr char const* name = "velocity";
  static constexpr std::size_t slot_count = 1;  ///< v
  struct constants {
    double ahead, keep, take;
  };
  [[nodiscard]] constexpr constants prepare(update_step const&) const { return {ahead, decay, 1 - decay}; }
  template <class Real>
  static constexpr Real show(Real before, Real after, std::array<Real, slot_count>& slots, constants const& c) {
    slots[0] = Real(c.keep) * slots[0] + Real(c.take) * (after - before);
    return after + Real(c.ahead) * slots[0];
  }
  /// `ahead` is finite and not negative, `decay` lies in [0, 1).
  void check(error_place where = {}) const {
    require_not_negative("velocity::ahead", ahead, where);
    require_share("velocity::decay", decay, where);
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("predictor.ahead", ahead);
    visit("predictor.decay", decay);
  }
};

/// The constants of one step: whatever `prepare` returns.
template <class Predictor>
using predictor_constants = decltype(std::declval<Predictor const&>().prepare(update_step{}));

/// A predictor of one's own says what the ranks get after a commit, element by element:
///  - `static constexpr std::size_t slot_count`: numbers of its own for each parameter, 0 at the start;
///  - `prepare(update_step) const`: trivially copyable constants of a step;
///  - `template <class Real> static constexpr Real show(Real before, Real after, std::array<Real, slot_count>& slots, constants
///    const&)`: of a parameter before and after the update. What `Real` can do, update_rule.hpp says.
/// Optional, as of a rule: `name`, `check(error_place) const`, `describe(visit) const`. Where nothing is updated, the
/// ranks get the committed parameters. docs/extending.md has an example.
template <class Predictor>
concept elementwise_predictor = requires(Predictor const& predictor, float number) {
  { Predictor::slot_count } -> std::convertible_to<std::size_t>;
  requires std::is_trivially_copyable_v<predictor_constants<Predictor>>;
} && requires(float number, std::array<float, Predictor::slot_count>& slots, predictor_constants<Predictor> const& constants) {
  { Predictor::show(number, number, slots, constants) } -> std::same_as<float>;
};
template <class Predictor>
concept predictor =
    std::same_as<Predictor, no_prediction> || std::same_as<Predictor, rule_prediction> || elementwise_predictor<Predictor>;
static_assert(elementwise_predictor<extrapolation> && elementwise_predictor<velocity>);

/// What an update is to show so that the next gradients are computed where the predictor says.
template <predictor Predictor>
[[nodiscard]] consteval update update_for() noexcept {
  if constexpr (std::same_as<Predictor, no_prediction>) {
    return update::commit;
  } else if constexpr (std::same_as<Predictor, rule_prediction>) {
    return update::commit_and_predict;
  } else {
    return update::commit_and_show;
  }
}

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
