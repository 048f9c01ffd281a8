// SPDX-License-Identifier: Apache-2.0
// The tables of the schedules, proved by the compiler.
#include <cstdint>

#include <acco/code/block_integer.hpp>
#include <acco/schedule/delayed.hpp>
#include <acco/schedule/masha.hpp>
#include <acco/schedule/synchronous.hpp>
#include <acco/schedule/two_phase.hpp>
#include <acco/schedule/weight_prediction.hpp>

namespace {
using acco::carried, acco::computation, acco::round_plan, acco::step_part, acco::update;

constexpr round_plan synchronous_round{carried::fresh, update::commit, computation::waits, step_part::first};
constexpr round_plan delayed_round{carried::fresh, update::commit, computation::continues, step_part::first};
constexpr round_plan estimate{carried::fresh, update::predict, computation::continues, step_part::first};
constexpr round_plan commit{carried::kept_and_fresh, update::commit, computation::continues, step_part::second};
constexpr round_plan shown_round{carried::fresh, update::commit_and_show, computation::continues, step_part::first};
constexpr round_plan prediction_round{carried::fresh, update::commit_and_predict, computation::continues, step_part::first};

constexpr bool tables_hold() {
  for (std::size_t round = 0; round < 100; ++round) {
    if (acco::synchronous{}.plan(round) != synchronous_round) return false;
    if (acco::delayed{}.plan(round) != delayed_round) return false;
    if (acco::two_phase{}.plan(round) != (round % 2 == 0 ? estimate : commit)) return false;
    if (acco::weight_prediction{}.plan(round) != prediction_round) return false;
    if (acco::delayed{.predictor = acco::rule_prediction{}}.plan(round) != prediction_round) return false;
    if (acco::delayed{.predictor = acco::extrapolation{}}.plan(round) != shown_round) return false;
    if (acco::delayed{.predictor = acco::velocity{}}.plan(round) != shown_round) return false;
    if (acco::delayed{.compensation = acco::delay_compensation{}}.plan(round) != delayed_round) return false;
  }
  return true;
}
static_assert(tables_hold());

// With a coarse estimate the accumulator keeps what the estimate carries, and the commit carries all of it.
constexpr round_plan coarse_estimate{carried::fresh, update::predict, computation::continues, step_part::first, true};
constexpr round_plan whole_commit{carried::fresh, update::commit, computation::continues, step_part::second};
constexpr auto coarse = acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{.first = 7, .second = 1}};
static_assert(coarse.plan(0) == coarse_estimate && coarse.plan(1) == whole_commit && coarse.plan(2) == coarse_estimate);
// What does not travel stays in the accumulator, too.
static_assert(acco::two_phase{.estimate = acco::own_slice{}}.plan(0) == coarse_estimate &&
              acco::two_phase{.estimate = acco::own_slice{}}.plan(1) == whole_commit);
static_assert(acco::two_phase{.estimate = acco::own_corrected{}}.plan(0) == coarse_estimate &&
              acco::two_phase{.estimate = acco::own_corrected{}}.plan(1) == whole_commit);
constexpr auto fully_coded = acco::two_phase{
    .estimate = acco::block_int4{}, .commit = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}}};
static_assert(fully_coded.plan(1) == whole_commit);
static_assert(acco::two_phase{.commit = acco::block_int8{}}.plan(1) ==
              commit);  // the estimate is exact: its half is kept reduced
static_assert(acco::begins_step(coarse, 0) && !acco::begins_step(coarse, 1) && acco::begins_step(coarse, 2));

// Everything that is derived from a table is derived from one period of it.
static_assert(acco::period_of(acco::two_phase{}).period == 2 && acco::period_of(acco::delayed{}).period == 1);
template <std::size_t Rounds>
struct repeats {  // says nothing of its period
  acco::fixed_pace pace = {};
  [[nodiscard]] constexpr round_plan plan(std::size_t round) const { return round % Rounds == 0 ? estimate : commit; }
};
static_assert(acco::period_of(repeats<3>{}).period == 3 && acco::period_of(repeats<16>{}).period == 16);
static_assert(acco::period_of(repeats<17>{}).period == 0);
struct warms_up {
  acco::fixed_pace pace = {};
  static constexpr std::size_t warm_up_rounds = 20, period = 2;
  [[nodiscard]] constexpr round_plan plan(std::size_t round) const {
    return round < warm_up_rounds ? delayed_round : round % 2 == 0 ? estimate : commit;
  }
};
static_assert(acco::period_of(warms_up{}).stands_for(19) == 19 && acco::period_of(warms_up{}).stands_for(1001) == 21);
constexpr acco::schedule_flaw flaw(round_plan first, round_plan second) {
  return acco::flaw_of([=](std::size_t round) { return round % 2 == 0 ? first : second; }, {.warm_up = 0, .period = 2});
}
using acco::schedule_flaw;
static_assert(flaw(estimate, commit) == schedule_flaw::none && flaw(coarse_estimate, whole_commit) == schedule_flaw::none);
static_assert(flaw(commit, estimate) == schedule_flaw::first_round);
static_assert(flaw(estimate, estimate) == schedule_flaw::never_commits);
static_assert(flaw(delayed_round, commit) == schedule_flaw::step_begins_with_kept);
static_assert(flaw(delayed_round, synchronous_round) == schedule_flaw::mixed_waits);
static_assert(flaw(coarse_estimate, commit) == schedule_flaw::kept_twice);
static_assert(flaw({carried::fresh, update::predict, computation::waits, step_part::first, true},
                   {carried::fresh, update::commit, computation::waits, step_part::second}) ==
              schedule_flaw::keeps_while_waiting);
static_assert(flaw({carried::fresh, update::commit, computation::continues, step_part::first, true}, whole_commit) ==
              schedule_flaw::keeps_and_commits);

static_assert(flaw(shown_round, shown_round) == schedule_flaw::shows_nothing);
static_assert(acco::flaw_of([](std::size_t) { return shown_round; }, {.warm_up = 0, .period = 1}, {.predicts = true}) ==
              schedule_flaw::none);
static_assert(acco::flaw_of([](std::size_t) { return delayed_round; }, {.warm_up = 0, .period = 1}, {.own = 2}) ==
              schedule_flaw::commits_own);
static_assert(acco::flaw_of([](std::size_t) { return delayed_round; }, {.warm_up = 0, .period = 1}, {.biased = 2}) ==
              schedule_flaw::commits_biased);
constexpr acco::schedule_flaw flaw_with(round_plan first, round_plan second, acco::schedule_means const& means) {
  return acco::flaw_of([=](std::size_t round) { return round % 2 == 0 ? first : second; }, {.warm_up = 0, .period = 2}, means);
}
static_assert(flaw_with(estimate, commit, {.own = 1}) == schedule_flaw::estimate_not_kept);
static_assert(flaw_with(estimate, commit, {.biased = 1}) == schedule_flaw::none);
static_assert(flaw_with(estimate, commit, {.biased = 2}) == schedule_flaw::commits_biased);
static_assert(flaw_with(estimate, commit, {.by_all = 2}) == schedule_flaw::some_updated_by_all);
static_assert(flaw_with(estimate, commit, {.by_all = 3}) == schedule_flaw::none);
static_assert(flaw_with(coarse_estimate, whole_commit, {.ahead = 1}) == schedule_flaw::none);
static_assert(flaw_with(estimate, commit, {.ahead = 1}) == schedule_flaw::ahead_of_nothing);
static_assert(flaw_with(coarse_estimate, whole_commit, {.ahead = 2}) == schedule_flaw::ahead_of_nothing);
template <class Estimate, class Commit>
constexpr bool ahead_of_another = acco::means_of<acco::two_phase<acco::fixed_pace, Estimate, Commit>>().ahead_of_another;
using kept = acco::with_error_feedback<acco::block_int8<>>;
using ahead = acco::with_feedback_ahead<acco::block_int4<>, acco::error_feedback>;
static_assert(!ahead_of_another<acco::coded<ahead>, acco::coded<kept>> && !ahead_of_another<acco::full, acco::coded<kept>>);
static_assert(ahead_of_another<acco::coded<ahead>, acco::full> &&
              ahead_of_another<acco::coded<ahead>, acco::coded<acco::with_feedback<acco::block_int8<>, acco::ef21>>>);
/// Two states of one name.
struct two_states {
  constexpr auto wires() const {
    return std::make_tuple(acco::coded<ahead>{}, acco::coded<kept>{},
                           acco::coded<acco::with_error_feedback<acco::block_int4<>, acco::bfloat16>>{});
  }
};
static_assert(acco::means_of<two_states>().ahead_of_another);

struct crude : acco::block_int4<> {
  static constexpr bool biased = true, loose = true;
};
template <class Commit>
constexpr acco::schedule_means means_with = acco::means_of<acco::synchronous<Commit>>();
static_assert(means_with<acco::coded<crude>>.biased == 2 && means_with<acco::coded<acco::full, crude>>.biased == 0);
static_assert(means_with<acco::coded<acco::with_error_feedback<crude>>>.biased == 0);
static_assert(means_with<acco::coded<acco::without_feedback<crude>>>.biased == 0);
template <class Commit>
constexpr bool loosely_with = acco::commits_loosely<acco::synchronous<Commit>>;
static_assert(!loosely_with<acco::coded<crude>> && loosely_with<acco::coded<acco::full, crude>>);
static_assert(loosely_with<acco::coded<acco::with_error_feedback<crude>>>);
static_assert(!loosely_with<acco::coded<acco::full, acco::loosely<crude>>>);
static_assert(!acco::commits_loosely<acco::two_phase<acco::fixed_pace, acco::coded<acco::own_slice, crude>>>);
static_assert(flaw_with(coarse_estimate, whole_commit, {.own = 1}) == schedule_flaw::none);
static_assert(flaw_with(estimate, shown_round, {.references = 1, .differences = 2}) == schedule_flaw::no_reference);
static_assert(flaw_with(estimate, shown_round, {.differences = 2, .extrapolates = true}) == schedule_flaw::no_reference);
static_assert(flaw_with(estimate, shown_round, {.references = 1, .extrapolates = true}) == schedule_flaw::no_reference);
static_assert(flaw_with(estimate, shown_round, {.references = 1, .differences = 2, .extrapolates = true}) == schedule_flaw::none);
// At tau 0 the coin always falls: plain extragradient. A round behind one at the reference point is none.
static_assert(acco::masha<>{.tau = 0}.drawn(40) == 0 && acco::masha<>{.tau = 0}.drawn(41) == 2);
static_assert(acco::masha<>{}.drawn(0) == 0 && acco::masha<>{}.drawn(1) != 0);
// The coin is what it was when older checkpoints were written.
constexpr unsigned first_draws(std::uint64_t seed) {
  unsigned bits = 0;
  for (unsigned round = 0; round < 16; ++round) bits |= acco::masha<>{.seed = seed}.falls(round) ? 1U << round : 0U;
  return bits;
}
static_assert(first_draws(1) == 0x2440 && first_draws(2) == 0x88c0);
static_assert(flaw_with(estimate, commit, {.compensates = true}) == schedule_flaw::compensates_estimates);
static_assert(flaw_with(delayed_round, delayed_round, {.compensates = true}) == schedule_flaw::none);
static_assert(flaw_with(delayed_round, delayed_round, {.predicts = true}) == schedule_flaw::never_shows);
static_assert(flaw_with(shown_round, delayed_round, {.predicts = true, .compensates = true}) == schedule_flaw::two_decorations);
static_assert(acco::commits(shown_round) && !acco::shows_committed(shown_round));
static_assert(!acco::commits(estimate) && acco::commits(commit) && acco::commits(prediction_round));
static_assert(!acco::shows_committed(estimate) && acco::shows_committed(commit) && !acco::shows_committed(prediction_round));

// The spelling that users write, with deduced parameters.
constexpr auto uneven = acco::two_phase{.pace = acco::fixed_pace{.first = 7, .second = 1}};
static_assert(uneven.pace.minimum(step_part::first) == 7 && uneven.pace.maximum(step_part::second) == 1);
constexpr auto elastic = acco::delayed{.pace = acco::elastic_pace{.at_least = 2, .at_most = 9}};
static_assert(elastic.pace.minimum(step_part::second) == 2 && elastic.pace.maximum(step_part::first) == 9);
static_assert(acco::fixed_pace{3}.minimum(step_part::second) == 3);
// The default: three quarters of a step's samples in the first part, more than the 0.737 that momentum 0.9 needs.
static_assert(acco::two_phase{}.pace.minimum(step_part::first) == 3 && acco::two_phase{}.pace.minimum(step_part::second) == 1);
static_assert(acco::delayed{}.pace.minimum(step_part::first) == 1 && acco::synchronous{}.pace.minimum(step_part::first) == 1);
}  // namespace
