// SPDX-License-Identifier: Apache-2.0
// When workers exchange, and what becomes of the work that they do meanwhile: the settings of a level of local updates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "acco/clock.hpp"
#include "acco/code/between_groups.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/error.hpp"
#include "acco/number/require.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_NAMESPACE {

/// What becomes of the steps that a worker makes while its exchange is under way (outer/local_updates.hpp).
enum class work_meanwhile { keep, restart, eager, pull };

/// What a worker's change counts in the mean.
enum class worker_weights {
  equal,   ///< one like the other
  samples  ///< by the samples that it was made of (FedAvg, arXiv 1602.05629, Algorithm 1)
};

/// How an exchange travels: encoded changes with the feedback that is said, or with error feedback, so that what is
/// lost of one is in the next; the anchor, encoded or not, as `coded` says.
template <wire Exchange>
[[nodiscard]] constexpr auto exchange_wire(Exchange const& exchange) noexcept {
  const auto of = as_coded(exchange);
  using of_changes = typename decltype(as_coded(exchange))::gradient_encoding;
  using of_anchor = typename decltype(as_coded(exchange))::parameter_encoding;
  static_assert(
      !own_gradients<of_changes>,
      "acco: own_slice and own_corrected are for estimates: an exchange of local updates needs the changes of all workers");
  static_assert(!low_rank<of_changes> && !planned_wire<of_changes>,
                "acco: an exchange of local updates takes encodings of blocks, no codes of matrices and no planned ones");
  static_assert(!sums_groups<of_changes>,
                "acco: workers are the groups of local updates: their exchange needs no between_groups");
  static_assert(!std::is_same_v<of_anchor, updated_by_all>,
                "acco: anchors are cut over ranks: updated_by_all is for a schedule alone");
  if constexpr (feeds_back<of_changes>) {
    using policy = std::remove_cvref_t<decltype(of.gradients.policy)>;
    static_assert(!sums_states<of_changes> && !keeps_sent<policy> && std::is_same_v<typename of_changes::store, full>,
                  "acco: what a worker's code has lost goes to the others when it leaves: give `exchange` a feedback that keeps "
                  "that, in the changes' type, as error_feedback");
  }
  if constexpr (encoding<of_changes> && !feeds_back<of_changes>) {
    return coded<with_error_feedback<of_changes>, of_anchor>{{of.gradients}, of.parameters, of.exact_every};
  } else {
    return of;
  }
}

/// As a `delay`: an exchange is under way during a whole round of local steps.
inline constexpr unsigned whole_round = std::numeric_limits<unsigned>::max();

/// After how many exchanges of the whole anchor the worker's rule's first, second, ... slot becomes its mean over the
/// workers (DES-LOC, arXiv 2505.22549); 0: every worker keeps its own.
struct slot_periods {
  std::array<unsigned, 4> of = {};

  constexpr slot_periods(unsigned first = 0, unsigned second = 0, unsigned third = 0, unsigned fourth = 0) noexcept
      : of{first, second, third, fourth} {}
  /// Of the k-th slot, whether its mean is due when so many exchanges have landed.
  [[nodiscard]] constexpr bool due(std::size_t k, std::uint64_t exchanges) const noexcept {
    return k < of.size() && of[k] != 0 && exchanges != 0 && exchanges % of[k] == 0;
  }
  [[nodiscard]] constexpr bool any() const noexcept { return of != std::array<unsigned, 4>(); }
};

struct exchange_settings {
  int workers = 1, ranks_a_worker = 1;
  unsigned steps = 1, delay = 0, fragments = 1;
  work_meanwhile work = work_meanwhile::keep;
  double keep_local = 0;
  worker_weights weights = worker_weights::equal;
  bool by_gap = false;
  bool averages = false;  ///< the rule is `averaging`
  bool encoded = false;   ///< changes or the anchor do not travel in full
  double rate = 1;        ///< the rule's `learning_rate`, if it has one
  slot_periods slots_every{};
  bool lands_at_boundary = false;                 ///< an exchange starts `delay` steps before one without delay would
  bool by_speed = false;                          ///< a worker's own steps are by its speed (steps_by_speed.hpp)
  double (*seconds)() noexcept = steady_seconds;  ///< on any clock of this worker's, by which its speed is measured

  [[nodiscard]] constexpr bool blocks() const noexcept { return delay == 0; }
  [[nodiscard]] constexpr bool takes_whole_round() const noexcept { return delay == steps; }
  /// Steps from one fragment's exchange to the next one's.
  [[nodiscard]] constexpr unsigned stretch() const noexcept { return steps / fragments; }
  /// Steps of a round that count as made when it begins.
  [[nodiscard]] constexpr unsigned first_phase() const noexcept { return lands_at_boundary ? delay : 0; }
  /// Whether workers send parameters; otherwise their change against the anchor that they hold, as they always do where
  /// anything is encoded: the smaller a number, the less its code loses, and the mean of what began at an encoded
  /// anchor would end, in the owner's, what the code has lost of it.
  [[nodiscard]] constexpr bool sends_parameters() const noexcept {
    return averages && !encoded &&
           (blocks() || work == work_meanwhile::keep || work == work_meanwhile::pull ||
            (work == work_meanwhile::restart && delay < steps));
  }
  /// Whether a copy of the slice is kept from one exchange to the next.
  [[nodiscard]] constexpr bool keeps_copy() const noexcept {
    return !blocks() && (work == work_meanwhile::keep || work == work_meanwhile::eager || by_gap);
  }

  /// Throws `usage_error` on what means nothing, or would be something else than it says. `slots`: of the worker's
  /// rule.
  void check(error_place where, std::size_t slots) const {
    const auto fail_use = [&](text const& what, char const* advice) { throw usage_error(where, what, text(advice)); };
    if (steps == 0) fail_use(text("local_updates::steps is 0"), "Give the inner updates from one exchange to the next");
    if (fragments == 0 || steps % fragments != 0) {
      fail_use(text("local_updates::fragments is ", fragments, ", and a round has ", steps, " steps"),
               "Give a number that divides the steps, so that every steps / fragments steps one fragment is exchanged");
    }
    if (delay > steps) {
      fail_use(text("the delay of local updates is ", delay, ", more than the ", steps, " steps from one exchange to the next"),
               "One exchange is under way at a time: whole_round is the most");
    }
    if (lands_at_boundary && delay >= stretch()) {
      fail_use(text("lands_at_boundary starts an exchange ", delay, " steps early, and the first one comes after ", stretch()),
               "Give a delay below steps / fragments, or let exchanges start where others land");
    }
    if (!(keep_local >= 0 && keep_local <= 1))
      fail_use(text("keep_local of local updates is ", keep_local), "It is a share: 0 for the anchor, 1 for the worker's own");
    if (slots_every.any() && !blocks())
      fail_use(text("local_updates::slots_every exchanges slots where workers wait, and the method has a delay"),
               "Take a method that waits: local_sgd, fedavg, slowmo, diloco, or waiting with another rule");
    for (std::size_t k = slots; k < slots_every.of.size(); ++k) {
      if (slots_every.of[k] != 0)
        fail_use(text("local_updates::slots_every has a period for slot ", k, ", and the rule has ", slots, " slots"),
                 "Give periods for the slots that the rule has: two of adamw, one of lion");
    }
    if (by_speed && (fragments != 1 || (!blocks() && !takes_whole_round())))
      fail_use(
          text("local_updates::steps_by_speed gives each worker steps of its own from one exchange to the next, and there are ",
               fragments, " fragments and a delay of ", delay, " steps"),
          "Use it with one fragment, and a method that waits, or whose delay is a whole round");
    if (by_gap && (fragments != 1 || !takes_whole_round() || ranks_a_worker != 1 || averages))
      fail_use(text("restarting::by_gap measures how far the anchor has come during a whole round, over all parameters"),
               "Use it with delay = whole_round, one rank a group, one fragment, and a rule that is not averaging");
  }
  template <class Visitor>
  void describe(Visitor&& visit) const {
    visit("ranks_a_group", ranks_a_worker);
    visit("steps", steps);
    visit("delay", delay);
    visit("fragments", fragments);
    visit("work", static_cast<int>(work));
    visit("keep_local", keep_local);
    visit("weights", static_cast<int>(weights));
    visit("by_gap", by_gap);
    for (unsigned const period : slots_every.of) {  // older checkpoints lack it
      if (slots_every.any()) visit("slots_every", period);
    }
    if (by_speed) visit("steps_by_speed", by_speed);
    if (lands_at_boundary) visit("lands_at_boundary", lands_at_boundary);
  }
};

}  // namespace ACCO_NAMESPACE

#include "acco/restore_macros.hpp"
