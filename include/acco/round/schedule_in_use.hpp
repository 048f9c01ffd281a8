// SPDX-License-Identifier: Apache-2.0
// A schedule behind a plain interface: what the engine asks of it, once a micro-batch or once a round. All schedules over the
// same rule, storage and backend share one engine, which is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"
#include "acco/round/construction.hpp"
#include "acco/schedule/schedule.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// `Works` are those of a round (works.hpp).
template <class Works>
class schedule_in_use {
 public:
  schedule_in_use() = default;
  schedule_in_use(schedule_in_use const&) = delete;
  schedule_in_use& operator=(schedule_in_use const&) = delete;
  virtual ~schedule_in_use() = default;

  [[nodiscard]] virtual round_plan plan(std::size_t round) const = 0;
  [[nodiscard]] virtual schedule_period period() const = 0;
  /// Least and most micro-batches that the pace wants in a part of a step.
  [[nodiscard]] virtual unsigned minimum(step_part part) const = 0;
  [[nodiscard]] virtual unsigned maximum(step_part part) const = 0;
  /// Whether the pace measures: then `measured` is called when a step is about to begin.
  [[nodiscard]] virtual bool measures() const = 0;
  virtual void measured(pace_seconds const& seconds) = 0;
  /// Everything about the schedule on which the ranks must agree.
  virtual void describe(description& into) const = 0;

  /// Tells the works how rounds may travel, before they allocate.
  virtual void add_wires(Works& works) const = 0;
  /// Encodes the carried gradients that the accumulator keeps.
  virtual void encode_kept(Works& works) const = 0;
  /// Enqueues the works of the round that was carried, which has this plan and belongs to the `step`-th commit (from 1). Returns
  /// whether parameters travel as encoded differences.
  virtual bool enqueue(Works& works, round_plan const& plan, std::uint64_t step) const = 0;
};

/// The one of type `Schedule`.
template <class Schedule, class Works>
class schedule_of final : public schedule_in_use<Works> {
 public:
  explicit schedule_of(Schedule schedule) : schedule_(std::move(schedule)) {}

  [[nodiscard]] round_plan plan(std::size_t round) const override { return schedule_.plan(round); }
  [[nodiscard]] schedule_period period() const override { return period_; }
  [[nodiscard]] unsigned minimum(step_part part) const override { return schedule_.pace.minimum(part); }
  [[nodiscard]] unsigned maximum(step_part part) const override { return schedule_.pace.maximum(part); }
  [[nodiscard]] bool measures() const override { return measuring_pace<decltype(Schedule::pace)>; }
  void measured([[maybe_unused]] pace_seconds const& seconds) override {
    if constexpr (measuring_pace<decltype(Schedule::pace)>) schedule_.pace.measured(seconds);
  }
  void describe(description& into) const override { describe_schedule(into, schedule_); }

  void add_wires(Works& works) const override {
    works.add_wire(estimate_);
    works.add_wire(commit_);
  }
  void encode_kept([[maybe_unused]] Works& works) const override {
    if constexpr (encoding<typename estimate_type::gradient_encoding>) {
      works.encode_kept(estimate_.gradients);
    } else {
      throw usage_error(works.queue().place, text("the schedule keeps gradients that do not travel encoded"),
                        text("Give its member `estimate` an encoding, or let its plan keep nothing"));
    }
  }
  bool enqueue(Works& works, round_plan const& plan, std::uint64_t step) const override {
    if (!commits(plan)) return enqueue_as(works, estimate_);
    if constexpr (encoding<typename commit_type::parameter_encoding>) {
      if (commit_.exact_every != 0 && step % commit_.exact_every == 0)
        return enqueue_as(works, coded<typename commit_type::gradient_encoding>{commit_.gradients});
    }
    return enqueue_as(works, commit_);
  }

 private:
  using estimate_type = decltype(estimate_wire(std::declval<Schedule const&>()));
  using commit_type = decltype(commit_wire(std::declval<Schedule const&>()));

  template <class Gradients, class Parameters>
  static bool enqueue_as(Works& works, coded<Gradients, Parameters> const& wire) {
    works.enqueue(wire);
    return encoding<Parameters>;
  }

  Schedule schedule_;
  schedule_period period_ = period_of(schedule_);
  estimate_type estimate_ = estimate_wire(schedule_);
  commit_type commit_ = commit_wire(schedule_);
};

}  // namespace ACCO_SIMD_NAMESPACE
