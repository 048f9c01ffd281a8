// SPDX-License-Identifier: Apache-2.0
// What happens when something goes wrong: every rank ends, with an error that says what, where, and what to do.
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "conformance/guards.hpp"
#include "support/thorough.hpp"
#include "support/worlds.hpp"

namespace {

/// Runs `body(backend)` on every rank and collects what each rank threw (empty: nothing).
template <class World, class Body>
std::vector<std::string> outcomes(int ranks, Body body) {
  std::vector<std::string> what(static_cast<std::size_t>(ranks));
  try {
    World::run(ranks, [&](auto backend) {
      try {
        body(backend);
      } catch (std::exception const& e) {
        what[static_cast<std::size_t>(backend.rank())] = e.what();
        throw;
      }
    });
  } catch (std::exception const&) {  // examined per rank
  }
  return what;
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

template <class Schedule = acco::two_phase<>>
auto trainer(auto backend, Schedule schedule = {}, acco::options options = {}, std::size_t count = 100) {
  return acco::optimizer{schedule, acco::adamw{}, acco::host_storage<float>{}, backend, count, options};
}

template <class Training>
void micro_batch(Training& training) {
  for (float& g : training.gradients()) g += 1;
  training.accumulated(1);
}

}  // namespace

TEST_CASE_TEMPLATE("an exception in one rank's code while a round is in flight ends all ranks with an error that names it", World,
                   worlds::threads, worlds::mock_at_once, worlds::mock_late, worlds::decorated) {
  const auto what = outcomes<World>(3, [](auto backend) {
    auto training = trainer(backend, acco::two_phase{.pace = acco::fixed_pace{1}});
    training.initialize(std::vector<float>(100, 1.0F));
    for (int m = 0; m < 50; ++m) {
      if (backend.rank() == 1 && m == 7) throw std::runtime_error("the data loader broke");
      micro_batch(training);
    }
    training.finish();
  });
  CHECK(what[1] == "the data loader broke");
  CHECK(contains(what[0], "rank 1"));
  CHECK(contains(what[2], "rank 1"));
  CHECK(contains(what[0], "acco: rank 0, round"));
}

TEST_CASE("threads: a rank that ends at any moment is named by all others, at once") {
  std::minstd_rand random(1);
  for (int end = 0; end < (thorough() ? 1000 : 40); ++end) {
    const int ranks = 2 + static_cast<int>(random() % 4), gone = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const std::size_t kind = random() % 3, moment = random() % 12, before = random() % 3;
    CAPTURE(end);
    const auto train = [&](auto const& backend, auto schedule) {
      auto training = trainer(backend, schedule);
      if (backend.rank() == gone && moment == 0) throw std::runtime_error("the data loader broke");
      training.initialize(std::vector<float>(100, 1.0F));
      for (std::size_t m = 1;; ++m) {
        for (std::size_t k = 0; k < before && backend.rank() == gone; ++k) std::this_thread::yield();
        if (backend.rank() == gone && m == moment) throw std::runtime_error("the data loader broke");
        micro_batch(training);
      }
    };
    const auto what = outcomes<worlds::threads>(ranks, [&](auto const& backend) {
      if (kind == 0) train(backend, acco::two_phase{.pace = acco::fixed_pace{1}});
      if (kind == 1) train(backend, acco::delayed{.pace = acco::fixed_pace{2}});
      if (kind == 2) train(backend, acco::synchronous{});
    });
    for (int rank = 0; rank < ranks; ++rank) {
      std::string const& each = what[static_cast<std::size_t>(rank)];
      if (rank == gone) {
        CHECK(each == "the data loader broke");
      } else {
        CHECK(contains(each, "rank " + std::to_string(gone) + " failed"));
      }
    }
  }
}

TEST_CASE("run() rethrows the exception that came first, not its consequences") {
  CHECK_THROWS_WITH_AS(acco::threads_backend::run(3,
                                                  [](acco::threads_backend const& world) {
                                                    auto training = trainer(world);
                                                    training.initialize(std::vector<float>(100, 1.0F));
                                                    for (int m = 0; m < 50; ++m) {
                                                      if (world.rank() == 2 && m == 5) throw std::domain_error("cause");
                                                      micro_batch(training);
                                                    }
                                                  }),
                       "cause", std::domain_error);
}

TEST_CASE_TEMPLATE("a rank that leaves while a round is in flight is named to the others, and nothing hangs", World,
                   worlds::threads, worlds::mock_random) {
  const auto what = outcomes<World>(3, [](auto backend) {
    auto training = trainer(backend, acco::delayed{});
    training.initialize(std::vector<float>(100, 1.0F));
    for (int m = 0; m < (backend.rank() == 0 ? 4 : 40); ++m) micro_batch(training);
    // rank 0 destroys its optimizer here, without finish()
  });
  CHECK(what[0].empty());
  CHECK(contains(what[1], "rank 0"));
  CHECK(contains(what[2], "rank 0"));
}

TEST_CASE("a rank that leaves is named at once, not at the deadline, also where no run() watches over the ranks") {
  const auto handles = acco::threads_backend::world(2);
  std::string what;
  {
    const std::jthread leaver([&] {
      auto training = trainer(handles[0], acco::delayed{}, {.deadline = 20});
      training.initialize(std::vector<float>(100, 1.0F));
      for (int m = 0; m < 3; ++m) micro_batch(training);
    });
    const std::jthread stayer([&] {
      try {
        auto training = trainer(handles[1], acco::delayed{}, {.deadline = 20});
        training.initialize(std::vector<float>(100, 1.0F));
        for (int m = 0; m < 30; ++m) micro_batch(training);
      } catch (acco::peer_error const& e) {  // a deadline_error would not be caught here
        what = e.what();
        CHECK(e.peer() == 0);
      } catch (acco::error const& e) {
        FAIL_CHECK(e.what());
      }
    });
  }
  CHECK(contains(
      what,
      "rank 0 failed: it destroyed its optimizer without finish(), which every rank calls at the end, with a round in flight"));
}

TEST_CASE("all ranks may leave with a round in flight") {
  const auto what = outcomes<worlds::threads>(4, [](auto backend) {
    auto training = trainer(backend, acco::two_phase{.pace = acco::fixed_pace{1}});
    training.initialize(std::vector<float>(100, 1.0F));
    for (int m = 0; m < 5; ++m) micro_batch(training);
  });
  for (auto const& each : what) CHECK(each.empty());
}

TEST_CASE("ranks that were constructed differently are found at initialize, and the message shows both sides") {
  const auto differing = [](auto make) {
    const auto what = outcomes<worlds::threads>(2, [&](auto backend) {
      make(backend);
      FAIL("initialize must throw");
    });
    for (auto const& each : what) CHECK(contains(each, "constructed differently"));
    CHECK(what[0].substr(what[0].find("constructed")).substr(0, 60) == what[1].substr(what[1].find("constructed")).substr(0, 60));
    return what[0];
  };
  const auto start = [](auto& training) {
    training.initialize(std::vector<typename std::remove_cvref_t<decltype(training)>::parameter_type>(training.layout().size()));
  };
  const acco::host_storage<float> floats;
  SUBCASE("parameter count") {
    const auto what = differing([&](auto world) {
      acco::optimizer t{acco::delayed{}, acco::adamw{}, floats, world, std::size_t{world.rank() == 0 ? 10U : 11U}};
      start(t);
    });
    CHECK(contains(what, "rank 0 has 'parameters = 10', rank 1 has 'parameters = 11'"));
  }
  SUBCASE("layout of the same size") {
    const auto what = differing([&](auto world) {
      acco::parameter_layout layout;
      if (world.rank() == 0) layout.add("w", {2, 3});
      if (world.rank() == 1) layout.add("w", {3, 2});
      acco::optimizer t{acco::delayed{}, acco::adamw{}, floats, world, layout};
      start(t);
    });
    CHECK(contains(what, "rank 0 has 'layout: extent = 2', rank 1 has 'layout: extent = 3'"));
  }
  SUBCASE("types") {
    const auto what = differing([&](auto world) {
      if (world.rank() == 0) {
        acco::optimizer t{acco::delayed{}, acco::adamw{}, floats, world, 10};
        start(t);
      } else {
        acco::optimizer t{acco::delayed{}, acco::adamw{}, acco::host_storage<acco::bfloat16>{}, world, 10};
        start(t);
      }
    });
    CHECK(contains(what, "'parameter type = float'"));
    CHECK(contains(what, "'parameter type = bfloat16'"));
  }
  SUBCASE("rule") {
    const auto what = differing([&](auto world) {
      if (world.rank() == 0) {
        acco::optimizer t{acco::delayed{}, acco::adamw{}, floats, world, 10};
        start(t);
      } else {
        acco::optimizer t{acco::delayed{}, acco::lion{}, floats, world, 10};
        start(t);
      }
    });
    CHECK(contains(what, "rank 0 has 'rule = adamw', rank 1 has 'rule = lion'"));
  }
  SUBCASE("hyperparameter") {
    const auto what = differing([&](auto world) {
      acco::optimizer t{acco::delayed{}, acco::adamw{.learning_rate = world.rank() == 0 ? 1e-3 : 1e-2}, floats, world, 10};
      start(t);
    });
    CHECK(contains(what, "rank 0 has 'rule.learning_rate = 0.001', rank 1 has 'rule.learning_rate = 0.01'"));
  }
  SUBCASE("schedule") {
    const auto what = differing([&](auto world) {
      if (world.rank() == 0) {
        acco::optimizer t{acco::delayed{}, acco::adamw{}, floats, world, 10};
        start(t);
      } else {
        acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, floats, world, 10};
        start(t);
      }
    });
    // the name, not the mangled type
    CHECK(contains(what, "'schedule = acco::v0_1::delayed<acco::v0_1::fixed_pace>'") == false);
    CHECK(contains(what, "rank 0 has 'schedule = delayed', rank 1 has 'schedule = two_phase'"));
  }
  SUBCASE("pace") {
    const auto what = differing([&](auto world) {
      acco::optimizer t{acco::two_phase{.pace = acco::fixed_pace{.first = 1, .second = world.rank() == 0 ? 1U : 2U}},
                        acco::adamw{}, floats, world, 10};
      start(t);
    });
    CHECK(contains(what, "rank 0 has 'pace.second = 1 to 1', rank 1 has 'pace.second = 2 to 2'"));
  }
  SUBCASE("options") {
    const auto what = differing([&](auto world) {
      acco::optimizer t{
          acco::delayed{}, acco::adamw{}, floats, world, 10, acco::options{.clip_norm = world.rank() == 0 ? 1.0 : 0.0}};
      start(t);
    });
    CHECK(contains(what, "rank 0 has 'options.clip_norm = 1', rank 1 has 'options.clip_norm = 0'"));
  }
}

TEST_CASE("a rank that never comes: the others give up at the deadline and name it") {
  const auto began = std::chrono::steady_clock::now();
  const auto what = outcomes<worlds::threads>(3, [](auto backend) {
    if (backend.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
      return;
    }
    auto training = trainer(backend, acco::two_phase{.pace = acco::fixed_pace{1}}, {.deadline = 0.2});
    training.initialize(std::vector<float>(100, 1.0F));
  });
  CHECK(contains(what[0], "rank 2"));
  CHECK(contains(what[1], "rank 2"));
  CHECK((contains(what[0], "did not come to broadcast within 0.2 s") ||
         contains(what[1], "did not come to broadcast within 0.2 s")));
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(60));
}

TEST_CASE("rank death, lost data and mismatched calls in the mock end in errors that name the rank and the collective") {
  const auto with_fault = [](acco::mock_fault fault, std::size_t index) {
    acco::mock_world world(3, {.fault = [=](acco::mock_event const& e) {
                             return e.rank == 1 && e.index == index ? fault : acco::mock_fault::none;
                           }});
    std::vector<std::string> what(3);
    try {
      world.run([&](acco::mock_backend const& backend) {
        try {
          auto training = trainer(backend, acco::two_phase{.pace = acco::fixed_pace{1}});
          training.initialize(std::vector<float>(100, 1.0F));
          for (int m = 0; m < 20; ++m) micro_batch(training);
          training.finish();
        } catch (std::exception const& e) {
          what[static_cast<std::size_t>(backend.rank())] = e.what();
          throw;
        }
      });
    } catch (std::exception const&) {  // examined per rank
    }
    return what;
  };
  for (std::size_t index = 0; index < 24; ++index) {  // initialize, and every collective of several rounds
    CAPTURE(index);
    const auto death = with_fault(acco::mock_fault::death, index);
    CHECK(contains(death[0], "rank 1"));
    CHECK(contains(death[2], "rank 1"));
    CHECK(contains(death[0], "did not come to"));
    const auto loss = with_fault(acco::mock_fault::loss, index);
    CHECK(contains(loss[1], "never completed"));
    const auto mismatch = with_fault(acco::mock_fault::mismatch, index);
    for (auto const& each : mismatch) CHECK(contains(each, "elements"));
  }
}

TEST_CASE_TEMPLATE("NaN or infinite gradients on one rank: by default every rank throws and names rank and tensor", World,
                   worlds::threads, worlds::mock_late) {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = true});
  layout.add("first", {40}).add("ice", {13}, still).add("second", {60});
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto what = outcomes<World>(3, [&](auto backend) {
      acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, backend,
                               layout};
      training.initialize(std::vector<float>(layout.size(), 1.0F));
      for (int m = 0; m < 20; ++m) {
        if (backend.rank() == 2 && m == 6) training.gradients()[layout["second"].offset + 5] = poison;
        micro_batch(training);
      }
      training.finish();
    });
    for (auto const& each : what) {
      CHECK(contains(each,
                     "rank 2 brought 1 gradients that are infinite or not a number, the first in tensor 'second' at element 5"));
      CHECK(contains(each, "round 6 (estimate)") == false);
      CHECK(contains(each, "round 6, estimate"));
    }
  }
}

TEST_CASE_TEMPLATE("as many numbers summed outside of rounds as a round counts are not taken for them", World, worlds::threads,
                   worlds::mock_at_once, worlds::mock_late) {
  conformance::sums_and_counts<World>();
}

TEST_CASE("NaN gradients with non_finite::skip: the update is left out on every rank alike, and training goes on") {
  for (const int at : {6, 7}) {  // in the first part of a step, in the second
    std::vector<std::vector<double>> ends(3);
    acco::threads_backend::run(3, [&](acco::threads_backend const& backend) {
      auto training = acco::optimizer{
          acco::two_phase{.pace = acco::fixed_pace{1}},          acco::adamw{}, acco::host_storage<double>{}, backend, 10,
          acco::options{.on_non_finite = acco::non_finite::skip}};
      training.initialize(std::vector<double>(10, 1.0));
      std::size_t skipped = 0;
      for (int m = 0; m < 20; ++m) {
        for (double& g : training.gradients()) g += 1;
        if (backend.rank() == 1 && m == at) training.gradients()[3] = std::nan("");
        if (auto const report = training.accumulated(1)) skipped += report->skipped ? 1 : 0;
      }
      training.finish();
      CHECK(skipped == 1);
      CHECK(training.totals().skipped == 1);
      // 20 micro-batches on three ranks; a bad first part loses its own, a bad second part loses the whole step
      CHECK(training.samples() == (at == 6 ? 57 : 54));
      CHECK(training.steps() == (at == 6 ? 10 : 9));
      for (const double p : training.parameters()) CHECK(std::isfinite(p));
      ends[static_cast<std::size_t>(backend.rank())].assign(training.parameters().begin(), training.parameters().end());
    });
    CHECK(ends[0] == ends[1]);
    CHECK(ends[0] == ends[2]);
  }
}

TEST_CASE("a model that has diverged does not skip for ever") {
  acco::optimizer training{acco::delayed{},
                           acco::adamw{},
                           acco::host_storage<float>{},
                           acco::solo_backend{},
                           3,
                           acco::options{.on_non_finite = acco::non_finite::skip, .skip_limit = 4}};
  training.initialize(std::vector<float>(3, 1.0F));
  const auto diverge = [&] {
    for (int m = 0; m < 100; ++m) {
      training.gradients()[0] = std::nanf("");
      training.accumulated(1);
    }
  };
  CHECK_THROWS_AS(diverge(), acco::non_finite_error);
}

TEST_CASE("wrong span sizes, wrong order and senseless values are refused, and say what to do") {
  auto training = trainer(acco::solo_backend{}, acco::two_phase{.pace = acco::fixed_pace{1}});
  const auto message = [](auto action) {
    try {
      action();
    } catch (acco::usage_error const& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  CHECK(contains(message([&] { training.accumulated(1); }), "before initialize"));
  CHECK(contains(message([&] { training.finish(); }), "before initialize"));
  CHECK(contains(message([&] { (void)training.parameters(); }), "before initialize"));
  CHECK(contains(message([&] { (void)training.gradients(); }), "before initialize"));
  CHECK(contains(message([&] { (void)training.state_digest(); }), "before initialize"));
  CHECK(contains(message([&] { training.initialize(std::vector<float>(99)); }),
                 "initialize got 99 parameters, the layout has 100"));
  training.initialize(std::vector<float>(100));
  CHECK(contains(message([&] { training.initialize(std::vector<float>(100)); }), "twice"));
  CHECK(contains(message([&] { training.accumulated(-1); }), "weight of -1"));
  CHECK(contains(message([&] { training.accumulated(std::nan("")); }), "weight of nan"));
  std::vector<float> small(3);
  CHECK(contains(message([&] { training.gather_committed(small); }), "room for 3"));
  training.finish();  // none of this has hurt it

  CHECK(contains(message([&] { trainer(acco::solo_backend{}, acco::two_phase{.pace = acco::fixed_pace{1}}, {}, 0); }),
                 "none of them is trainable"));
  CHECK(contains(message([&] { trainer(acco::solo_backend{}, acco::two_phase{.pace = acco::fixed_pace{1}}, {.clip_norm = -1}); }),
                 "clip_norm"));
  CHECK(contains(message([&] { trainer(acco::solo_backend{}, acco::two_phase{.pace = acco::fixed_pace{1}}, {.deadline = 0}); }),
                 "deadline"));
  CHECK(contains(
      message([&] { trainer(acco::solo_backend{}, acco::two_phase{.pace = acco::fixed_pace{1}}, {.learning_rate = {}}); }),
      "learning_rate"));
  CHECK(contains(message([&] { trainer(acco::solo_backend{}, acco::synchronous{.pace = acco::fixed_pace{0}}); }),
                 "at least one micro-batch"));
  CHECK(contains(
      message([&] { trainer(acco::solo_backend{}, acco::delayed{.pace = acco::elastic_pace{.at_least = 9, .at_most = 3}}); }),
      "9 to 3"));
}

TEST_CASE_TEMPLATE("NaN gradients of a micro-batch without weight are named in their own round, or skipped", World,
                   worlds::threads, worlds::mock_late) {
  acco::parameter_layout layout;
  layout.add("w", {4}).add("b", {4});
  for (const auto policy : {acco::non_finite::raise, acco::non_finite::skip}) {
    const auto what = outcomes<World>(2, [&](auto backend) {
      acco::optimizer training{
          acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{}, backend, layout,
          acco::options{.on_non_finite = policy}};
      training.initialize(std::vector<float>(8, 1.0F));
      for (int m = 0; m < 8; ++m) {
        const bool empty = m == 2;  // 0 samples: their mean is 0 / 0
        for (float& g : training.gradients()) g += 1;
        if (empty && backend.rank() == 1) training.gradients()[6] = std::numeric_limits<float>::quiet_NaN();
        const auto report = training.accumulated(empty ? 0 : 1);
        if (report) CHECK(report->skipped == (report->round == 2));
      }
      training.finish();
      CHECK(training.samples() == 14);
      for (float const p : training.parameters()) CHECK(std::isfinite(p));
    });
    for (auto const& each : what) {
      CHECK(each.empty() == (policy == acco::non_finite::skip));
      if (policy == acco::non_finite::skip) continue;
      CHECK(contains(each, "round 2, estimate: rank 1 brought 1 gradients"));
      CHECK(contains(each, "the first in tensor 'b' at element 2"));
    }
  }
}

TEST_CASE("after an error the parameters stay readable and every further call says the same") {
  const auto what = outcomes<worlds::threads>(2, [](auto backend) {
    auto training = trainer(backend, acco::delayed{}, {.deadline = 5});
    training.initialize(std::vector<float>(100, 1.0F));
    for (int m = 0; m < 4; ++m) micro_batch(training);
    if (backend.rank() == 1) throw std::runtime_error("gone");
    std::string first;
    try {
      for (int m = 0; m < 10; ++m) micro_batch(training);
    } catch (acco::error const& e) {
      first = e.what();
      CHECK(e.peer() == 1);
      CHECK(e.rank() == 0);
      CHECK(e.round() >= 3);
    }
    REQUIRE_FALSE(first.empty());
    CHECK(training.parameters()[0] < 1.0F);
    CHECK_THROWS_WITH_AS(training.accumulated(1), first.c_str(), acco::error);
    CHECK_THROWS_WITH_AS(training.finish(), first.c_str(), acco::error);
  });
  CHECK(what[0].empty());
}

TEST_CASE("mock: writing to a buffer in flight is found") {
  const auto late = [](acco::mock_event const& e) {
    return std::size_t{e.operation == acco::collective::reduce_scatter ? 100U : 0U};
  };
  CHECK_THROWS_AS(acco::mock_world(1, {.delay = late}).run([](acco::mock_backend const& backend) {
    acco::optimizer training{acco::delayed{}, acco::sgd{}, acco::host_storage<float>{}, backend, 8};
    training.initialize(std::vector<float>(8, 1.0F));
    for (int m = 0; m < 4; ++m) {
      auto const held = training.gradients();
      training.accumulated(1);
      training.poll();         // the reduce-scatter begins
      if (m > 0) held[3] = 1;  // kept beyond the report: the buffer is in flight
    }
    training.finish();
  }),
                  acco::usage_error);
}
