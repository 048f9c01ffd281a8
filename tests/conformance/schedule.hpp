// SPDX-License-Identifier: Apache-2.0
// What every schedule must satisfy, compared with the unsharded double-precision reference. tests/round/exact.cpp
// instantiates it for all schedules, conformance/cases.hpp for other worlds.
#pragma once

#include <algorithm>
#include <tuple>
#include <type_traits>

#include <doctest/doctest.h>

#include "support/thorough.hpp"
#include "support/train.hpp"
#include "support/worlds.hpp"

namespace conformance {

/// Double precision, in the memory of the world.
template <class World>
using exact = typename worlds::storage_of<World>::template type<double>;

/// Groups, an interior frozen tensor, sizes that nothing divides; every one of up to seven ranks owns a part.
inline acco::parameter_layout mixed_layout(bool frozen = true) {
  acco::parameter_layout layout;
  const auto no_decay = layout.add_group({.weight_decay = 0.0});
  const auto fast = layout.add_group({.learning_rate_scale = 2.5, .weight_decay = 0.3});
  const auto still = layout.add_group({.frozen = true});
  layout.add("first", {31, 7})
      .add("bias", {61}, no_decay)
      .add("stem", {53}, frozen ? still : 0)
      .add("fast", {1}, fast)
      .add("last", {241});
  return layout;
}

/// `train` is run here, so that an exception, too, is reported with the setting.
inline void agree(acco::function_view<library::outcome()> train, reference::outcome const& expected, char const* world,
                  std::size_t count, reference::setting const& s, double tolerance) {
  CAPTURE(world);
  CAPTURE(s.ranks);
  CAPTURE(count);
  CAPTURE(s.first);
  CAPTURE(s.second);
  const library::outcome got = train();
  CHECK(library::difference(got.parameters, expected.parameters) <= tolerance);
  CHECK(got.samples == expected.samples);
  CHECK(got.steps == expected.steps);
  CHECK(got.ranks_agree);
}
inline void same_bits(library::outcome const& a, library::outcome const& b) {
  CHECK(a.parameters == b.parameters);
  CHECK(a.digests == b.digests);
}
inline void same_norms(library::outcome const& got, reference::outcome const& expected, double tolerance) {
  REQUIRE(got.reports.size() > 4);
  REQUIRE(expected.norms.size() >= got.reports.size());
  bool clipped = false;
  for (std::size_t i = 0; i < got.reports.size(); ++i) {
    CHECK(got.reports[i].gradient_norm == doctest::Approx(expected.norms[i]).epsilon(tolerance));
    CHECK(got.reports[i].clip_scale == doctest::Approx(expected.clips[i]).epsilon(tolerance));
    clipped = clipped || got.reports[i].clip_scale < 1;
  }
  CHECK(clipped);
}

/// Compares one run with the reference; `make` makes the schedule from (first, second).
template <class Storage, class World = worlds::threads, class Make, class Rule>
void compare(reference::algorithm kind, Make make, Rule const& rule, acco::parameter_layout const& layout, reference::setting s,
             double tolerance = 1e-12, acco::options const& options = {}) {
  s.bucket_elements = options.bucket_elements;
  const auto train = [&] {
    return library::train<Storage>(World{}, make(static_cast<unsigned>(s.first), static_cast<unsigned>(s.second)), rule, layout,
                                   s, options);
  };
  agree(train, reference::train(kind, rule, layout, s), World::name, layout.size(), s, tolerance);
}

inline reference::setting setting(int ranks, std::size_t micro_batches, std::size_t first = 1, std::size_t second = 1) {
  reference::setting s{.ranks = ranks, .first = first, .second = second, .micro_batches = {}};
  s.micro_batches.assign(static_cast<std::size_t>(ranks), micro_batches);
  return s;
}

/// What is particular to a schedule whose rounds are those of another: sizes, uneven ranks, groups, clipping, buckets;
/// `everywhere`: over another rule, in another type, and in the mock. `base` has what the reference needs to know of
/// it.
template <bool everywhere = true, class Make>
void short_suite(reference::algorithm kind, Make make, reference::setting const& base = {}, double tolerance = 1e-12) {
  using storage = acco::host_storage<double>;
  const acco::adamw adamw{.learning_rate = 0.02, .weight_decay = 0.1};
  const auto with = [&](reference::setting const& given) {
    reference::setting s = base;
    s.ranks = given.ranks;
    s.first = given.first;
    s.second = given.second;
    s.micro_batches = given.micro_batches;
    return s;
  };
  for (const int ranks : {1, 2, 3, 7}) {
    for (const std::size_t count : {1U, 65U, 601U})
      compare<storage>(kind, make, adamw, acco::parameter_layout(count), with(setting(ranks, 9)), tolerance);
  }
  auto s = with(setting(3, 9, 2, 2));
  s.micro_batches = {9, 0, 4};
  compare<storage>(kind, make, adamw, mixed_layout(), s, tolerance);
  s.micro_batches = {0, 0, 0};
  compare<storage>(kind, make, adamw, mixed_layout(), s, tolerance);
  s = with(setting(3, 10));
  s.clip_norm = 0.7;
  s.learning_rate = acco::warmup_cosine{.warmup = 9, .total = 30, .final_factor = 0.2};
  compare<storage>(kind, make, adamw, mixed_layout(), s, tolerance);
  compare<storage>(kind, make, adamw, mixed_layout(), s, tolerance, {.bucket_elements = 200});
  compare<storage>(kind, make, adamw, mixed_layout(), s, tolerance, {.norms = acco::norm_detail::tensors});
  const auto expected = reference::train(kind, adamw, mixed_layout(), s);
  same_norms(library::train<storage>(worlds::threads{}, make(1, 1), adamw, mixed_layout(), s), expected, tolerance);
  if constexpr (everywhere) {
    const acco::sgd momentum{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.1};
    compare<storage>(kind, make, momentum, acco::parameter_layout(213), with(setting(3, 17, 3, 1)), tolerance);
    compare<storage, worlds::mock_random>(kind, make, adamw, mixed_layout(), s, tolerance, {.bucket_elements = 200});
  }
  // what a schedule decorates is computed in masters, whatever parameters are
  if constexpr (everywhere && everything) {
    compare<acco::host_storage<acco::bfloat16>>(kind, make, adamw, mixed_layout(), with(setting(2, 10)), 3e-2);
  }
}

/// Runs everything for one schedule; `World` has at most World::most_ranks. What travels in fewer bits needs a
/// tolerance. `mixes`: in every world of one process and in every mix of types, which meet the schedule in its engine
/// only.
template <class World = worlds::threads, bool mixes = true, class Make>
void schedule_suite(reference::algorithm kind, Make make, double tolerance = 1e-12) {
  const int most = World::most_ranks;
  // once is enough
  constexpr bool every_type = std::is_same_v<World, worlds::threads> && (mixes || everything);
  // not of a world
  constexpr bool every_rule = std::is_same_v<World, worlds::threads> || !worlds::on_host<World> || everything;
  const auto check = [&](auto const& rule, acco::parameter_layout const& layout, reference::setting const& s) {
    compare<exact<World>, World>(kind, make, rule, layout, s, tolerance);
  };
  const acco::adamw adamw{.learning_rate = 0.02, .weight_decay = 0.1};
  const acco::sgd momentum{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 0.1};
  auto const& usual = std::get<every_rule ? 1 : 0>(std::tie(adamw, momentum));

  SUBCASE("every number of ranks and parameters: one, fewer than ranks, not divisible, divisible") {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const std::size_t count : {1U, 2U, 65U, 448U, 601U}) {
        if (!thorough() && (ranks % 2 == 0 || count % 2 == 0)) continue;
        if (ranks <= most) check(adamw, acco::parameter_layout(count), setting(ranks, 9));
      }
    }
  }
  SUBCASE("in buckets: of one share of 64 elements and more, whole and cut") {
    for (const std::size_t bucket : {1U, 300U, 512U}) {
      auto s = setting(std::min(3, most), 9, 2, 1);
      s.clip_norm = bucket == 300 ? 0.7 : 0;
      compare<exact<World>, World>(kind, make, adamw, acco::parameter_layout(1001), s, tolerance, {.bucket_elements = bucket});
      compare<exact<World>, World>(kind, make, adamw, mixed_layout(), s, tolerance, {.bucket_elements = bucket});
    }
  }
  SUBCASE("every rule and kind of weight decay") {
    const acco::parameter_layout layout(311);
    check(adamw, layout, setting(3, 8));
    if constexpr (every_rule) {
      check(momentum, layout, setting(3, 8));
      check(acco::sgd{.learning_rate = 0.05, .momentum = 0.8, .nesterov = true}, layout, setting(3, 8));
      check(acco::sgd{.learning_rate = 0.05, .momentum = 0.5, .weight_decay = 0.2, .weight_decay_kind = acco::decay::classic},
            layout, setting(2, 8));
    }
    if constexpr (every_type) check(acco::lion{.learning_rate = 0.01, .weight_decay = 0.1}, layout, setting(3, 8));
  }
  SUBCASE("several micro-batches a round, and uneven parts") {
    check(adamw, acco::parameter_layout(213), setting(2, 12, 3, 3));
    check(adamw, acco::parameter_layout(213), setting(3, 17, 3, 1));
    check(adamw, acco::parameter_layout(213), setting(2, 16, 1, 4));
  }
  SUBCASE("ranks with different numbers of micro-batches, also none") {
    auto s = setting(3, 9, 2, 2);
    s.micro_batches = {9, 0, 4};
    check(adamw, acco::parameter_layout(310), s);
    s.micro_batches = {1, 7, 12};
    check(usual, acco::parameter_layout(310), s);
    s.micro_batches = {0, 0, 0};
    check(usual, acco::parameter_layout(310), s);
  }
  SUBCASE("groups with their own weight decay and learning rate, frozen tensors, clipping, a learning rate over samples") {
    auto s = setting(3, 10);
    s.clip_norm = 0.7;
    s.learning_rate = acco::warmup_cosine{.warmup = 9, .total = 30, .final_factor = 0.2};
    check(adamw, mixed_layout(), s);
    check(adamw, mixed_layout(false), s);
    if constexpr (every_rule) check(momentum, mixed_layout(), s);
  }
  SUBCASE("reported norm and clip scale") {
    auto s = setting(3, 10);
    s.clip_norm = 0.6;
    const auto expected = reference::train(kind, adamw, mixed_layout(), s);
    const auto got = library::train<exact<World>>(World{}, make(1, 1), adamw, mixed_layout(), s);
    same_norms(got, expected, tolerance);
  }
  if constexpr (every_type) SUBCASE("every world of one process") {
      const auto s = setting(3, 9, 2, 1);
      compare<exact<worlds::mock_at_once>, worlds::mock_at_once>(kind, make, adamw, mixed_layout(), s, tolerance);
      compare<exact<worlds::mock_late>, worlds::mock_late>(kind, make, adamw, mixed_layout(), s, tolerance);
      compare<exact<worlds::mock_random>, worlds::mock_random>(kind, make, adamw, mixed_layout(), s, tolerance);
      compare<exact<worlds::plain>, worlds::plain>(kind, make, adamw, mixed_layout(), s, tolerance);
      const acco::options buckets{.bucket_elements = 200};
      compare<exact<worlds::mock_late>, worlds::mock_late>(kind, make, adamw, mixed_layout(), s, tolerance, buckets);
      compare<exact<worlds::mock_random>, worlds::mock_random>(kind, make, adamw, mixed_layout(), s, tolerance, buckets);
      compare<exact<worlds::plain>, worlds::plain>(kind, make, adamw, mixed_layout(), s, tolerance, buckets);
      if constexpr (everything) {  // fp32 stands for it, which has the bits of threads below
        compare<exact<worlds::decorated>, worlds::decorated>(kind, make, adamw, mixed_layout(), s, tolerance);
        compare<exact<worlds::decorated>, worlds::decorated>(kind, make, adamw, mixed_layout(), s, tolerance, buckets);
      }
    }
  SUBCASE("other types, within their rounding") {
    using acco::bfloat16;
    const auto s = setting(2, 10);
    const acco::parameter_layout layout = mixed_layout();
    compare<typename worlds::storage_of<World>::template type<float>, World>(kind, make, adamw, layout, s,
                                                                             std::max(2e-5, tolerance));
    compare<typename worlds::storage_of<World>::template type<bfloat16>, World>(kind, make, adamw, layout, s, 3e-2);
  }
  if constexpr (every_type) SUBCASE("every mix of types, within their rounding") {
      using acco::bfloat16;
      const auto s = setting(2, 10);
      const acco::parameter_layout layout = mixed_layout();
      // wider masters, wider gradients, narrower gradients: each once
      compare<acco::host_storage<float, float, double>>(kind, make, adamw, layout, s, std::max(2e-5, tolerance));
      compare<acco::host_storage<bfloat16, float>>(kind, make, adamw, layout, s, 3e-2);
      compare<acco::host_storage<float, bfloat16>>(kind, make, adamw, layout, s, 3e-2);
      if constexpr (everything) {
        compare<acco::host_storage<float, double>>(kind, make, adamw, layout, s, std::max(2e-5, tolerance));
        compare<acco::host_storage<double, float>>(kind, make, adamw, layout, s, std::max(2e-5, tolerance));
        compare<acco::host_storage<bfloat16, double, double>>(kind, make, adamw, layout, s, 3e-2);
      }
    }
  SUBCASE("stable addresses change nothing but the addresses") {
    const auto s = setting(3, 9);
    const auto moving = library::train<exact<World>>(World{}, make(1, 1), adamw, mixed_layout(false), s);
    const auto fixed =
        library::train<exact<World>>(World{}, make(1, 1), adamw, mixed_layout(false), s, {.stable_addresses = true});
    same_bits(moving, fixed);
  }
  // a GPU contracts other multiplications and additions
  constexpr bool rounds_alike = !requires { World::rounds_otherwise; };
  if constexpr (rounds_alike) SUBCASE("bit-identical in this world, threads and mock") {
      for (const double clip : {0.0, 0.5}) {  // rounds that need the norm before the update, and rounds that do not
        auto s = setting(4, 9, 2, 1);
        s.clip_norm = clip;
        const auto run = [&](auto world, acco::options const& options = {}) {
          return library::train<acco::host_storage<float>>(world, make(2, 1), adamw, acco::parameter_layout(745), s, options);
        };
        const auto here = run(World{});
        const auto threads = run(worlds::threads{});
        same_bits(here, threads);
        if constexpr (every_type) {
          same_bits(threads, run(worlds::mock_random{}));
          same_bits(threads, run(worlds::decorated{}));
          const acco::options buckets{.bucket_elements = 200};
          same_bits(run(World{}, buckets), run(worlds::decorated{}, buckets));
        }
      }
    }
}

/// The same for every schedule of acco::all_schedules.
template <class World = worlds::threads>
void every_schedule_suite() {
  acco::for_each(acco::all_schedules{}, [](auto schedule) {
    SUBCASE(schedule.name) {
      schedule_suite<World>(reference::algorithm_called(schedule.name), [schedule](unsigned first, unsigned second) {
        auto made = schedule;
        made.pace = acco::fixed_pace{.first = first, .second = second};
        return made;
      });
    }
  });
}

}  // namespace conformance
