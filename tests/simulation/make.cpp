// SPDX-License-Identifier: Apache-2.0
#include "simulation/make.hpp"

#include <string>
#include <type_traits>
#include <utility>

#include <acco/collective/mock/backend.hpp>
#include <acco/make.hpp>
#include <acco/storage/host.hpp>

namespace simulation {
namespace {

using acco::any_pace, acco::coded_commit, acco::delayed, acco::named, acco::only, acco::together;

/// What is drawn; the last one is an engine of its own, of one rule.
using drawn_schedules =
    together<acco::without<acco::named_schedules, "two_phase+bfloat16">,
             only<acco::decorated_schedules, "extrapolation", "delay_compensation">,
             only<acco::feedback_schedules, "synchronous+feedback", "two_phase+feedback">,
             acco::type_list<named<"extrapolation+coded", delayed<any_pace, coded_commit, acco::extrapolation>>,
                             named<"delay_compensation+coded",
                                   delayed<any_pace, coded_commit, acco::no_prediction, acco::delay_compensation>>>>;
using with_corrections = together<drawn_schedules, only<acco::decorated_schedules, "two_phase+own_corrected">>;

std::string schedule_name(training_setting const& t) {
  char const* const suffixes[] = {"", "+int8", "+int4", "+coded", "+own", "+own_corrected"};  // by wire_kind
  char const* const base = t.schedule != schedule_kind::delayed ? name_of(t.schedule)
                           : t.late == lateness::extrapolated   ? "extrapolation"
                           : t.late == lateness::compensated    ? "delay_compensation"
                                                                : "delayed";
  return std::string(base) + (t.feeds_back ? "+feedback" : suffixes[static_cast<std::size_t>(t.wires)]);
}
any_pace pace_of(training_setting const& t) {
  if (t.found) return acco::auto_pace{.micro_batches = t.step()};
  if (t.elastic) return acco::elastic_pace{.at_least = t.first, .at_most = t.at_most};
  return acco::fixed_pace{.first = t.first, .second = t.second};
}

}  // namespace

acco::any_optimizer<double> make(training_setting const& t, acco::mock_backend const& world, std::pmr::memory_resource& memory,
                                 acco::learning_rate_function learning_rate, bool skips) {
  return acco::visit_at(acco::all_rules{}, t.rule, [&]<class Rule>(Rule const& rule) -> acco::any_optimizer<double> {
    constexpr bool corrects = std::is_same_v<Rule, acco::adamw>;
    using schedules = std::conditional_t<corrects, with_corrections, drawn_schedules>;
    return acco::with_schedule<schedules>(schedule_name(t), [&](auto schedule) -> acco::any_optimizer<double> {
      if constexpr (requires { schedule.commit.exact_every; }) schedule.commit.exact_every = t.exact_every;
      if constexpr (requires { schedule.predictor.ahead; }) schedule.predictor.ahead = ahead;
      if constexpr (requires { schedule.compensation.strength; }) schedule.compensation.strength = strength;
      return acco::optimizer{acco::at_pace(schedule, pace_of(t)),
                             tuned(rule),
                             acco::host_storage<double>{&memory},
                             world,
                             t.layout,
                             acco::options{.clip_norm = t.clip_norm,
                                           .learning_rate = std::move(learning_rate),
                                           .stable_addresses = t.stable_addresses,
                                           .in_place = t.in_place(),
                                           .on_non_finite = skips ? acco::non_finite::skip : acco::non_finite::raise,
                                           .compare_every = t.compares(),
                                           .digest_every = t.digests(),
                                           .bucket_elements = t.bucket_elements}};
    });
  });
}

}  // namespace simulation
