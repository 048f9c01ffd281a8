// SPDX-License-Identifier: Apache-2.0
// The compiler proves how rounds that land change a run's counters, and what their reports say.
#include <acco/round/run_record.hpp>

namespace {

constexpr acco::round_plan estimate{.gradients = acco::carried::fresh, .parameters = acco::update::predict};
constexpr acco::round_plan commit{.gradients = acco::carried::kept_and_fresh, .parameters = acco::update::commit};

/// A round of so much weight and loss; `step` is what its update uses.
constexpr acco::round_numbers round_of(double weight, double loss_sum, double step, bool apply) {
  acco::round_numbers n;
  n.all.weight = weight;
  n.all.loss_sum = loss_sum;
  n.step_weight = step;
  n.apply = apply;
  n.norm = 3;
  return n;
}
struct landed {
  acco::run_counters run;
  acco::round_report report;
};
constexpr landed land(acco::run_counters run, acco::round_numbers const& n, acco::round_plan const& plan, double seconds = 1) {
  acco::advance(run, n, plan, seconds);
  const acco::round_report report = acco::describe(run, n, {.plan = plan, .rate = 0.5, .micro_batches = 2},
                                                   {.bytes = {.all = 7}, .first = 2, .second = 3}, acco::shows_committed(plan));
  acco::end_round(run, n);
  return {run, report};
}

constexpr landed first = land({}, round_of(4, 8, 4, true), estimate, 2);
static_assert(first.run.round == 1 && first.run.steps == 0 && first.run.samples == 0);
static_assert(first.run.estimate_seconds == 2 && first.run.commit_seconds == 0);
static_assert(!first.report.committed && first.report.step == 0 && first.report.step_loss == 2 && first.report.bytes_sent == 7);

constexpr landed second = land(first.run, round_of(2, 16, 6, true), commit, 5);
static_assert(second.run.round == 2 && second.run.steps == 1 && second.run.samples == 6 && second.run.commit_seconds == 5);
static_assert(second.report.committed && second.report.step_weight == 6 && second.report.step_loss == 4);
static_assert(second.report.mean_loss == 8 && second.report.learning_rate_scale == 0.5 && second.report.gradient_norm == 3);
static_assert(second.report.first == 2 && second.report.second == 3 && second.report.micro_batches == 2);

constexpr acco::round_numbers skipped_numbers() {
  acco::round_numbers n = round_of(2, 16, 0, false);
  n.skip = true;
  return n;
}
constexpr landed skipped = land(first.run, skipped_numbers(), commit);
static_assert(skipped.run.steps == 0 && skipped.run.samples == 0 && skipped.run.skipped == 1 && skipped.run.empty == 0);
static_assert(skipped.run.step_weight == 0 && skipped.run.step_loss_sum == 0 && skipped.report.skipped);
static_assert(land(skipped.run, round_of(1, 1, 1, true), commit).run.skipped == 0);

constexpr landed empty = land({}, round_of(0, 0, 0, false), commit);
static_assert(empty.run.empty == 1 && empty.report.mean_loss == 0 && empty.report.step_loss == 0);
static_assert(land(empty.run, round_of(1, 1, 1, true), commit).run.empty == 0);

static_assert(!acco::ends_run(skipped.run, skipped_numbers(), 2, 9) && acco::ends_run(skipped.run, skipped_numbers(), 1, 9));
static_assert(acco::ends_run(empty.run, round_of(0, 0, 0, false), 9, 1));

}  // namespace
