// SPDX-License-Identifier: Apache-2.0
#include "simulation/make.hpp"

#include <type_traits>
#include <utility>

#include <acco/acco.hpp>

namespace simulation {
namespace {

using training = acco::any_optimizer<double>;
using acco::auto_pace, acco::block_int4, acco::block_int8, acco::elastic_pace, acco::fixed_pace;

/// with(schedule) for the schedule that was drawn.
template <bool corrects, class With>
training with_schedule(training_setting const& t, With with) {
  const fixed_pace fixed{.first = t.first, .second = t.second};
  const elastic_pace elastic{.at_least = t.first, .at_most = t.at_most};
  const acco::coded<block_int8<>, block_int4<>> coarse{.exact_every = t.exact_every};
  const bool full = t.wires != wire_kind::coded;
  const auto in_two_rounds = [&](auto pace) -> training {
    switch (t.wires) {
      case wire_kind::full: return with(acco::two_phase{.pace = pace});
      case wire_kind::estimate_int8: return with(acco::two_phase{.estimate = block_int8{}, .pace = pace});
      case wire_kind::estimate_int4: return with(acco::two_phase{.estimate = block_int4{}, .pace = pace});
      case wire_kind::estimate_own: return with(acco::two_phase{.estimate = acco::own_slice{}, .pace = pace});
      case wire_kind::estimate_corrected:
        if constexpr (corrects) return with(acco::two_phase{.estimate = acco::own_corrected{}, .pace = pace});
        break;
      case wire_kind::coded: break;
    }
    return with(acco::two_phase{.estimate = block_int4{}, .commit = coarse, .pace = pace});
  };
  const auto paced = [&](auto pace) -> training {
    if (t.schedule == schedule_kind::delayed) {
      const auto late = [&](auto wire) -> training {
        if (t.late == lateness::extrapolated)
          return with(acco::delayed{.commit = wire, .pace = pace, .predictor = acco::extrapolation{.ahead = ahead}});
        if (t.late == lateness::compensated)
          return with(
              acco::delayed{.commit = wire, .pace = pace, .compensation = acco::delay_compensation{.strength = strength}});
        return with(acco::delayed{.commit = wire, .pace = pace});
      };
      return full ? late(acco::full{}) : late(coarse);
    }
    if (t.schedule == schedule_kind::weight_prediction) {
      if (full) return with(acco::weight_prediction{.pace = pace});
      return with(acco::weight_prediction{.commit = coarse, .pace = pace});
    }
    return in_two_rounds(pace);
  };
  if (t.waits()) {
    if (full) return with(acco::synchronous{.pace = fixed});
    return with(acco::synchronous{.commit = coarse, .pace = fixed});
  }
  if (t.found) return in_two_rounds(auto_pace{.micro_batches = t.step()});
  return t.elastic ? paced(elastic) : paced(fixed);
}

}  // namespace

acco::any_optimizer<double> make(training_setting const& t, acco::mock_backend const& world, std::pmr::memory_resource& memory,
                                 acco::learning_rate_function learning_rate, bool skips) {
  const auto with = [&](auto rule) {
    constexpr bool corrects = std::is_same_v<decltype(rule), acco::adamw>;
    return with_schedule<corrects>(t, [&](auto schedule) -> training {
      return acco::optimizer{schedule,
                             rule,
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
  };
  switch (t.rule) {
    case rule_kind::adamw: return with(adamw);
    case rule_kind::sgd: return with(sgd);
    case rule_kind::lion: break;
  }
  return with(lion);
}

}  // namespace simulation
