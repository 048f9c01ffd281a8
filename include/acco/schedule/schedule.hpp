// SPDX-License-Identifier: Apache-2.0
// A schedule is a table over rounds: which gradients a round carries, what its update does, and whether the computation waits for
// it. The state of a schedule is the round's index, so all ranks agree on it.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "acco/encoding/encoding.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/schedule/compensation.hpp"
#include "acco/schedule/pace.hpp"
#include "acco/schedule/predictor.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Which gradients the update of a round uses.
enum class carried {
  fresh,           ///< those that the round reduces; they also begin a new step
  kept_and_fresh,  ///< those that earlier rounds of this step reduced (kept on their owners) and those that the round reduces
};

/// What the trainer does while the round is in flight.
enum class computation { waits, continues };

struct round_plan {
  carried gradients = carried::fresh;
  update parameters = update::commit;
  computation meanwhile = computation::continues;
  step_part part = step_part::first;  ///< whose length, given by the pace, the carried micro-batches have
  bool keeps = false;                 ///< the accumulator keeps what the round carries: the next round carries it again
  friend constexpr bool operator==(round_plan const&, round_plan const&) = default;
};

constexpr bool commits(round_plan const& plan) noexcept { return plan.parameters != update::predict; }
/// Whether `parameters()` holds committed values once this round has ended.
constexpr bool shows_committed(round_plan const& plan) noexcept { return plan.parameters == update::commit; }
/// "estimate" or "commit": the label of a round in reports and traces.
constexpr char const* label_of(round_plan const& plan) noexcept { return commits(plan) ? "commit" : "estimate"; }

/// How the rounds of a schedule travel: what its members `estimate` and `commit` say, or in full.
template <class Schedule>
[[nodiscard]] constexpr auto estimate_wire(Schedule const& schedule) noexcept {
  if constexpr (requires { as_coded(schedule.estimate); }) {
    return as_coded(schedule.estimate);
  } else {
    return coded<full, full>{};
  }
}
template <class Schedule>
[[nodiscard]] constexpr auto commit_wire(Schedule const& schedule) noexcept {
  if constexpr (requires { as_coded(schedule.commit); }) {
    return as_coded(schedule.commit);
  } else {
    return coded<full, full>{};
  }
}

template <class Schedule>
inline constexpr bool sends_encoded_gradients =
    encoding<typename decltype(estimate_wire(std::declval<Schedule const&>()))::gradient_encoding> ||
    encoding<typename decltype(commit_wire(std::declval<Schedule const&>()))::gradient_encoding>;

/// `coded{}`, of which a reader would think that it encodes.
template <class Wire>
inline constexpr bool encodes_nothing = std::is_same_v<std::remove_cvref_t<Wire>, coded<full, full>>;
template <class Schedule>
concept says_nothing = requires(Schedule const& s) { requires encodes_nothing<decltype(s.estimate)>; } ||
                       requires(Schedule const& s) { requires encodes_nothing<decltype(s.commit)>; };

/// What stands where a schedule stands, and is a level around one: a specialisation names the schedule `inner`, and has
/// `make<Flags>(level, rule, storage, backend, layout, options)`, which gives a new engine (outer/local_updates.hpp).
template <class Schedule>
struct level_around {
  static constexpr bool is_one = false;
  using inner = Schedule;
};

/// Whether a round is the first of a step.
template <class Schedule>
[[nodiscard]] constexpr bool begins_step(Schedule const& schedule, std::size_t round) noexcept {
  return round == 0 || commits(schedule.plan(round - 1));
}

template <class Schedule>
concept has_plan = requires(Schedule const& schedule, std::size_t round) {
  { schedule.plan(round) } -> std::same_as<round_plan>;
};
template <class Schedule>
concept has_pace = requires(Schedule const& schedule) { requires pace<std::remove_cvref_t<decltype(schedule.pace)>>; };

/// A schedule's rounds repeat: first come `warm_up` rounds, then every `period` rounds are alike.
struct schedule_period {
  std::size_t warm_up = 0, period = 0;
  /// The round of the first period, or of the warm-up, that stands for a round.
  [[nodiscard]] constexpr std::size_t stands_for(std::size_t round) const noexcept {
    return round < warm_up ? round : warm_up + (round - warm_up) % period;
  }
  [[nodiscard]] constexpr std::size_t rounds() const noexcept { return warm_up + period; }
};
/// What the schedule declares, or the shortest period in which its first 64 rounds repeat; 0: they do not, or of none up to 16.
template <class Schedule>
[[nodiscard]] constexpr schedule_period period_of(Schedule const& schedule) {
  schedule_period found;
  if constexpr (requires { Schedule::warm_up_rounds; }) found.warm_up = Schedule::warm_up_rounds;
  if constexpr (requires { Schedule::period; }) {
    found.period = Schedule::period;
  } else {
    for (std::size_t period = 1; period <= 16 && found.period == 0; ++period) {
      bool repeats = true;
      for (std::size_t round = found.warm_up; repeats && round < found.warm_up + 64 - period; ++round)
        repeats = schedule.plan(round) == schedule.plan(round + period);
      if (repeats) found.period = period;
    }
  }
  return found;
}

/// Why the engine cannot run a table of rounds.
enum class schedule_flaw {
  none,
  no_period,
  first_round,
  step_begins_with_kept,
  mixed_waits,
  keeps_while_waiting,
  keeps_and_commits,
  kept_twice,
  never_commits,
  shows_nothing,
  never_shows,
  two_decorations,
  compensates_estimates,
  commits_own,
  estimate_not_kept
};
[[nodiscard]] constexpr char const* words_of(schedule_flaw flaw) noexcept {
  switch (flaw) {
    case schedule_flaw::none: break;
    case schedule_flaw::no_period:
      return "its rounds do not repeat: declare `static constexpr std::size_t period` (and `warm_up_rounds`)";
    case schedule_flaw::first_round: return "round 0 carries kept gradients, and nothing was kept before it";
    case schedule_flaw::step_begins_with_kept: return "a round after a commit carries kept gradients, which the commit has used";
    case schedule_flaw::mixed_waits: return "the computation waits for some rounds and not for others";
    case schedule_flaw::keeps_while_waiting: return "the computation waits for a round that keeps its gradients";
    case schedule_flaw::keeps_and_commits:
      return "a round that commits keeps its gradients, so the next step would use them again";
    case schedule_flaw::kept_twice: return "a round adds gradients to reduced ones that the accumulator has kept too";
    case schedule_flaw::never_commits: return "no round of its period commits";
    case schedule_flaw::shows_nothing: return "a round shows what a predictor makes of its commit, and the schedule has none";
    case schedule_flaw::never_shows: return "it has a predictor, and no round shows what that makes of a commit";
    case schedule_flaw::two_decorations: return "it has a predictor and a compensation";
    case schedule_flaw::compensates_estimates:
      return "it has a compensation and rounds that do not commit: their gradients are not late by one update";
    case schedule_flaw::estimate_not_kept:
      return "an estimate takes its own rank's gradients and does not keep them, so no commit has them";
    case schedule_flaw::commits_own: return "a round commits gradients of which every owner takes its own only";
  }
  return "";
}
/// Whether a schedule has a data member `predictor` that says element by element what a commit shows (predictor.hpp).
template <class Schedule>
inline constexpr bool has_predictor =
    requires(Schedule const& schedule) { requires elementwise_predictor<std::remove_cvref_t<decltype(schedule.predictor)>>; };
/// The same of `compensation` (compensation.hpp).
template <class Schedule>
inline constexpr bool has_compensation = requires(Schedule const& schedule) {
  requires elementwise_compensation<std::remove_cvref_t<decltype(schedule.compensation)>>;
};
/// What a table needs to know of its schedule beside its rounds.
struct schedule_means {
  bool predicts = false, compensates = false;            ///< has_predictor, has_compensation
  bool commits_own = false, estimates_from_own = false;  ///< its commits, its estimates are of own gradients
};
template <class Schedule>
[[nodiscard]] constexpr schedule_means means_of() noexcept {
  using estimate = typename decltype(estimate_wire(std::declval<Schedule const&>()))::gradient_encoding;
  using commit = typename decltype(commit_wire(std::declval<Schedule const&>()))::gradient_encoding;
  return {has_predictor<Schedule>, has_compensation<Schedule>, own_gradients<commit>, own_gradients<estimate>};
}
/// Whether its estimates need the mean of the other ranks' last gradients (`own_corrected`).
template <class Schedule>
inline constexpr bool estimates_with_others =
    std::is_same_v<typename decltype(estimate_wire(std::declval<Schedule const&>()))::gradient_encoding, own_corrected>;

/// plan(round) is its table.
template <class Plan>
[[nodiscard]] constexpr schedule_flaw flaw_of(Plan const& plan, schedule_period const& rounds, schedule_means const& means = {}) {
  if (rounds.period == 0) return schedule_flaw::no_period;
  if (means.commits_own) return schedule_flaw::commits_own;
  if (means.predicts && means.compensates) return schedule_flaw::two_decorations;
  bool ever_shows = false;
  if (plan(0).gradients != carried::fresh) return schedule_flaw::first_round;
  bool ever_commits = false;
  for (std::size_t round = 0; round < rounds.rounds(); ++round) {
    const round_plan now = plan(round), next = plan(rounds.stands_for(round + 1));
    if (now.meanwhile != next.meanwhile) return schedule_flaw::mixed_waits;
    if (now.keeps && now.meanwhile == computation::waits) return schedule_flaw::keeps_while_waiting;
    if (now.keeps && commits(now)) return schedule_flaw::keeps_and_commits;
    if (commits(now) && next.gradients != carried::fresh) return schedule_flaw::step_begins_with_kept;
    if (now.keeps && next.gradients != carried::fresh) return schedule_flaw::kept_twice;
    if (now.parameters == update::commit_and_show && !means.predicts) return schedule_flaw::shows_nothing;
    if (!commits(now) && means.compensates) return schedule_flaw::compensates_estimates;
    if (!commits(now) && means.estimates_from_own && !now.keeps) return schedule_flaw::estimate_not_kept;
    ever_shows = ever_shows || now.parameters == update::commit_and_show;
    ever_commits = ever_commits || (round >= rounds.warm_up && commits(now));
  }
  if (means.predicts && !ever_shows) return schedule_flaw::never_shows;
  return ever_commits ? schedule_flaw::none : schedule_flaw::never_commits;
}

/// A schedule has `constexpr round_plan plan(std::size_t round) const`, the table, and a data member `pace`. Its rounds repeat
/// every `static constexpr std::size_t period` rounds (without it, the shortest that is seen), after
/// `static constexpr std::size_t warm_up_rounds` (without it, 0). Round 0 must be `fresh`, as every round after a commit; either
/// all rounds wait or none does; some round of a period commits. A step begins after a commit. Optional: `static constexpr char
/// const* name`; data members `estimate` and `commit`, which say how the rounds that do not, and that do commit travel
/// (encoding/encoding.hpp); `predictor`, which says what rounds of `update::commit_and_show` show, or `compensation`, which
/// changes late gradients (predictor.hpp, compensation.hpp).
template <class Schedule>
concept schedule = has_plan<Schedule> && has_pace<Schedule>;

/// The table of a schedule whose plan does not depend on how it was made.
template <class Schedule>
concept has_constant_plan = requires { typename std::bool_constant<(Schedule{}.plan(0), true)>; };

/// The same, one sentence each.
template <class Schedule>
consteval bool check_schedule() {
  static_assert(has_plan<Schedule>, "acco: the schedule lacks `round_plan plan(std::size_t round) const`");
  using estimate = decltype(estimate_wire(std::declval<Schedule const&>()));
  using commit = decltype(commit_wire(std::declval<Schedule const&>()));
  static_assert(
      !says_nothing<Schedule>,
      "acco: this acco::coded names no code, so all would travel in full: let `commit` be acco::block_gauss4{}, four bits "
      "both ways, or acco::coded{.gradients = ..., .parameters = ...}, or leave it out");
  static_assert(!feeds_back<typename estimate::gradient_encoding>,
                "acco: with_error_feedback is for gradients that are committed, and nothing is committed from an estimate: give "
                "`estimate` the encoding alone");
  static_assert(!feeds_back<typename estimate::parameter_encoding> && !feeds_back<typename commit::parameter_encoding>,
                "acco: with_error_feedback is for gradients: parameters travel as differences to what all ranks hold, so what is "
                "lost of one is in the next: give coded::parameters the encoding alone");
  static_assert(!feeds_ahead<typename commit::gradient_encoding> && !feeds_ahead<typename estimate::parameter_encoding> &&
                    !feeds_ahead<typename commit::parameter_encoding>,
                "acco: with_feedback_ahead is for the gradients of estimates: give `commit` acco::with_error_feedback");
  static_assert(!feeds_ahead<typename estimate::gradient_encoding> || feeds_back<typename commit::gradient_encoding>,
                "acco: with_feedback_ahead adds what the commit keeps, and this one keeps nothing: let coded::gradients of "
                "`commit` be acco::with_error_feedback<Encoding>");
  static_assert(!feeds_ahead<typename estimate::gradient_encoding> || feeds_back_numbers<typename commit::gradient_encoding>,
                "acco: with_feedback_ahead reads what the commit keeps as numbers of the gradients' type: give "
                "with_error_feedback no Store");
  static_assert(!plans<typename estimate::gradient_encoding> && !plans<typename estimate::parameter_encoding> &&
                    !plans<typename commit::parameter_encoding>,
                "acco: planned_encoding is for gradients that are committed: let `commit` be acco::coded{.gradients = "
                "acco::auto_encoding{}, .parameters = acco::block_int4<>{}}, say; estimates take one encoding, or acco::one_of");
  static_assert(!unscaled<typename estimate::parameter_encoding> && !unscaled<typename commit::parameter_encoding> &&
                    !(feeds_back<typename commit::gradient_encoding> && unscaled<typename commit::gradient_encoding>),
                "acco: this encoding tells nothing of a number's size, so it is for gradients only, and not with feedback: let "
                "coded::gradients be acco::without_feedback<Encoding>, and coded::parameters another encoding or acco::full");
  static_assert(
      !low_rank_wire<typename estimate::gradient_encoding>,
      "acco: power_sgd is for gradients that are committed, with what it lacks sent later: nothing lasts of an estimate. "
      "Give `estimate` an encoding, or acco::full");
  static_assert(!biased<typename commit::gradient_encoding> || feeds_back<typename commit::gradient_encoding>,
                "acco: what this encoding loses of committed gradients adds up: let coded::gradients be "
                "acco::with_error_feedback<Encoding>, or say acco::without_feedback<Encoding>");
  static_assert(
      has_pace<Schedule>,
      "acco: the schedule lacks a data member `pace` with `minimum(step_part)` and `maximum(step_part)` returning unsigned");
  if constexpr (has_plan<Schedule> && has_constant_plan<Schedule>) {
    constexpr schedule_flaw flaw =
        flaw_of([](std::size_t round) { return Schedule{}.plan(round); }, period_of(Schedule{}), means_of<Schedule>());
    static_assert(
        flaw != schedule_flaw::no_period,
        "acco: the schedule's rounds do not repeat: declare `static constexpr std::size_t period` (and `warm_up_rounds`)");
    static_assert(flaw != schedule_flaw::first_round,
                  "acco: the schedule's round 0 carries kept gradients, and nothing was kept before it");
    static_assert(flaw != schedule_flaw::step_begins_with_kept,
                  "acco: a round of the schedule after a commit carries kept gradients, which the commit has used");
    static_assert(flaw != schedule_flaw::mixed_waits,
                  "acco: under the schedule the computation waits for some rounds and not for others");
    static_assert(flaw != schedule_flaw::keeps_while_waiting,
                  "acco: under the schedule the computation waits for a round that keeps its gradients");
    static_assert(flaw != schedule_flaw::keeps_and_commits,
                  "acco: a round of the schedule that commits keeps its gradients, so the next step would use them again");
    static_assert(flaw != schedule_flaw::kept_twice,
                  "acco: a round of the schedule adds gradients to reduced ones that the accumulator has kept too");
    static_assert(flaw != schedule_flaw::never_commits, "acco: no round of the schedule's period commits");
    static_assert(flaw != schedule_flaw::shows_nothing,
                  "acco: a round of the schedule is `update::commit_and_show`, and the schedule lacks a data member `predictor` "
                  "(schedule/predictor.hpp)");
    static_assert(flaw != schedule_flaw::never_shows,
                  "acco: the schedule has a data member `predictor`, and no round of it is `update::commit_and_show`");
    static_assert(flaw != schedule_flaw::two_decorations,
                  "acco: a compensation corrects gradients of committed parameters, and a predictor lets them be computed "
                  "elsewhere: give the schedule one of the two");
    static_assert(
        flaw != schedule_flaw::compensates_estimates,
        "acco: the schedule has a compensation and rounds that do not commit: their gradients are not late by one update");
    static_assert(flaw != schedule_flaw::estimate_not_kept,
                  "acco: an estimate of the schedule takes its own rank's gradients (own_slice, own_corrected) and does not keep "
                  "them, so no commit "
                  "has them: let its plan say `.keeps = true`, and the commit's `carried::fresh`");
    static_assert(flaw != schedule_flaw::commits_own,
                  "acco: own_slice and own_corrected are for estimates: every owner takes its own gradients only, and a commit "
                  "needs those of "
                  "all ranks");
  }
  return true;
}

}  // namespace ACCO_NAMESPACE
