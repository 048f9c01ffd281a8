// SPDX-License-Identifier: Apache-2.0
// A schedule is a table over rounds: which gradients a round carries, what its update does, and whether the computation
// waits for it. The state of a schedule is the round's index, so all ranks agree on it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "acco/code/between_groups.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/schedule/compensation.hpp"
#include "acco/schedule/pace.hpp"
#include "acco/schedule/predictor.hpp"
#include "acco/version.hpp"

namespace ACCO_NAMESPACE {

/// Which gradients the update of a round uses.
enum class carried {
  fresh,           ///< those that the round reduces; they also begin a new step
  kept_and_fresh,  ///< those that earlier rounds of this step reduced (kept
                   ///< on their owners) and those that the round reduces
};

/// What the trainer does while the round is in flight.
enum class computation { waits, continues };

struct round_plan {
  carried gradients = carried::fresh;
  update parameters = update::commit;
  computation meanwhile = computation::continues;
  step_part part = step_part::first;  ///< whose length, given by the pace, the carried micro-batches have
  bool keeps = false;                 ///< the accumulator keeps what the round carries: the next round carries it again
  std::uint8_t wire = 0;              ///< of the schedule's `wires()`, where it has
                                      ///< them, the one by which the round travels
  bool exact = false;                 ///< its parameters travel in full, whatever its wire says
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
    return coded<>{};
  }
}
template <class Schedule>
[[nodiscard]] constexpr auto commit_wire(Schedule const& schedule) noexcept {
  if constexpr (requires { as_coded(schedule.commit); }) {
    return as_coded(schedule.commit);
  } else {
    return coded<>{};
  }
}

/// A schedule whose plan says by number which of its `wires()`, a tuple, a round takes.
template <class Schedule>
concept chooses_wires = requires(Schedule const& schedule) { std::tuple_size<decltype(schedule.wires())>::value; };
/// The wires of a schedule by number: its own, or 0 of its estimates and 1 of its commits.
template <class Schedule>
[[nodiscard]] constexpr auto wires_of(Schedule const& schedule) {
  if constexpr (chooses_wires<Schedule>) {
    return std::apply([](auto const&... each) { return std::make_tuple(as_coded(each)...); }, schedule.wires());
  } else {
    return std::make_tuple(estimate_wire(schedule), commit_wire(schedule));
  }
}
template <class Schedule>
[[nodiscard]] constexpr std::size_t wire_of(round_plan const& plan) noexcept {
  return chooses_wires<Schedule> ? plan.wire : commits(plan) ? 1 : 0;
}
/// by(wire types ...) of a schedule's wires.
template <class Schedule, class By>
[[nodiscard]] constexpr auto by_wires(By&& by) {
  return [&]<class... Wires>(std::tuple<Wires...> const*) {
    return by.template operator()<Wires...>();
  }(static_cast<decltype(wires_of(std::declval<Schedule const&>())) const*>(nullptr));
}
template <class Schedule>
inline constexpr bool sends_encoded_gradients =
    by_wires<Schedule>([]<class... Wires>() { return (lossy<typename Wires::gradient_encoding> || ...); });
/// Whether groups of ranks sum gradients before they travel encoded.
template <class Schedule>
inline constexpr bool sums_gradients_of_groups =
    by_wires<Schedule>([]<class... Wires>() { return (sums_groups<typename Wires::gradient_encoding> || ...); });
/// Whether bytes are gathered: of parameters, of gradients where all ranks update, or of matrices.
template <class Schedule>
inline constexpr bool gathers_codes = by_wires<Schedule>([]<class... Wires>() {
  return ((!std::is_same_v<typename Wires::parameter_encoding, full> || low_rank<typename Wires::gradient_encoding>) || ...);
});

template <class Schedule>
inline constexpr bool updates_by_all = by_wires<Schedule>(
    []<class... Wires>() { return (std::is_same_v<typename Wires::parameter_encoding, updated_by_all> || ...); });

/// What stands where a schedule stands, and is a level around one: a specialisation names the schedule `inner`, and has
/// `make(checked, level, rule, storage, backend, layout, options)`, which gives a new engine (outer/local_updates.hpp).
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
/// A schedule whose rounds do not follow one another as the lines of its table do: `drawn(round)` is a round's line.
template <class Schedule>
concept draws_rounds = requires(Schedule const& schedule, std::size_t round) {
  { schedule.drawn(round) } -> std::same_as<std::size_t>;
};
/// What the schedule declares, or the shortest period in which its first 64 rounds repeat; 0: they do not, or of none
/// up to 16.
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

/// How many lengths its parts have: one more than the largest number in its plans, and at least two.
template <class Schedule>
[[nodiscard]] constexpr int parts_of(Schedule const& schedule) {
  int parts = 2;
  for (std::size_t round = 0; round < period_of(schedule).rounds(); ++round)
    if (const int number = static_cast<int>(schedule.plan(round).part); number >= parts) parts = number + 1;
  return parts;
}

/// Why the engine cannot run a table of rounds: the name of each flaw, and what is said of it. A macro, because a
/// static_assert takes its words from a literal only.
// clang-format off
#define ACCO_SCHEDULE_FLAWS(flaw) \
  flaw(no_period, "its rounds do not repeat: declare `static constexpr std::size_t period` (and `warm_up_rounds`)") \
  flaw(first_round, "round 0 carries kept gradients, and nothing was kept before it") \
  flaw(step_begins_with_kept, "a round after a commit carries kept gradients, which the commit has used") \
  flaw(mixed_waits, "the computation waits for some rounds and not for others") \
  flaw(keeps_while_waiting, "the computation waits for a round that keeps its gradients") \
  flaw(keeps_and_commits, "a round that commits keeps its gradients, so the next step would use them again") \
  flaw(kept_twice, "a round adds gradients to reduced ones that the accumulator has kept too") \
  flaw(kept_with_feedback, "an estimate keeps its gradients, which the commit sends again, and has a feedback, which " \
                           "would send what was lost once more: give the feedback to the commit") \
  flaw(ahead_of_nothing, "with_feedback_ahead is for estimates that keep their gradients, of a schedule whose commits " \
                         "have the same feedback, with_feedback") \
  flaw(adds_to_states, "a commit adds to the gradients that its estimate has sent, and has a feedback whose receivers " \
                       "sum states in their place (ef21): give it error_feedback, or let the estimate keep its gradients") \
  flaw(never_commits, "no round of its period commits") \
  flaw(shows_nothing, "a round is `update::commit_and_show`, and the schedule lacks a data member `predictor`") \
  flaw(never_shows, "it has a data member `predictor`, and no round of it is `update::commit_and_show`") \
  flaw(two_decorations, "a compensation corrects gradients of committed parameters, and a predictor lets them be " \
                        "computed elsewhere: give the schedule one of the two") \
  flaw(compensates_estimates, "it has a compensation and rounds that do not commit: their gradients are not late by " \
                              "one update") \
  flaw(estimate_not_kept, "an estimate takes its own rank's gradients (own_slice, own_corrected) and does not keep " \
                          "them, so no commit has them: let its plan say `.keeps = true`, and the commit's " \
                          "`carried::fresh`") \
  flaw(commits_own, "own_slice and own_corrected are for estimates: every owner takes its own gradients only, and a " \
                    "commit needs those of all ranks") \
  flaw(commits_biased, "a commit's gradients travel in a code that is biased, and what it loses adds up: give it " \
                       "with_feedback{code, error_feedback{}}, or say without_feedback<code>") \
  flaw(some_updated_by_all, "some rounds' parameters are updated_by_all and others' are not: owners have shares, or all " \
                            "ranks have all") \
  flaw(no_reference, "its rounds of against_reference, of reference_gradients, and of update::commit_and_show without a " \
                     "predictor need each other, and a data member `tau`: masha has them all") \
  flaw(no_such_wire, "the plan of a round has the number of a wire that the schedule's `wires()` does not have")
// clang-format on
enum class schedule_flaw {
#define ACCO_NAME(name, words) name,
  none,
  ACCO_SCHEDULE_FLAWS(ACCO_NAME)
#undef ACCO_NAME
};
[[nodiscard]] constexpr char const* words_of(schedule_flaw flaw) noexcept {
#define ACCO_WORDS(name, words) \
  if (flaw == schedule_flaw::name) return words;
  ACCO_SCHEDULE_FLAWS(ACCO_WORDS)
#undef ACCO_WORDS
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
  bool predicts = false, compensates = false;  ///< has_predictor, has_compensation
  bool by_number = false;                      ///< chooses_wires
  std::size_t wires = 2;
  std::uint32_t own = 0;              ///< bit k: wire k takes own gradients
  std::uint32_t feeds = 0, sums = 0;  ///< likewise: it has a feedback; one whose receivers sum states
  std::uint32_t biased = 0;           ///< likewise: it is biased and has no feedback
  std::uint32_t loose = 0;            ///< likewise: parameters, or what is fed back, travel in a code that is
  std::uint32_t ahead = 0;            ///< likewise: its feedback is ahead of a commit's
  bool ahead_of_another = false;      ///< there is none like it
  std::uint32_t by_all = 0;           ///< likewise: all ranks update
  std::uint32_t references = 0;       ///< likewise: its gradients become the reference
  std::uint32_t differences = 0;      ///< likewise: they travel as differences to it
  bool extrapolates = false;          ///< it has a data member `tau`
  bool draws = false;                 ///< draws_rounds

  [[nodiscard]] constexpr std::size_t wire(round_plan const& plan) const noexcept {
    return by_number ? plan.wire : commits(plan) ? 1 : 0;
  }
  /// Whether the wire of a round is one of these.
  [[nodiscard]] constexpr bool is_in(std::uint32_t wires_of_a_kind, round_plan const& plan) const noexcept {
    return (wires_of_a_kind >> wire(plan) & 1U) != 0;
  }
};
template <class Schedule>
[[nodiscard]] constexpr schedule_means means_of() noexcept {
  return by_wires<Schedule>([]<class... Wires>() {
    static_assert(sizeof...(Wires) <= 32);
    schedule_means means{has_predictor<Schedule>, has_compensation<Schedule>, chooses_wires<Schedule>, sizeof...(Wires)};
    means.extrapolates = requires(Schedule const& schedule) { static_cast<double>(schedule.tau); };
    means.draws = draws_rounds<Schedule>;
    std::uint32_t bit = 1;
    const auto note = [&means, &bit]<class Gradients, class Parameters>(coded<Gradients, Parameters> const*) {
      means.own |= own_gradients<Gradients> ? bit : 0U;
      means.feeds |= feeds_back<Gradients> && !looks_ahead<Gradients> ? bit : 0U;
      means.ahead |= looks_ahead<Gradients> ? bit : 0U;
      if constexpr (looks_ahead<Gradients>) {  // it finds the state by its name: so there may be one
        constexpr int others =
            ((feeds_back<typename Wires::gradient_encoding> && !is_ahead_of<Gradients, typename Wires::gradient_encoding> &&
              !looks_ahead<typename Wires::gradient_encoding>)+...);
        constexpr int same = (is_ahead_of<Gradients, typename Wires::gradient_encoding> + ...);
        means.ahead_of_another = means.ahead_of_another || others != 0 || same != 1;
      }
      means.sums |= sums_states<Gradients> ? bit : 0U;
      means.biased |= biased<Gradients> && !feeds_back<Gradients> ? bit : 0U;
      means.loose |= loose<Parameters> || (loose<Gradients> && (feeds_back<Gradients> || unscaled<Gradients>)) ? bit : 0U;
      means.by_all |= std::is_same_v<Parameters, updated_by_all> ? bit : 0U;
      means.references |= std::is_same_v<Gradients, reference_gradients> ? bit : 0U;
      means.differences |= takes_differences<Gradients> ? bit : 0U;
      bit <<= 1U;
    };
    (note(static_cast<Wires const*>(nullptr)), ...);
    return means;
  });
}
/// Whether parameters of a commit, or gradients with a feedback, travel in a code that is `loose`.
template <class Schedule>
inline constexpr bool commits_loosely = (means_of<Schedule>().loose & (chooses_wires<Schedule> ? ~0U : 2U)) != 0;
/// Whether its estimates need the mean of the other ranks' last gradients (`own_corrected`).
template <class Schedule>
inline constexpr bool estimates_with_others = by_wires<Schedule>(
    []<class... Wires>() { return (std::is_same_v<typename Wires::gradient_encoding, own_corrected> || ...); });
/// Whether some of its rounds send differences to gradients at a reference point.
template <class Schedule>
inline constexpr bool has_reference =
    by_wires<Schedule>([]<class... Wires>() { return (takes_differences<typename Wires::gradient_encoding> || ...); });

/// plan(round) is its table.
template <class Plan>
[[nodiscard]] constexpr schedule_flaw flaw_of(Plan const& plan, schedule_period const& rounds, schedule_means const& means = {}) {
  if (rounds.period == 0) return schedule_flaw::no_period;
  if (means.predicts && means.compensates) return schedule_flaw::two_decorations;
  const bool extrapolates = means.extrapolates && means.references != 0 && means.differences != 0;
  if ((means.references != 0 || means.differences != 0) && !extrapolates) return schedule_flaw::no_reference;
  bool ever_shows = false;
  if (plan(0).gradients != carried::fresh) return schedule_flaw::first_round;
  bool ever_commits = false;
  for (std::size_t round = 0; round < rounds.rounds(); ++round) {
    const round_plan now = plan(round), next = plan(rounds.stands_for(round + 1));
    if (means.wire(now) >= means.wires) return schedule_flaw::no_such_wire;
    if (commits(now) && means.is_in(means.own, now)) return schedule_flaw::commits_own;
    if (commits(now) && means.is_in(means.biased, now)) return schedule_flaw::commits_biased;
    if (means.is_in(means.by_all, now) != means.is_in(means.by_all, plan(0))) return schedule_flaw::some_updated_by_all;
    if (now.meanwhile != next.meanwhile) return schedule_flaw::mixed_waits;
    if (now.keeps && now.meanwhile == computation::waits) return schedule_flaw::keeps_while_waiting;
    if (now.keeps && commits(now)) return schedule_flaw::keeps_and_commits;
    if (commits(now) && next.gradients != carried::fresh) return schedule_flaw::step_begins_with_kept;
    if (now.keeps && next.gradients != carried::fresh) return schedule_flaw::kept_twice;
    if (now.keeps && means.is_in(means.feeds, now)) return schedule_flaw::kept_with_feedback;
    if (means.is_in(means.ahead, now) && (!now.keeps || means.ahead_of_another)) return schedule_flaw::ahead_of_nothing;
    if (now.gradients != carried::fresh && means.is_in(means.sums, now)) return schedule_flaw::adds_to_states;
    if (now.parameters == update::commit_and_show && !means.predicts && !extrapolates) return schedule_flaw::shows_nothing;
    if (!commits(now) && means.compensates) return schedule_flaw::compensates_estimates;
    if (means.is_in(means.own, now) && !now.keeps) return schedule_flaw::estimate_not_kept;
    ever_shows = ever_shows || now.parameters == update::commit_and_show;
    ever_commits = ever_commits || (round >= rounds.warm_up && commits(now));
  }
  if (means.predicts && !ever_shows) return schedule_flaw::never_shows;
  return ever_commits ? schedule_flaw::none : schedule_flaw::never_commits;
}

/// A schedule has `constexpr round_plan plan(std::size_t round) const`, the table, and a data member `pace`. Its rounds
/// repeat every `static constexpr std::size_t period` rounds (without it, the shortest that is seen), after
/// `static constexpr std::size_t warm_up_rounds` (without it, 0). Round 0 must be `fresh`, as every round after a
/// commit; either all rounds wait or none does; some round of a period commits. A step begins after a commit. Optional:
/// `static constexpr char const* name`; `drawn(round)`, which line of the table a round has, where they are drawn by a
/// function of its index (masha.hpp); data members `estimate` and `commit`, which say how the rounds that do not, and
/// that do commit travel (code/encoding.hpp), or `wires()`, a tuple of which `round_plan::wire` is the number;
/// `predictor`, which says what rounds of `update::commit_and_show` show, or `compensation`, which changes late
/// gradients (predictor.hpp, compensation.hpp).
template <class Schedule>
concept schedule = has_plan<Schedule> && has_pace<Schedule>;

/// The table of a schedule whose plan does not depend on how it was made.
template <class Schedule>
concept has_constant_plan = requires { typename std::bool_constant<(Schedule{}.plan(0), true)>; };

/// The same, one sentence each.
template <class Schedule>
consteval bool check_schedule() {
  static_assert(has_plan<Schedule>, "acco: the schedule lacks `round_plan plan(std::size_t round) const`");
  static_assert(
      has_pace<Schedule>,
      "acco: the schedule lacks a data member `pace` with `minimum(step_part)` and `maximum(step_part)` returning unsigned");
  if constexpr (has_plan<Schedule> && has_constant_plan<Schedule>) {
    constexpr schedule_flaw flaw =
        flaw_of([](std::size_t round) { return Schedule{}.plan(round); }, period_of(Schedule{}), means_of<Schedule>());
#define ACCO_DEMAND(name, words) static_assert(flaw != schedule_flaw::name, "acco: the schedule cannot be run: " words);
    ACCO_SCHEDULE_FLAWS(ACCO_DEMAND)
#undef ACCO_DEMAND
#undef ACCO_SCHEDULE_FLAWS
  }
  return true;
}

}  // namespace ACCO_NAMESPACE
