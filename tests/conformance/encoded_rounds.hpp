// SPDX-License-Identifier: Apache-2.0
// Rounds that travel in few bits, in any world: compared with threads over host memory.
#pragma once

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "support/thorough.hpp"
#include "support/train.hpp"
#include "support/worlds.hpp"

namespace conformance {

/// `alike`: to the last bit; otherwise up to a code that falls to the other side.
inline void agree(library::outcome const& here, library::outcome const& expected, bool alike) {
  CHECK(here.ranks_agree);
  CHECK(here.steps == expected.steps);
  CHECK(here.samples == expected.samples);
  REQUIRE(here.reports.size() == expected.reports.size());
  for (std::size_t i = 0; i < here.reports.size(); ++i) CHECK(here.reports[i].bytes_sent == expected.reports[i].bytes_sent);
  if (alike) {
    CHECK(here.digests == expected.digests);
    CHECK(here.parameters == expected.parameters);
  } else {
    CHECK(library::difference(here.parameters, expected.parameters) < 0.02);
  }
}

template <class World, class Schedule>
void encoded_round(Schedule const& schedule, acco::parameter_layout const& layout, double clip) {
  constexpr bool rounds_alike = !requires { World::rounds_otherwise; };
  using here_storage = typename worlds::storage_of<World>::template type<float>;
  for (const int ranks : {1, 2, 3}) {
    if (!thorough() && ranks != 3) continue;
    CAPTURE(ranks);
    reference::setting s{.ranks = ranks, .first = 3, .second = 1, .micro_batches = {}};
    s.micro_batches.assign(static_cast<std::size_t>(ranks), 14);
    s.clip_norm = clip;
    const acco::adamw rule{.learning_rate = 0.01};
    // whose two numbers travel over host memory only
    const acco::options same{.check_habits = acco::habit_checks::off};
    const auto here = library::train<here_storage>(World{}, schedule, rule, layout, s, same);
    const auto expected = library::train<acco::host_storage<float>>(worlds::threads{}, schedule, rule, layout, s, same);
    agree(here, expected, rounds_alike);
  }
}

template <class World>
void encoded_rounds() {
  const acco::fixed_pace pace{.first = 3, .second = 1};
  const acco::coded<acco::block_int8<>, acco::block_int4<>> few;
  acco::parameter_layout gaps;
  const auto still = gaps.add_group({.frozen = true});
  gaps.add("first", {700}).add("stem", {33}, still).add("last", {40, 31});
  for (const double clip : {0.0, 0.5}) {
    encoded_round<World>(acco::two_phase{.estimate = acco::block_int4{}, .pace = pace}, acco::parameter_layout(3011), clip);
    encoded_round<World>(acco::two_phase{.estimate = acco::block_int4{}, .commit = few, .pace = pace},
                         acco::parameter_layout(3011), clip);
    encoded_round<World>(acco::two_phase{.estimate = acco::block_int8<128>{}, .commit = acco::bfloat16_wire{}, .pace = pace},
                         gaps, clip);
    encoded_round<World>(acco::synchronous{.commit = few, .pace = pace}, acco::parameter_layout(5000), clip);
    encoded_round<World>(acco::delayed{.commit = few, .pace = pace}, gaps, clip);
    auto often_exact = few;
    often_exact.exact_every = 2;
    encoded_round<World>(acco::two_phase{.estimate = acco::block_int4{}, .commit = often_exact, .pace = pace}, gaps, clip);
  }
}

}  // namespace conformance
