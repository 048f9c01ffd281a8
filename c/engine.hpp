// SPDX-License-Identifier: Apache-2.0
// From numbers to types: the schedules, paces and encodings of the C interface over one rule.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <acco/encoding/bfloat16_wire.hpp>
#include <acco/encoding/block_integer.hpp>
#include <acco/encoding/encoding.hpp>
#include <acco/error.hpp>
#include <acco/optimizer.hpp>
#include <acco/schedule/auto_pace.hpp>
#include <acco/schedule/delayed.hpp>
#include <acco/schedule/pace.hpp>
#include <acco/schedule/synchronous.hpp>
#include <acco/schedule/two_phase.hpp>
#include <acco/schedule/weight_prediction.hpp>
#include <acco/storage/host.hpp>

#include "backend.hpp"
#include "library.hpp"

namespace acco_c {

/// fixed_pace or elastic_pace: one type, so that no schedule is compiled twice.
struct fixed_or_elastic {
  acco::fixed_pace fixed;
  unsigned at_most = 0;  // 0: fixed

  static constexpr char const* name = "fixed or elastic";
  [[nodiscard]] constexpr unsigned minimum(acco::step_part part) const noexcept { return fixed.minimum(part); }
  [[nodiscard]] constexpr unsigned maximum(acco::step_part part) const noexcept { return at_most != 0 ? at_most : minimum(part); }
};

/// A number that has a name and no type yet.
[[noreturn]] inline void unknown(char const* what, int value) {
  throw acco::usage_error({}, acco::text(what, " is ", value), acco::text("This library has no engine for it"));
}

/// The optimizer of a schedule whose numbers name what exists.
template <class Rule>
acco::any_optimizer<float> make(Rule const& rule, acco_schedule const& s, std::shared_ptr<carrier> const& over,
                                acco::parameter_layout const& layout, acco::options const& options) {
  using training = acco::any_optimizer<float>;
  const auto with = [&](auto const& schedule) -> training {
    return acco::optimizer{schedule, rule, acco::host_storage<float>{}, any_backend(over), layout, options};
  };
  const acco::fixed_pace fixed{.first = s.first, .second = s.second};
  const bool elastic = s.pace == ACCO_ELASTIC_PACE;
  const fixed_or_elastic pace{elastic ? acco::fixed_pace{s.first, s.first} : fixed, elastic ? s.at_most : 0};
  const acco::auto_pace found{.micro_batches = s.first + (s.second != 0 ? s.second : s.first)};
  const auto commits = [&](auto const& commit) -> training {
    using wire = std::remove_cvref_t<decltype(commit)>;
    const auto estimates = [&](auto const& estimate) -> training {
      using coarse = std::remove_cvref_t<decltype(estimate)>;
      if (s.pace == ACCO_AUTO_PACE) return with(acco::two_phase<acco::auto_pace, coarse, wire>{estimate, commit, found});
      return with(acco::two_phase<fixed_or_elastic, coarse, wire>{estimate, commit, pace});
    };
    switch (s.kind) {
      case ACCO_SYNCHRONOUS: return with(acco::synchronous<wire>{commit, fixed});
      case ACCO_DELAYED: return with(acco::delayed<fixed_or_elastic, wire>{commit, pace});
      case ACCO_WEIGHT_PREDICTION: return with(acco::weight_prediction<fixed_or_elastic, wire>{commit, pace});
      case ACCO_TWO_PHASE: break;
      default: unknown("acco_schedule.kind", s.kind);
    }
    switch (s.estimate) {
      case ACCO_BFLOAT16: return estimates(acco::bfloat16_wire{});
      case ACCO_INT8: return estimates(acco::block_int8<>{});
      case ACCO_INT4: return estimates(acco::block_int4<>{});
      case ACCO_FULL: return estimates(acco::full{});
      default: unknown("acco_schedule.estimate", s.estimate);
    }
  };
  const auto both = [&](auto const& encoding) {
    using wire = std::remove_cvref_t<decltype(encoding)>;
    return acco::coded<wire, wire>{encoding, encoding, s.commit_exact_every};
  };
  switch (s.commit) {
    case ACCO_BFLOAT16: return commits(both(acco::bfloat16_wire{}));
    case ACCO_INT8: return commits(both(acco::block_int8<>{}));
    case ACCO_INT8_INT4: return commits(acco::coded<acco::block_int8<>, acco::block_int4<>>{{}, {}, s.commit_exact_every});
    case ACCO_FULL: return commits(acco::full{});
    default: unknown("acco_schedule.commit", s.commit);
  }
}

}  // namespace acco_c
