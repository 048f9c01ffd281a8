// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string_view>
#include <thread>

#include <doctest/doctest.h>

#include <acco/schedule/auto_pace.hpp>

#include "support/worlds.hpp"

namespace {
constexpr unsigned second(double micro_batch, double estimate, double commit, unsigned total = 8) {
  return acco::auto_pace::best_second(total, {micro_batch, estimate, commit});
}
// c = 1: eight micro-batches compute for 8
static_assert(second(1, 0.9, 6) == 1);   // 7 + 1: all is hidden
static_assert(second(1, 2, 6) == 2);     // 6 + 2
static_assert(second(1, 4, 4) == 4);     // exact ACCO on a link that just suffices
static_assert(second(1, 0.1, 20) == 1);  // nothing helps: the smallest of equal ones
static_assert(second(1, 0.1, 0.1) == 1);
static_assert(second(1, 6, 1) == 6);
static_assert(second(1, 6, 1, 2) == 1);
}  // namespace

TEST_CASE_TEMPLATE("all ranks find the split that hides most, keep it, and report it", World, worlds::threads,
                   worlds::decorated) {
  std::vector<unsigned> firsts(3), seconds(3);
  std::vector<std::size_t> changes(3);
  World::run(3, [&](auto world) {
    // an estimate of few bytes and a commit of many, on a link on which the commit takes several micro-batches
    const auto slow = acco::rate_limited(world, {.bytes_per_second = 40000.0 * 4 * 2 * 2 / 3 / 0.020});
    acco::optimizer training{acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::auto_pace{.micro_batches = 8}},
                             acco::sgd{},
                             acco::host_storage<float>{},
                             slow,
                             40000,
                             acco::options{.check_habits = acco::habit_checks::off}};
    training.initialize(std::vector<float>(40000, 1.0F));
    const auto me = static_cast<std::size_t>(world.rank());
    std::uint64_t last_step = 0;
    double before = 0;
    for (int m = 0; m < 8 * 16; ++m) {
      std::this_thread::sleep_for(std::chrono::microseconds(3000 + 500 * world.rank()));
      const auto report = training.accumulated(1);
      if (!report) continue;
      if (firsts[me] != 0 && report->first != firsts[me]) ++changes[me];
      firsts[me] = report->first;
      seconds[me] = report->second;
      if (report->step != last_step) {
        CHECK(report->samples - before == 3 * 8);  // a step never has more or fewer
        before = report->samples;
        last_step = report->step;
      }
    }
    training.finish();
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(firsts[rank] + seconds[rank] == 8);
    CHECK(firsts[rank] == firsts[0]);
    CHECK(firsts[rank] > 4);  // most of the computation goes where the commit is
    CHECK(changes[rank] == 1);
  }
}

namespace {
/// Rounds of a chosen length, by what they are for.
struct takes {
  double estimate, commit;
  template <class Backend>
  void before(acco::host_queue&, Backend const&, acco::collective_call) const {}
  template <class Backend>
  void after(acco::host_queue& queue, Backend const&, acco::collective_call call) const {
    if (call.operation != acco::collective::all_gather) return;
    queue.enqueue([&queue, of = *this] {
      const double seconds = std::string_view(queue.place.phase) == "estimate" ? of.estimate : of.commit;
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    });
  }
};
/// Tells what it was told.
struct listening_pace : acco::auto_pace {
  acco::pace_seconds* told = nullptr;
  void measured(acco::pace_seconds const& now) {
    *told = now;
    acco::auto_pace::measured(now);
  }
};
}  // namespace

TEST_CASE("the pace is told how long micro-batches and rounds take, and splits a step where that is best") {
  struct load {
    double estimate, commit;
    unsigned least, most;  // of the second part; one beside the best is nearly as good
  };
  constexpr double micro_batch = 0.010;
  for (const load each : {load{0.040, 0.040, 3, 5}, load{0.020, 0.060, 2, 3}, load{0.002, 0.070, 1, 1}}) {
    CAPTURE(each.estimate);
    unsigned found = 0;
    acco::pace_seconds told;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const acco::decorated_backend slow(world, takes{each.estimate, each.commit});
      listening_pace pace;
      pace.micro_batches = 8;
      acco::pace_seconds heard;
      pace.told = &heard;
      acco::optimizer training{acco::two_phase{.pace = pace},
                               acco::sgd{},
                               acco::host_storage<float>{},
                               slow,
                               200,
                               acco::options{.check_habits = acco::habit_checks::off}};
      training.initialize(std::vector<float>(200, 1.0F));
      unsigned second = 0;
      for (int m = 0; m < 8 * 9; ++m) {
        std::this_thread::sleep_for(std::chrono::duration<double>(micro_batch));
        if (const auto report = training.accumulated(1)) second = report->second;
      }
      training.finish();
      if (world.rank() == 0) {
        found = second;
        told = heard;
      }
    });
    CHECK(told.micro_batch >= micro_batch);
    CHECK(told.micro_batch < 5 * micro_batch);  // a machine may be busy
    CHECK(told.estimate >= each.estimate);
    CHECK(told.commit >= each.commit);
    CHECK(found >= each.least);
    CHECK(found <= each.most);
  }
}

TEST_CASE("a single micro-batch cannot be split") {
  CHECK_THROWS_AS((acco::optimizer{acco::two_phase{.pace = acco::auto_pace{.micro_batches = 1}}, acco::sgd{},
                                   acco::host_storage<float>{}, acco::solo_backend{}, 10}),
                  acco::usage_error);
}
