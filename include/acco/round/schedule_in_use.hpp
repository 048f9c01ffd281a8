// SPDX-License-Identifier: Apache-2.0
// A schedule behind a plain interface: what the engine asks of it, once a micro-batch or once a round. All schedules
// over a storage share one engine, which is compiled once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/code/encoding.hpp"
#include "acco/error.hpp"
#include "acco/handed.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/round/construction.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/wire/between_groups.hpp"
#include "acco/wire/coded.hpp"
#include "acco/wire/full.hpp"
#include "acco/wire/low_rank.hpp"
#include "acco/wire/own.hpp"
#include "acco/wire/planned.hpp"
#include "acco/wire/reference.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One of its wires, in both directions.
template <class Storage>
struct wire_in_use {
  std::unique_ptr<reducer_in_use<Storage>> up;      ///< gradients
  std::unique_ptr<gatherer_in_use<Storage>> down;   ///< parameters
  std::unique_ptr<gatherer_in_use<Storage>> exact;  ///< parameters in full, where they travel
                                                    ///< as encoded differences otherwise
  unsigned exact_every = 0;                         ///< coded::exact_every

  /// Whether parameters travel as differences; in the `step`-th commit (from 1; 0: the round does not commit).
  [[nodiscard]] bool differs() const noexcept { return exact != nullptr; }
  [[nodiscard]] bool differs(std::uint64_t step) const noexcept {
    return differs() && (exact_every == 0 || step == 0 || step % exact_every != 0);
  }
};

template <class Storage>
class schedule_in_use {
 public:
  schedule_in_use() = default;
  schedule_in_use(schedule_in_use const&) = delete;
  schedule_in_use& operator=(schedule_in_use const&) = delete;
  virtual ~schedule_in_use() = default;

  /// A line of its table; which line a round has.
  [[nodiscard]] virtual round_plan line(std::size_t number) const = 0;
  [[nodiscard]] virtual std::size_t line_of(std::size_t round) const = 0;
  [[nodiscard]] virtual schedule_period period() const = 0;
  /// How many lengths its parts have.
  [[nodiscard]] virtual int parts() const = 0;
  /// Least and most micro-batches that the pace wants in a part of a step.
  [[nodiscard]] virtual unsigned minimum(step_part part) const = 0;
  [[nodiscard]] virtual unsigned maximum(step_part part) const = 0;
  /// Whether the pace measures: then `measured` is called when a step is about to begin.
  [[nodiscard]] virtual bool measures() const = 0;
  virtual void measured(pace_seconds const& seconds) = 0;
  /// What such a pace has found, where it tells, and what it is to go on with.
  [[nodiscard]] virtual std::array<double, 5> save_state() const noexcept = 0;
  virtual void load_state(std::array<double, 5> const& of) noexcept = 0;
  /// Everything about the schedule, as it was constructed, on which the ranks must agree.
  virtual void describe(description& into) const = 0;
  /// Throws `usage_error` where a group of the layout cannot travel so.
  virtual void check(parameter_layout const& layout, error_place const& where) const = 0;
  /// What its table is judged by beside its rounds.
  [[nodiscard]] virtual schedule_means means() const = 0;

  /// By which rounds of this plan travel.
  [[nodiscard]] wire_in_use<Storage> const& wire(round_plan const& plan) const { return wires_[means().wire(plan)]; }
  /// Lets the wires declare their arrays, before they are allocated.
  void declare(round_view<Storage>& view, backend_in_use<Storage> const& world, bool keeps_reduced) const {
    for (auto const& each : wires_) {
      each.up->declare(view, world, keeps_reduced);
      each.down->declare(view);
    }
  }
  /// By which carried gradients that the accumulator keeps travel.
  [[nodiscard]] reducer_in_use<Storage> const& keeper(round_plan const& plan, error_place const& where) const {
    auto const& up = *wire(plan).up;
    if (up.keeps()) return up;
    throw usage_error(where, text("the schedule keeps gradients in place, and its estimate does not encode them at once"),
                      text("Give its member `estimate` an encoding of blocks, leave options::in_place out, or let its plan "
                           "keep nothing"));
  }
  /// Who learns from commits; one that learns nothing, where there is none.
  [[nodiscard]] reducer_in_use<Storage>& learner() const {
    for (auto const& each : wires_) {
      if (each.up->learns()) return *each.up;
    }
    return *wires_.front().up;
  }

  // What the engine derives from it.

  [[nodiscard]] round_plan plan(std::size_t round) const { return line(line_of(round)); }
  /// Whether a training that rested may go on with this round: its parameters in use are the committed ones.
  [[nodiscard]] bool starts(std::size_t round) const {
    return begins_step(*this, round) && !(means().draws && line_of(round) != 0);
  }

  /// Throws `usage_error` where the table cannot be run, or the pace ends no part.
  void check(error_place const& where) const {
    const schedule_flaw flaw = flaw_of([this](std::size_t number) { return line(number); }, period(), means());
    if (flaw != schedule_flaw::none)
      throw usage_error(where, text("the schedule cannot be run: ", words_of(flaw)),
                        text("docs/extending.md says what a table may hold"));
    bool splits = false;
    for (std::size_t round = 0; round < period().rounds(); ++round) splits = splits || line(round).part == step_part::second;
    if (measures() && !splits)
      throw usage_error(where, text("the pace splits steps, and the schedule has steps of one part"),
                        text("Use auto_pace with two_phase"));
    for (int number = 0; number < parts(); ++number) {
      const auto part = static_cast<step_part>(number);
      const unsigned least = minimum(part), most = maximum(part);
      if (least == 0 || most < least) {
        throw usage_error(
            where, text("the pace asks for ", least, " to ", most, " micro-batches a round"),
            text("A round needs at least one micro-batch, and at_most not below at_least; auto_pace splits two or more"));
      }
    }
  }
  /// The plan of a round; throws where the schedule does not keep to the period that everything else was derived from.
  [[nodiscard]] round_plan plan_of(std::size_t round, error_place const& where) const {
    const std::size_t number = line_of(round);
    const round_plan here = line(number);
    const schedule_period rounds = period();
    if (here == line(rounds.stands_for(number))) return here;
    throw usage_error(where,
                      text("the schedule's plan of this round is not that of round ", rounds.stands_for(round),
                           ", though its period is ", rounds.period, " after ", rounds.warm_up, " rounds"),
                      text("Declare `static constexpr std::size_t period` and `warm_up_rounds` in the schedule"));
  }
  /// Whether some round leaves what it carries for the next one to carry again.
  [[nodiscard]] bool keeps() const {
    for (std::size_t round = 0; round < period().rounds(); ++round) {
      if (line(round).keeps) return true;
    }
    return false;
  }
  /// Whether some round adds to the slice that the round before it reduced.
  [[nodiscard]] bool keeps_reduced() const {
    for (std::size_t round = 0; round < period().rounds(); ++round) {
      if (line(round).gradients == carried::kept_and_fresh) return true;
    }
    return false;
  }
  /// Whether the parameters that a commit brings may differ from the masters, converted: they are a prediction, or come
  /// as encoded differences.
  [[nodiscard]] bool commits_otherwise() const {
    for (std::size_t round = 0; round < period().rounds(); ++round) {
      round_plan const here = line(round);
      if (commits(here) && (!shows_committed(here) || wire(here).differs())) return true;
    }
    return false;
  }
  /// Whether some wire has a code of tiles.
  [[nodiscard]] bool has_tiles() const noexcept {
    for (auto const& each : wires_) {
      if (each.up->has_tiles()) return true;
    }
    return false;
  }
  /// Where some wire sums gradients of groups, and so may keep what is a group's, how many these are; else 0.
  [[nodiscard]] int groups(ranks_in_use const& ranks) const {
    for (auto const& each : wires_) {
      if (each.up->sums_groups()) return ranks.groups();
    }
    return 0;
  }
  /// Over how many of the ranks the state is cut.
  [[nodiscard]] int owners(int ranks) const {
    schedule_means const facts = means();
    return facts.is_in(facts.by_all, line(0)) ? 1 : ranks;
  }
  /// Files of a checkpoint are cut as the ranks' shares are.
  void require_shares(error_place const& where) const {
    if (owners(2) == 2) return;
    throw usage_error(where, text("a training whose parameters are updated_by_all is neither saved nor restored"),
                      text("gather_committed gives the parameters; or let them travel, in a code or in full"));
  }
  /// Whether parts have as many micro-batches on every rank.
  [[nodiscard]] bool same_everywhere() const {
    for (int part = 0; part < parts(); ++part) {
      if (minimum(static_cast<step_part>(part)) != maximum(static_cast<step_part>(part))) return false;
    }
    return true;
  }

 protected:
  std::vector<wire_in_use<Storage>> wires_;  // by number
};

/// The one way to make its halves: acco::compiled has them of usual encodings.
template <class Encoding, class Storage>
[[nodiscard]] std::unique_ptr<reducer_in_use<Storage>> new_reducer(Encoding const& encoding) {
  return std::make_unique<reducer<Encoding, Storage>>(encoding);
}
template <class Encoding, class Storage>
[[nodiscard]] std::unique_ptr<gatherer_in_use<Storage>> new_gatherer(Encoding const& encoding) {
  return std::make_unique<gatherer<Encoding, Storage>>(encoding);
}

/// The one of type `Schedule`.
template <class Schedule, class Storage>
class schedule_of final : public schedule_in_use<Storage> {
 public:
  explicit schedule_of(Schedule schedule) : schedule_(std::move(schedule)) {
    std::apply([&](auto const&... each) { (this->add(each), ...); }, wires_of(schedule_));
  }

  [[nodiscard]] round_plan line(std::size_t number) const override { return schedule_.plan(number); }
  [[nodiscard]] std::size_t line_of(std::size_t round) const override {
    if constexpr (draws_rounds<Schedule>) return schedule_.drawn(round);
    return round;
  }
  [[nodiscard]] schedule_period period() const override { return period_; }
  [[nodiscard]] int parts() const override { return parts_of(schedule_); }
  [[nodiscard]] unsigned minimum(step_part part) const override { return schedule_.pace.minimum(part); }
  [[nodiscard]] unsigned maximum(step_part part) const override { return schedule_.pace.maximum(part); }
  [[nodiscard]] bool measures() const override {
    if constexpr (requires { schedule_.pace.measures(); }) return schedule_.pace.measures();
    return measuring_pace<decltype(Schedule::pace)>;
  }
  void measured([[maybe_unused]] pace_seconds const& seconds) override {
    if constexpr (measuring_pace<decltype(Schedule::pace)>) schedule_.pace.measured(seconds);
  }
  [[nodiscard]] std::array<double, 5> save_state() const noexcept override {
    if constexpr (requires { schedule_.pace.save_state(); }) {
      return schedule_.pace.save_state();
    } else {
      return {};
    }
  }
  void load_state([[maybe_unused]] std::array<double, 5> const& of) noexcept override {
    if constexpr (requires { schedule_.pace.load_state(of); }) schedule_.pace.load_state(of);
  }
  void describe(description& into) const override { describe_schedule(into, constructed_); }

  void check(parameter_layout const& layout, error_place const& where) const override {
    by_wires<Schedule>([&]<class... Wires>() {
      (check_zeros<typename Wires::gradient_encoding>("gradients", layout, where), ...);
      (check_zeros<typename Wires::parameter_encoding>("parameters", layout, where), ...);
    });
  }

  [[nodiscard]] schedule_means means() const override { return means_of<Schedule>(); }

 private:
  template <class Wire>
  void add(Wire const& of) {
    auto& wire = this->wires_.emplace_back();
    wire.up = new_reducer<typename Wire::gradient_encoding, Storage>(of.gradients);
    wire.down = new_gatherer<typename Wire::parameter_encoding, Storage>(of.parameters);
    if (encoding<typename Wire::parameter_encoding>) wire.exact = new_gatherer<full, Storage>({});
    wire.exact_every = of.exact_every;
  }

  Schedule schedule_;
  Schedule constructed_ = schedule_;  // before its pace found anything
  schedule_period period_ = period_of(schedule_);
};

/// The one way to make one: acco::compiled has it of usual types.
template <class Schedule, class Storage>
[[nodiscard]] handed<schedule_in_use<Storage>> new_schedule(Schedule schedule) {
  return hand<schedule_in_use<Storage>, schedule_of<Schedule, Storage>>(std::move(schedule));
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
