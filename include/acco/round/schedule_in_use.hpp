// SPDX-License-Identifier: Apache-2.0
// A schedule behind a plain interface: what the engine asks of it, once a micro-batch or once a round. All schedules over the
// same rule, storage and backend share one engine, which is compiled once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "acco/encoding/encoding.hpp"
#include "acco/error.hpp"
#include "acco/round/construction.hpp"
#include "acco/schedule/schedule.hpp"
#include "acco/wire/coded.hpp"
#include "acco/wire/full.hpp"
#include "acco/wire/own.hpp"

#include "acco/hide_macros.hpp"

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
  /// How many lengths its parts have.
  [[nodiscard]] virtual int parts() const = 0;
  /// Least and most micro-batches that the pace wants in a part of a step.
  [[nodiscard]] virtual unsigned minimum(step_part part) const = 0;
  [[nodiscard]] virtual unsigned maximum(step_part part) const = 0;
  /// Whether the pace measures: then `measured` is called when a step is about to begin.
  [[nodiscard]] virtual bool measures() const = 0;
  virtual void measured(pace_seconds const& seconds) = 0;
  /// What such a pace has found, where it tells, and what it is to go on with.
  [[nodiscard]] virtual std::array<double, 5> remember() const noexcept = 0;
  virtual void remind(std::array<double, 5> const& of) noexcept = 0;
  /// Everything about the schedule, as it was constructed, on which the ranks must agree.
  virtual void describe(description& into) const = 0;

  /// Lets the wires declare their arrays, before they are allocated.
  virtual void add_wires(Works& works) = 0;
  /// Encodes the carried gradients that the accumulator keeps.
  virtual void encode_kept(Works& works, round_plan const& plan) = 0;
  /// Enqueues the works of the round that was carried, which has this plan and belongs to the `step`-th commit (from 1). Returns
  /// whether parameters travel as encoded differences.
  virtual bool enqueue(Works& works, round_plan const& plan, std::uint64_t step) = 0;

  /// What its table is judged by beside its rounds.
  [[nodiscard]] virtual schedule_means means() const = 0;
  /// Whether the parameters that a commit brings may differ from the masters, converted: they are a prediction, or come as
  /// encoded differences.
  [[nodiscard]] virtual bool commits_otherwise() const = 0;

  // What the engine derives from it.

  /// Throws `usage_error` where the table cannot be run, or the pace ends no part.
  void check(error_place const& where) const {
    const schedule_flaw flaw = flaw_of([this](std::size_t round) { return plan(round); }, period(), means());
    if (flaw != schedule_flaw::none)
      throw usage_error(where, text("the schedule cannot be run: ", words_of(flaw)),
                        text("docs/extending.md says what a table may hold"));
    bool splits = false;
    for (std::size_t round = 0; round < period().rounds(); ++round) splits = splits || plan(round).part == step_part::second;
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
    const round_plan here = plan(round);
    const schedule_period rounds = period();
    if (here == plan(rounds.stands_for(round))) return here;
    throw usage_error(where,
                      text("the schedule's plan of this round is not that of round ", rounds.stands_for(round),
                           ", though its period is ", rounds.period, " after ", rounds.warm_up, " rounds"),
                      text("Declare `static constexpr std::size_t period` and `warm_up_rounds` in the schedule"));
  }
  /// Whether some round leaves what it carries for the next one to carry again.
  [[nodiscard]] bool keeps() const {
    for (std::size_t round = 0; round < period().rounds(); ++round) {
      if (plan(round).keeps) return true;
    }
    return false;
  }
  /// Whether some round adds to the slice that the round before it reduced.
  [[nodiscard]] bool keeps_reduced() const {
    for (std::size_t round = 0; round < period().rounds(); ++round) {
      if (plan(round).gradients == carried::kept_and_fresh) return true;
    }
    return false;
  }
  /// Whether parts have as many micro-batches on every rank.
  [[nodiscard]] bool same_everywhere() const {
    for (int part = 0; part < parts(); ++part) {
      if (minimum(static_cast<step_part>(part)) != maximum(static_cast<step_part>(part))) return false;
    }
    return true;
  }
};

/// The one of type `Schedule`.
template <class Schedule, class Works>
class schedule_of final : public schedule_in_use<Works> {
 public:
  explicit schedule_of(Schedule schedule) : schedule_(std::move(schedule)) {}

  [[nodiscard]] round_plan plan(std::size_t round) const override { return schedule_.plan(round); }
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
  [[nodiscard]] std::array<double, 5> remember() const noexcept override {
    if constexpr (requires { schedule_.pace.remember(); }) {
      return schedule_.pace.remember();
    } else {
      return {};
    }
  }
  void remind([[maybe_unused]] std::array<double, 5> const& of) noexcept override {
    if constexpr (requires { schedule_.pace.remind(of); }) schedule_.pace.remind(of);
  }
  void describe(description& into) const override { describe_schedule(into, constructed_); }

  void add_wires(Works& works) override {
    std::apply([&works](auto&... each) { (each.declare(works), ...); }, ways_);
  }
  void encode_kept([[maybe_unused]] Works& works, [[maybe_unused]] round_plan const& plan) override {
    (void)with_way(ways_, plan, [&works](auto& each) {
      if constexpr (std::remove_cvref_t<decltype(each)>::keeps) {
        works.encode_kept(each.up);
      } else {
        throw usage_error(works.queue().place, text("the schedule keeps gradients that do not travel encoded"),
                          text("Give its member `estimate` an encoding, or let its plan keep nothing"));
      }
      return false;
    });
  }
  bool enqueue(Works& works, round_plan const& plan, std::uint64_t step) override {
    return with_way(ways_, plan, [&](auto& each) { return each.enqueue(works, commits(plan) ? step : 0, learner()); });
  }

  [[nodiscard]] schedule_means means() const override { return means_of<Schedule>(); }
  [[nodiscard]] bool commits_otherwise() const override {
    for (std::size_t round = 0; round < period_.rounds(); ++round) {
      round_plan const plan = schedule_.plan(round);
      if (!commits(plan)) continue;
      if (!shows_committed(plan) || with_way(ways_, plan, [](auto const& each) { return each.encodes_parameters; })) return true;
    }
    return false;
  }

 private:
  using storage_type = typename Works::storage_type;
  using backend_type = typename Works::backend_type;

  /// One of its wires, in both directions.
  template <class Wire>
  struct way {
    explicit way(Wire const& of) : wire(of), up(of.gradients), down(of.parameters) {}

    static constexpr bool keeps = !std::is_same_v<typename Wire::gradient_encoding, full>;
    static constexpr bool learns = std::is_same_v<typename Wire::gradient_encoding, own_corrected>;
    static constexpr bool encodes_parameters = encoding<typename Wire::parameter_encoding>;

    void declare(Works& works) {
      up.template declare<backend_type>(works.view(), works.keeps_reduced());
      down.declare(works.view());
    }
    template <class Learner>
    bool enqueue(Works& works, [[maybe_unused]] std::uint64_t step, Learner& learner) {
      if constexpr (encodes_parameters) {
        if (wire.exact_every != 0 && step != 0 && step % wire.exact_every == 0) {
          gatherer<full, storage_type> in_full;
          works.enqueue(up, in_full, learner);
          return false;
        }
      }
      works.enqueue(up, down, learner);
      return encodes_parameters;
    }

    Wire wire;
    reducer<typename Wire::gradient_encoding, storage_type> up;
    gatherer<typename Wire::parameter_encoding, storage_type> down;
  };
  template <class... Wires>
  static std::tuple<way<Wires>...> ways_over(std::tuple<Wires...> const& wires) {
    return std::apply([](auto const&... each) { return std::tuple<way<Wires>...>(each...); }, wires);
  }
  using ways = decltype(ways_over(wires_of(std::declval<Schedule const&>())));

  /// visit(the way by which rounds of this plan travel).
  template <class Ways, class Visitor>
  static bool with_way(Ways& ways, round_plan const& plan, Visitor&& visit) {
    return std::apply(
        [&](auto&... each) {
          bool result = false;
          std::size_t k = 0;
          (void)((k++ == wire_of<Schedule>(plan) && (result = visit(each), true)) || ...);
          return result;
        },
        ways);
  }
  /// The number of the way that learns from commits; 0, which learns nothing, where there is none.
  template <class... Ways>
  static consteval std::size_t learner_of(std::tuple<Ways...> const*) {
    std::size_t k = 0, found = 0;
    ((found = Ways::learns ? k : found, ++k), ...);
    return found;
  }
  [[nodiscard]] auto& learner() { return std::get<learner_of(static_cast<ways const*>(nullptr))>(ways_).up; }

  Schedule schedule_;
  Schedule constructed_ = schedule_;  // before its pace found anything
  schedule_period period_ = period_of(schedule_);
  ways ways_{ways_over(wires_of(schedule_))};
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
