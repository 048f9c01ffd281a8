// SPDX-License-Identifier: Apache-2.0
// The tables of the schedules, proved by the compiler.
#include <acco/encoding/block_integer.hpp>
#include <acco/schedule/delayed.hpp>
#include <acco/schedule/synchronous.hpp>
#include <acco/schedule/two_phase.hpp>
#include <acco/schedule/weight_prediction.hpp>

namespace {
using acco::carried, acco::computation, acco::round_plan, acco::step_part, acco::update;

constexpr round_plan synchronous_round{carried::fresh, update::commit, computation::waits, step_part::first};
constexpr round_plan delayed_round{carried::fresh, update::commit, computation::continues, step_part::first};
constexpr round_plan estimate{carried::fresh, update::predict, computation::continues, step_part::first};
constexpr round_plan commit{carried::kept_and_fresh, update::commit, computation::continues, step_part::second};
constexpr round_plan prediction_round{carried::fresh, update::commit_and_predict, computation::continues, step_part::first};

constexpr bool tables_hold() {
  for (std::size_t round = 0; round < 100; ++round) {
    if (acco::synchronous{}.plan(round) != synchronous_round) return false;
    if (acco::delayed{}.plan(round) != delayed_round) return false;
    if (acco::two_phase{}.plan(round) != (round % 2 == 0 ? estimate : commit)) return false;
    if (acco::weight_prediction{}.plan(round) != prediction_round) return false;
  }
  return true;
}
static_assert(tables_hold());

// With a coarse estimate the accumulator keeps what the estimate carries, and the commit carries all of it.
constexpr round_plan coarse_estimate{carried::fresh, update::predict, computation::continues, step_part::first, true};
constexpr round_plan whole_commit{carried::fresh, update::commit, computation::continues, step_part::second};
constexpr auto coarse = acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{.first = 7, .second = 1}};
static_assert(coarse.plan(0) == coarse_estimate && coarse.plan(1) == whole_commit && coarse.plan(2) == coarse_estimate);
constexpr auto fully_coded = acco::two_phase{
    .estimate = acco::block_int4{}, .commit = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}}};
static_assert(fully_coded.plan(1) == whole_commit);
static_assert(acco::two_phase{.commit = acco::block_int8{}}.plan(1) ==
              commit);  // the estimate is exact: its half is kept reduced
static_assert(acco::begins_step(coarse, 0) && !acco::begins_step(coarse, 1) && acco::begins_step(coarse, 2));

static_assert(!acco::commits(estimate) && acco::commits(commit) && acco::commits(prediction_round));
static_assert(!acco::shows_committed(estimate) && acco::shows_committed(commit) && !acco::shows_committed(prediction_round));

// The spelling that users write, with deduced parameters.
constexpr auto uneven = acco::two_phase{.pace = acco::fixed_pace{.first = 7, .second = 1}};
static_assert(uneven.pace.minimum(step_part::first) == 7 && uneven.pace.maximum(step_part::second) == 1);
constexpr auto elastic = acco::delayed{.pace = acco::elastic_pace{.at_least = 2, .at_most = 9}};
static_assert(elastic.pace.minimum(step_part::second) == 2 && elastic.pace.maximum(step_part::first) == 9);
static_assert(acco::fixed_pace{3}.minimum(step_part::second) == 3);
static_assert(acco::two_phase{}.pace.minimum(step_part::second) == 1);
}  // namespace
