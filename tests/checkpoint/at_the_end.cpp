// SPDX-License-Identifier: Apache-2.0
// The last checkpoint of a training: asked for before finish or behind it, it is there, or something tells that it is
// not.
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/calls.hpp"
#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"

namespace {
/// What goes to standard error otherwise.
struct notes : acco::checkpoints::system_calls {
  void note(std::string const& sentence) override {
    const std::lock_guard lock(mutex);
    all.push_back(sentence);
  }
  std::mutex mutex;
  std::vector<std::string> all;
};

template <class Schedule, class Body>
void train(Schedule schedule, Body&& body) {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer t{schedule, acco::adamw{}, acco::host_storage<float>{},
                      world,    300,           acco::options{.deadline = 60 * patience()}};
    t.initialize(std::vector<float>(300, 1.0F));
    const auto steps = [&](int count) {
      for (int k = 0; k < count; ++k) {
        (void)t.step([](auto, auto g) {
          for (float& each : g) each += 1;
          return 1;
        });
      }
    };
    body(t, world.rank(), steps);
  });
}
constexpr char const* too_late = "the optimizer ended before a round could make it, and without finish(), which would have";
}  // namespace

TEST_CASE_TEMPLATE("a save behind finish is made before it returns, and the training goes on as without it", Schedule,
                   acco::synchronous<>, acco::two_phase<>, acco::delayed<>) {
  const scratch folder;
  std::vector<std::uint64_t> digests[2];
  for (const bool saves : {false, true}) {
    train(Schedule{}, [&](auto& t, int rank, auto& steps) {
      for (int part = 0; part < 2; ++part) {
        steps(5);
        t.finish();
        const int position = 10 * part + rank;
        if (saves) {
          t.save(folder.run(), [position] { return position; });  // gone when it returns
          REQUIRE(t.saved() != nullptr);
          REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
          CHECK(t.saved()->step == t.steps());
          if (rank == 0) CHECK(t.saved()->digest == digests[0][static_cast<std::size_t>(part)]);
        }
        auto const digest = t.world_digest();
        if (rank == 0) digests[saves ? 1 : 0].push_back(digest);
      }
    });
  }
  CHECK(digests[0] == digests[1]);
  CHECK(acco::checkpoints_in(folder.run()).size() == 2);
  train(Schedule{}, [&](auto& t, int rank, auto&) {
    t.finish();
    CHECK(t.restore(folder.run()).template position<int>() == 10 + rank);
    t.finish();
  });
}

TEST_CASE_TEMPLATE("a save that no round has heard of when the optimizer ends is told on standard error, by each rank", Schedule,
                   acco::synchronous<>, acco::two_phase<>) {
  for (const bool heard : {false, true}) {
    CAPTURE(heard);
    const scratch folder;
    notes told;
    const in_their_place calls([&](int) -> acco::checkpoints::system_calls& { return told; });
    train(Schedule{.pace = acco::fixed_pace{1}}, [&](auto& t, int, auto& steps) {
      steps(4);
      t.save(folder.run());
      if (heard) steps(1);
    });
    CHECK_FALSE(acco::has_checkpoints(folder.run()));
    REQUIRE(told.all.size() == 2);
    for (auto const& each : told.all) {
      CHECK_MESSAGE(each.find("the last save into " + folder.run() + " failed: " + too_late) != std::string::npos, each);
    }
  }
}

TEST_CASE("a rank that saves alone behind finish takes part in what the others do, and is told") {
  const scratch folder;
  train(acco::two_phase{}, [&](auto& t, int rank, auto& steps) {
    steps(5);
    t.finish();
    if (rank == 0) {
      t.save(folder.run());  // until the other one finishes
      CHECK(std::string(t.saved()->problem).find("only 1 of 2 ranks had asked for it before finish()") != std::string::npos);
      CHECK(t.steps() == 10);
    } else {
      steps(5);
      t.finish();
    }
    t.save(folder.run());
    CHECK(t.saved()->complete());
    CHECK(t.saved()->step == 10);
  });
  CHECK(acco::checkpoints_in(folder.run()).size() == 1);
}

TEST_CASE("a rank that saves alone when the others have ended gets an error that names one of them") {
  const scratch folder;
  const auto alone = [&] {
    train(acco::synchronous{}, [&](auto& t, int rank, auto& steps) {
      steps(5);
      t.finish();
      if (rank == 0) t.save(folder.run());
    });
  };
  CHECK_THROWS_WITH_AS(alone(), doctest::Contains("rank 1"), acco::peer_error);
  CHECK_FALSE(acco::has_checkpoints(folder.run()));
}
