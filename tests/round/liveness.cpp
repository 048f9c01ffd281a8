// SPDX-License-Identifier: Apache-2.0
// Who leaves, how, and what the others hear: at once, with the true cause, wherever it happens. The deadline is long,
// and
// whoever waits for it says so.
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/patience.hpp"

namespace {

constexpr std::size_t count = 500;
const double deadline = 60 * patience();

/// What each of the ranks threw, without run(), which would tell of exceptions itself.
template <class Body>
std::vector<std::string> outcomes(int ranks, Body body) {
  const auto handles = acco::threads_backend::world(ranks);
  std::vector<std::string> what(handles.size());
  {
    std::vector<std::jthread> threads;
    for (auto const& handle : handles) {
      threads.emplace_back([&, handle] {
        try {
          body(handle);
        } catch (std::exception const& e) {
          what[static_cast<std::size_t>(handle.rank())] = e.what();
        } catch (...) {
          what[static_cast<std::size_t>(handle.rank())] = "no std::exception";
        }
      });
    }
  }
  return what;
}
bool contains(std::string const& text, std::string const& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE(text);
  return found;
}

template <class Schedule>
auto trainer(acco::threads_backend const& world, Schedule schedule, acco::options options = {}) {
  options.deadline = deadline;
  return acco::optimizer{schedule, acco::adamw{}, acco::host_storage<float>{}, world, count, options};
}
template <class Training>
void micro_batch(Training& training) {
  for (float& g : training.gradients()) g += 1;
  training.accumulated(1);
}

struct no_memory : std::pmr::memory_resource {
  void* do_allocate(std::size_t, std::size_t) override { throw std::bad_alloc(); }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override { return this == &other; }
};

}  // namespace

TEST_CASE_TEMPLATE("an exception in the trainer's own code, between rounds or in one, is known to the others at once", Schedule,
                   acco::synchronous<>, acco::delayed<>, acco::two_phase<>, acco::weight_prediction<>) {
  for (const int when : {0, 1, 4}) {
    const auto what = outcomes(3, [when](acco::threads_backend const& world) {
      auto training = trainer(world, Schedule{});
      training.initialize(std::vector<float>(count, 1.0F));
      for (int m = 0; m < 20; ++m) {
        if (world.rank() == 1 && m == when) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // what was in flight has ended by now
          throw std::runtime_error("bad batch");
        }
        micro_batch(training);
      }
      training.finish();
    });
    CHECK(what[1] == "bad batch");
    for (const int rank : {0, 2}) {
      CHECK(contains(what[static_cast<std::size_t>(rank)],
                     "rank 1 failed: it destroyed its optimizer because an exception left its training loop"));
    }
  }
}

TEST_CASE("a learning rate that throws, caught by the rank that has it, ends the others at once, with its words") {
  const auto what = outcomes(3, [](acco::threads_backend const& world) {
    acco::options options;
    options.learning_rate = [rank = world.rank()](double samples) -> double {
      if (rank == 2 && samples > 5) throw std::runtime_error("no such file");
      return 1;
    };
    auto training = trainer(world, acco::synchronous{}, options);
    training.initialize(std::vector<float>(count, 1.0F));
    std::string first;
    for (int m = 0; m < 10; ++m) {
      try {
        micro_batch(training);
      } catch (std::exception const& e) {
        if (first.empty()) first = e.what();
        if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the optimizer lives on
      }
    }
    if (!first.empty()) throw std::runtime_error(first);
  });
  CHECK(what[2] == "no such file");
  CHECK(contains(what[0], "rank 2 failed: no such file"));
  CHECK(contains(what[1], "rank 2 failed: no such file"));
}

TEST_CASE("a rank without memory in initialize, or that never comes to it, is known at once") {
  SUBCASE("bad_alloc") {
    no_memory none;
    const auto what = outcomes(2, [&](acco::threads_backend const& world) {
      acco::host_storage<float> storage;
      if (world.rank() == 1) storage.memory = &none;
      acco::optimizer training{acco::delayed{}, acco::adamw{}, storage, world, count, acco::options{.deadline = deadline}};
      training.initialize(std::vector<float>(count, 1.0F));
    });
    CHECK(contains(what[1], "rank 1, initialize: the buffers of this rank, "));
    CHECK(contains(what[1], " MiB, could not be allocated"));
    CHECK(contains(what[0], "rank 1 failed: "));
    CHECK(contains(what[0], "could not be allocated"));
  }
  SUBCASE("an exception before initialize") {
    const auto what = outcomes(2, [](acco::threads_backend const& world) {
      auto training = trainer(world, acco::delayed{});
      if (world.rank() == 1) throw std::runtime_error("no data");
      training.initialize(std::vector<float>(count, 1.0F));
    });
    CHECK(what[1] == "no data");
    CHECK(contains(what[0], "rank 1 failed: it destroyed its optimizer because an exception left its training loop"));
  }
}

TEST_CASE("whoever has finished and left is named to those who go on") {
  const auto what = outcomes(2, [](acco::threads_backend const& world) {
    auto training = trainer(world, acco::delayed{});
    training.initialize(std::vector<float>(count, 1.0F));
    micro_batch(training);
    training.finish();
    if (world.rank() == 1) return;
    for (int m = 0; m < 5; ++m) micro_batch(training);
    training.finish();
  });
  CHECK(what[1].empty());
  CHECK(contains(what[0], "rank 1 has finished, left,"));
}

TEST_CASE("after finish() everybody leaves in peace, and so does who never joined") {
  const auto what = outcomes(3, [](acco::threads_backend const& world) {
    {
      auto only_looked_at = trainer(world, acco::two_phase{.pace = acco::fixed_pace{1}});
    }
    auto training = trainer(world, acco::two_phase{.pace = acco::fixed_pace{1}});
    training.initialize(std::vector<float>(count, 1.0F));
    for (int m = 0; m < 5 + world.rank(); ++m) micro_batch(training);
    training.finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * world.rank()));
  });
  for (auto const& each : what) CHECK(each.empty());
}

TEST_CASE("what crosses the interface is an acco::error: a NaN in the round in flight, and a question right after a report") {
  std::atomic<int> named = 0;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto training = trainer(world, acco::delayed{});
    training.initialize(std::vector<float>(count, 1.0F));
    try {
      for (int m = 0; m < 6; ++m) {
        if (world.rank() == 1 && m == 3) training.gradients()[7] = std::numeric_limits<float>::quiet_NaN();
        micro_batch(training);
        double loss[] = {1.0};
        training.sum_over_ranks(loss);
      }
      FAIL_CHECK("nothing was thrown");
    } catch (acco::non_finite_error const& e) {
      CHECK(contains(e.what(), "rank 1 brought 1 gradients"));
      ++named;
    }
  });
  CHECK(named == 3);
}

TEST_CASE_TEMPLATE("after an error parameters() holds what it held, and gather_committed() gives what is committed", Schedule,
                   acco::synchronous<>, acco::delayed<>, acco::two_phase<>, acco::weight_prediction<>) {
  for (const double clip : {0.0, 1.0}) {
    for (const std::size_t bucket : {0U, 200U}) {
      CAPTURE(clip);
      CAPTURE(bucket);
      std::array<std::vector<float>, 2> committed;
      acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
        auto training = trainer(world, Schedule{}, {.clip_norm = clip, .bucket_elements = bucket});
        training.initialize(std::vector<float>(count, 1.0F));
        std::vector<float> held(count, 1.0F);
        try {
          for (int m = 0; m < 12; ++m) {
            for (float& g : training.gradients()) g += 1;
            if (world.rank() == 1 && m == 7) training.gradients()[490] = std::numeric_limits<float>::infinity();
            if (training.accumulated(1)) held.assign(training.parameters().begin(), training.parameters().end());
          }
          FAIL_CHECK("nothing was thrown");
        } catch (acco::non_finite_error const&) {
        }
        CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == held);
        std::vector<float> out(count);
        training.gather_committed(out);
        committed[static_cast<std::size_t>(world.rank())] = out;
        CHECK_THROWS_AS(training.accumulated(1), acco::non_finite_error);
        std::vector<float> again(count);
        training.gather_committed(again);
        CHECK(again == out);
      });
      CHECK(committed[0] == committed[1]);
      for (float const p : committed[0]) CHECK((p < 1 && p > 0.9F));  // a few steps of 0.001
    }
  }
}

TEST_CASE("a gather that fails half-way leaves parameters() as they were") {
  for (const std::size_t failing : {1U, 2U, 5U}) {
    acco::mock_world world(2, {.fault = [failing](acco::mock_event const& event) {
                             const bool here = event.rank == 1 && event.operation == acco::collective::all_gather &&
                                               event.round == static_cast<std::int64_t>(failing);
                             return here ? acco::mock_fault::death : acco::mock_fault::none;
                           }});
    bool threw = false;
    CHECK_THROWS_AS(world.run([&](acco::mock_backend const& rank) {
      acco::optimizer training{
          acco::synchronous{}, acco::adamw{}, acco::host_storage<float>{}, rank, count, acco::options{.bucket_elements = 128}};
      training.initialize(std::vector<float>(count, 1.0F));
      std::vector<float> held(count, 1.0F);
      try {
        for (int m = 0; m < 8; ++m) {
          micro_batch(training);
          held.assign(training.parameters().begin(), training.parameters().end());
        }
      } catch (acco::error const&) {
        threw = true;
        CHECK(std::vector<float>(training.parameters().begin(), training.parameters().end()) == held);
        throw;
      }
    }),
                    acco::error);
    CHECK(threw);
  }
}

TEST_CASE("several optimizers on one world: rounds overlap, every one trains as if it were alone") {
  const auto train = [](auto schedule, acco::threads_backend const& world, int rounds, auto&& meanwhile) {
    auto training = trainer(world, schedule);
    training.initialize(std::vector<float>(count, 1.0F));
    for (int m = 0; m < rounds; ++m) {
      for (std::size_t i = 0; i < count; ++i)
        training.gradients()[i] += training.parameters()[i] - static_cast<float>(world.rank());
      training.accumulated(1);
      meanwhile();
    }
    training.finish();
    return std::vector<float>(training.parameters().begin(), training.parameters().end());
  };
  const auto nothing = [] {};
  std::vector<float> alone;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto result = train(acco::delayed{}, world, 20, nothing);
    if (world.rank() == 0) alone = result;
  });
  for (int repeat = 0; repeat < 5; ++repeat) {
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      auto critic = trainer(world, acco::delayed{});
      auto teacher = trainer(world, acco::two_phase{.pace = acco::fixed_pace{1}});
      critic.initialize(std::vector<float>(count, 1.0F));
      teacher.initialize(std::vector<float>(count, 1.0F));
      int m = 0;
      const auto result = train(acco::delayed{}, world, 20, [&] {
        micro_batch(critic);
        if (m++ % 3 == 0) micro_batch(teacher);
      });
      CHECK(result == alone);
      teacher.finish(acco::unfinished::commit);
      critic.finish();
      CHECK(critic.samples() == 60);
      CHECK(teacher.samples() == 21);
    });
  }
}

TEST_CASE("after an error that ended one optimizer the world can be used again, where all ranks are alive") {
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      auto training = trainer(world, acco::two_phase{.pace = acco::fixed_pace{1}});
      training.initialize(std::vector<float>(count, 1.0F));
      try {
        for (int m = 0; m < 9; ++m) {
          if (attempt < 2 && world.rank() == 2 && m == 4) throw std::runtime_error("this once");
          micro_batch(training);
        }
        training.finish(acco::unfinished::commit);
        CHECK(attempt == 2);
        CHECK(training.samples() == 27);
      } catch (std::exception const&) {
        CHECK(attempt < 2);
      }
    }
  });
}

namespace {
struct deviates {
  acco::fixed_pace pace = {};
  static constexpr std::size_t period = 1;
  std::size_t until = 5;
  [[nodiscard]] acco::round_plan plan(std::size_t round) const {
    return {.parameters = round < until ? acco::update::commit : acco::update::commit_and_predict};
  }
};
}  // namespace

TEST_CASE("a schedule that leaves its period is stopped at that round, on all ranks alike") {
  const auto what = outcomes(2, [](acco::threads_backend const& world) {
    auto training = trainer(world, deviates{});
    training.initialize(std::vector<float>(count, 1.0F));
    for (int m = 0; m < 10; ++m) micro_batch(training);
  });
  int own = 0;
  for (auto const& each : what)
    own += each.find("the schedule's plan of this round is not that of round 0") != std::string::npos ? 1 : 0;
  CHECK(own >= 1);  // the other one may hear of it first
  for (auto const& each : what) CHECK(contains(each, "round"));
}
