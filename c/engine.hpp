// SPDX-License-Identifier: Apache-2.0
// From numbers to types: the schedules, paces and encodings of the C interface over one rule.
#pragma once

#include <memory>
#include <type_traits>

#include <acco/error.hpp>
#include <acco/make.hpp>
#include <acco/storage/host.hpp>

#include "backend.hpp"
#include "library.hpp"
#include "types.hpp"

namespace acco_c {

inline acco::any_pace pace_of(acco_schedule const& s) {
  if (s.pace == ACCO_ELASTIC_PACE) return acco::elastic_pace{.at_least = s.first, .at_most = s.at_most};
  if (s.pace == ACCO_AUTO_PACE) return acco::auto_pace{.micro_batches = s.first + (s.second != 0 ? s.second : s.first)};
  return acco::fixed_pace{.first = s.first, .second = s.second};
}

/// A number that has a name and no type yet.
[[noreturn]] inline void unknown(char const* what, int value) {
  throw acco::usage_error({}, acco::text(what, " is ", value), acco::text("This library has no engine for it"));
}

/// How commits travel: an encoding alone stands for both directions.
template <class Wire>
auto commit_of(Wire const& wire, unsigned exact_every) {
  if constexpr (acco::encoding<Wire>) {
    return acco::coded<Wire, Wire>{wire, wire, exact_every};
  } else if constexpr (requires { wire.exact_every; }) {
    return Wire{.exact_every = exact_every};
  } else {
    return wire;
  }
}

template <class Rule>
acco::any_optimizer<float> make(acco_rule const& rule, acco_schedule const& s, std::shared_ptr<carrier> const& over,
                                acco::parameter_layout const& layout, acco::options const& options) {
  using training = acco::any_optimizer<float>;
  using acco::any_pace;
  const auto with = [&](auto const& schedule) -> training {
    return acco::optimizer{acco::at_pace(schedule, pace_of(s)),
                           rule_of<Rule>(rule),
                           acco::host_storage<float>{},
                           any_backend(over),
                           layout,
                           options};
  };
  const auto committing = [&](auto const& commit) -> training {
    using wire = std::remove_cvref_t<decltype(commit)>;
    switch (s.kind) {
      case ACCO_SYNCHRONOUS: return with(acco::synchronous<wire>{commit});
      case ACCO_DELAYED: return with(acco::delayed<any_pace, wire>{commit});
      case ACCO_WEIGHT_PREDICTION: return with(acco::weight_prediction<any_pace, wire>{commit});
      case ACCO_TWO_PHASE: break;
      default: unknown("acco_schedule.kind", s.kind);
    }
    return acco::visit_at(wires{}, static_cast<std::size_t>(s.estimate), [&](auto const& estimate) -> training {
      using coarse = std::remove_cvref_t<decltype(estimate)>;
      if constexpr (acco::full_or_encoding<coarse>) return with(acco::two_phase<any_pace, coarse, wire>{estimate, commit});
      unknown("acco_schedule.estimate", s.estimate);
    });
  };
  return acco::visit_at(wires{}, static_cast<std::size_t>(s.commit), [&](auto const& commit) -> training {
    if constexpr (!std::is_same_v<decltype(commit), acco::block_int4<> const&>) {
      return committing(commit_of(commit, s.commit_exact_every));
    }
    unknown("acco_schedule.commit", s.commit);
  });
}

}  // namespace acco_c
