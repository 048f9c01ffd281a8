// SPDX-License-Identifier: Apache-2.0
// What is named while a program runs is what a program that names the types gets, in every bit.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/make.hpp>

#include "support/problem.hpp"

namespace {

using acco::any_pace, acco::auto_pace, acco::elastic_pace, acco::fixed_pace, acco::named_schedules, acco::only, acco::step_part;

// Lists.
static_assert(std::is_same_v<only<named_schedules, "two_phase", "synchronous">,
                             acco::type_list<acco::named<"synchronous", acco::synchronous<>>,
                                             acco::named<"two_phase", acco::two_phase<any_pace>>>>);
static_assert(acco::find_name(acco::without<acco::all_rules, "adamw">{}, "lion") == 1);
static_assert(acco::find_name(acco::all_rules{}, "two_phase") == acco::all_rules::count);
static_assert(acco::place_of<acco::two_phase<any_pace, acco::own_slice>>(named_schedules{}) ==
              acco::find_name(named_schedules{}, "two_phase+own"));

// A pace is the pace that it was made of.
template <class Pace>
constexpr bool same(Pace pace, any_pace any) {
  acco::pace_seconds seconds{.micro_batch = 1, .estimate = 1, .commit = 7};
  for (int step = 0; step < 8; ++step) {
    for (const step_part part : {step_part::first, step_part::second}) {
      if (pace.minimum(part) != any.minimum(part) || pace.maximum(part) != any.maximum(part)) return false;
    }
    if constexpr (acco::measuring_pace<Pace>) pace.measured(seconds);
    any.measured(seconds);
  }
  any_pace resumed(Pace{pace});
  resumed.load_state(any.save_state());
  return any.measures() == acco::measuring_pace<Pace> && resumed.minimum(step_part::second) == any.minimum(step_part::second);
}
static_assert(same(fixed_pace{.first = 3, .second = 2}, fixed_pace{.first = 3, .second = 2}));
static_assert(same(elastic_pace{.at_least = 2, .at_most = 5}, elastic_pace{.at_least = 2, .at_most = 5}));
static_assert(same(auto_pace{.micro_batches = 8}, auto_pace{.micro_batches = 8}));
static_assert(acco::two_phase<any_pace>{}.pace.minimum(step_part::first) == 3);  // as where nothing is said

constexpr std::size_t count = 500;
constexpr acco::adamw rule{.learning_rate = 0.01};
const acco::host_storage<float> storage;

/// The committed weights, what was sent, and the lines that the ranks compare.
template <class Make>
std::string trained(Make const& make) {
  std::string told;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::any_optimizer<float> training = make(world);
    training.initialize(problem::converted<float>(problem::initial(count)));
    std::uint64_t sent = 0;
    for (std::size_t m = 0; m < 12; ++m) {
      problem::add_sample<float, float>(problem::sample_id(world.rank(), m, 0), training.parameters(), training.gradients());
      if (auto const report = training.accumulated(1)) sent += report->bytes_sent;
    }
    training.finish();
    const std::uint64_t digest = training.state_digest();
    if (world.rank() == 0) told = std::to_string(digest) + " " + std::to_string(sent);
  });
  return told;
}

}  // namespace

TEST_CASE("a name makes its schedule, with fixed paces in every bit and byte") {
  const fixed_pace pace{.first = 2, .second = 1};
  const auto by_name = [&](char const* name) {
    return trained([&](auto const& world) {
      using asked = acco::together<only<named_schedules, "synchronous", "delayed+coded", "two_phase+int4">,
                                   only<acco::feedback_schedules, "two_phase+feedback">>;
      return acco::make<asked>(name, pace, rule, storage, world, acco::parameter_layout(count));
    });
  };
  const auto by_type = [&](auto schedule) {
    return trained([&](auto const& world) { return acco::optimizer{schedule, rule, storage, world, count}; });
  };
  CHECK(by_name("synchronous") == by_type(acco::synchronous{.pace = pace}));
  CHECK(by_name("delayed+coded") == by_type(acco::delayed{.commit = acco::coded_commit{}, .pace = pace}));
  CHECK(by_name("two_phase+int4") == by_type(acco::two_phase{.estimate = acco::block_int4{}, .pace = pace}));
  CHECK(by_name("two_phase+feedback") ==
        by_type(acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::feedback_commit{}, .pace = pace}));
}

TEST_CASE("an unknown name, and a pace that a schedule cannot have, are refused") {
  const auto make = [](char const* name, any_pace const& pace) {
    return acco::make<only<named_schedules, "synchronous", "delayed", "two_phase">>(
        name, pace, rule, storage, acco::solo_backend{}, acco::parameter_layout(1));
  };
  CHECK_THROWS_WITH_AS(make("two_faced", {}),
                       "acco: no schedule is called 'two_faced'. The schedules are synchronous, delayed, two_phase.",
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(acco::with_rule("adam", [](auto const&) {}),
                       doctest::Contains("no rule is called 'adam'. The rules are adamw, sgd, lion"), acco::usage_error);
  CHECK_THROWS_AS(make("synchronous", elastic_pace{}), acco::usage_error);
  CHECK_THROWS_WITH_AS(make("delayed", auto_pace{}), doctest::Contains("the pace splits steps"), acco::usage_error);
  CHECK_THROWS_WITH_AS(make("two_phase", auto_pace{.micro_batches = 1}), doctest::Contains("micro-batches a round"),
                       acco::usage_error);
}

TEST_CASE("ranks whose paces are of different kinds are found, though they begin alike") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    const any_pace mine =
        world.rank() == 0 ? any_pace(fixed_pace{.first = 4, .second = 4}) : any_pace(auto_pace{.micro_batches = 8});
    auto training = acco::make<only<named_schedules, "two_phase+int4">>("two_phase+int4", mine, rule, storage, world,
                                                                        acco::parameter_layout(count));
    CHECK_THROWS_AS(training.initialize(std::vector<float>(count, 1.0F)), acco::mismatch_error);
  });
}
