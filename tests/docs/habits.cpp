// SPDX-License-Identifier: Apache-2.0
// What docs/your_loop.md and docs/deadlines.md say of habits: what each does to a training, and what the library says
// to it.
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/captured_stderr.hpp"
#include "support/patience.hpp"

namespace {

constexpr std::size_t count = 4;
constexpr double batch = 8;  // samples of a micro-batch
using training_type = acco::any_optimizer<float>;

training_type make(auto const& world, acco::options options = {}, unsigned micro_batches = 2) {
  return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{micro_batches}},
                         acco::sgd{.learning_rate = 1},
                         acco::host_storage<float>{},
                         world,
                         count,
                         options};
}

// The loss of a sample is the sum of its parameters: every gradient is 1, and a step of mean gradients moves every
// parameter by
// -1.
void add(training_type& training, float factor = 1) {
  for (float& g : training.gradients()) g += factor * static_cast<float>(batch);
}

// By how much one step moves a parameter, with a loop that does something to a micro-batch before it is told.
double moved(std::function<void(training_type&)> const& micro_batch, double weight = batch) {
  double result = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<float>(count, 0.0F));
    for (int k = 0; k < 4; ++k) {
      micro_batch(training);
      training.accumulated(weight);
    }
    training.finish();
    REQUIRE(training.steps() == 1);
    if (world.rank() == 0) result = -static_cast<double>(training.parameters()[0]);
  });
  return result;
}

// What each of two ranks threw.
std::vector<std::string> thrown(std::function<void(acco::threads_backend const&)> const& body) {
  const auto handles = acco::threads_backend::world(2);
  std::vector<std::string> what(2);
  {
    std::vector<std::jthread> threads;
    for (auto const& handle : handles)
      threads.emplace_back([&, handle] {
        try {
          body(handle);
        } catch (std::exception const& e) {
          what[static_cast<std::size_t>(handle.rank())] = e.what();
        }
      });
  }
  return what;
}
bool contains(std::string const& text, std::string const& part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE(text);
  return false;
}

}  // namespace

TEST_CASE("what a loop does to gradients") {
  CHECK(moved([](training_type& t) { add(t); }) == 1.0);
  // divided by the batch size
  CHECK(moved([](training_type& t) { add(t, 1 / static_cast<float>(batch)); }) == 1 / batch);
  // sums, told as one sample
  CHECK(moved([](training_type& t) { add(t); }, 1) == batch);
  // means, told as one: equal batches
  CHECK(moved([](training_type& t) { add(t, 1 / static_cast<float>(batch)); }, 1) == 1.0);
  CHECK(moved([](training_type& t) {
          for (float& g : t.gradients()) g = 0;  // a zero_grad: of two micro-batches a part keeps one
          add(t);
        }) == 0.5);
}

TEST_CASE("zero_grad when a part begins loses nothing, whatever a coarse estimate keeps") {
  double result = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::any_optimizer<float> training =
        acco::optimizer{acco::two_phase{.estimate = acco::block_int8{}, .pace = acco::fixed_pace{1}},
                        acco::sgd{.learning_rate = 1}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 0.0F));
    for (int k = 0; k < 2; ++k) {
      for (float& g : training.gradients()) g = 0;
      add(training);
      training.accumulated(batch);
    }
    training.finish();
    if (world.rank() == 0) result = -static_cast<double>(training.parameters()[0]);
  });
  CHECK(result == 1.0);
}

TEST_CASE(
    "in debug builds, or where it is asked for, the same is said on stderr, and parameters that are written to are an error") {
  const acco::options checked{.check_habits = acco::habit_checks::on};
  const auto train = [&](auto schedule, auto const& micro_batch) {
    std::vector<float> parameters(100, 1.0F), gradients(100);  // outlive the optimizer
    acco::optimizer training{schedule, acco::sgd{.learning_rate = 0.01}, acco::host_storage<float>{}, acco::solo_backend{}, 100,
                             checked};
    training.adopt(parameters, gradients);
    for (std::size_t m = 0; m < 400; ++m) {
      micro_batch(m, parameters, gradients);
      for (std::size_t i = 0; i < 100; ++i) gradients[i] += static_cast<float>((i * 31 + m * 17) % 23) - 11.0F;
      training.accumulated(1);
    }
    training.finish();
  };
  const auto zero_grad = [](std::size_t, auto&, auto& g) { g.assign(g.size(), 0.0F); };
  const acco::two_phase coarse{.estimate = acco::block_int8{}};
  const auto said = [&](auto schedule, auto const& micro_batch) {
    captured_stderr const captured;
    train(schedule, micro_batch);
    return captured.text();
  };
  CHECK(contains(said(coarse, zero_grad), "gradients() look as if they were cleared, or written over"));
  CHECK(contains(said(acco::synchronous{.pace = acco::fixed_pace{2}}, zero_grad), "gradients() look as if they were cleared"));
  CHECK_THROWS_WITH_AS(train(acco::two_phase{.pace = acco::fixed_pace{1}},
                             [](std::size_t m, auto& p, auto&) { p[m % 100] = 0.5F, p.assign(100, 0.25F); }),
                       doctest::Contains("the parameters were written to since they came into use"), acco::usage_error);
  CHECK(said(coarse, [](std::size_t, auto&, auto&) {}).empty());
}

TEST_CASE("parameters cannot be written, and the rule is a copy") {
  static_assert(std::same_as<decltype(std::declval<training_type&>().parameters()), std::span<float const>>);
  acco::sgd rule{.learning_rate = 1};
  acco::optimizer training{acco::synchronous{}, rule, acco::host_storage<float>{}, acco::solo_backend{}, count};
  training.initialize(std::vector<float>(count, 0.0F));
  rule.learning_rate = 100;  // changes nothing any more
  training.step([](auto, auto gradients) {
    for (float& g : gradients) g += 1;
    return 1;
  });
  CHECK(training.parameters()[0] == -1.0F);
}

TEST_CASE("what is written into adopted arrays is lost at the next commit; set_parameters keeps it") {
  std::vector<float> parameters(count, 0.0F), gradients(count, 0.0F);
  acco::optimizer training{acco::synchronous{},
                           acco::sgd{.learning_rate = 1},
                           acco::host_storage<float>{},
                           acco::solo_backend{},
                           count,
                           acco::options{.check_habits = acco::habit_checks::off}};
  training.adopt(parameters, gradients);
  const auto step = [&] {
    training.step([&] {
      for (float& g : gradients) g += 1;
      return 1;
    });
  };
  parameters[0] = 50;
  step();
  CHECK(parameters[0] == -1.0F);
  training.finish();
  parameters[0] = 50;
  training.set_parameters(parameters);
  step();
  CHECK(parameters[0] == 49.0F);
}

TEST_CASE("spans that are kept are found over the mock: what is written, and what is computed from what is read") {
  const auto train = [](bool writes) {
    acco::mock_world world(2, {.delay = acco::complete_at_random{.seed = 3, .at_most = 2}});
    world.run([&](acco::mock_backend const& rank) {
      auto training = make(rank, {.check_habits = acco::habit_checks::off}, 16);
      training.initialize(std::vector<float>(count, 0.0F));
      const auto parameters = training.parameters();  // once, before the loop
      const auto gradients = training.gradients();
      for (int k = 0; k < 80; ++k) {
        if (writes) {
          for (float& g : gradients) g = 1;
        } else {
          for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += parameters[i];
        }
        training.accumulated(1);
      }
      training.finish();
    });
  };
  CHECK_THROWS_WITH_AS(train(true), doctest::Contains("was written while it was in flight"), acco::usage_error);
  CHECK_THROWS_AS(train(false), acco::non_finite_error);
}

TEST_CASE("reports: none in the middle of a part, not committed at an estimate") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<float>(count, 0.0F));
    std::vector<int> seen;  // 0: no report, 1: a report, 2: with committed weights
    for (int k = 0; k < 8; ++k) {
      add(training);
      auto const report = training.accumulated(batch);
      seen.push_back(!report ? 0 : report->committed ? 2 : 1);
    }
    training.finish();
    CHECK(seen == std::vector<int>{0, 0, 0, 1, 0, 2, 0, 1});
  });
}

TEST_CASE("rank 0's values reach every rank") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<float>(count, static_cast<float>(world.rank() + 5)));
    CHECK(training.parameters()[0] == 5.0F);
    training.finish();
  });
}

TEST_CASE("no finish, and a save on one rank only") {
  auto what = thrown([](acco::threads_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<float>(count, 0.0F));
    if (world.rank() == 1) return;
    for (int k = 0; k < 20; ++k) {
      add(training);
      training.accumulated(batch);
    }
  });
  CHECK(contains(what[0], "it destroyed its optimizer without finish()"));

  what = thrown([](acco::threads_backend const& world) {
    auto training = make(world, {.deadline = 1});
    training.initialize(std::vector<float>(count, 0.0F));
    add(training);
    std::vector<float> weights(count);
    if (world.rank() == 0) training.gather_committed(weights);  // collective
    std::this_thread::sleep_for(std::chrono::seconds(3));
    training.finish();
  });
  CHECK(contains(what[0], "rank 1 did not come to "));
}

TEST_CASE("an evaluation on one rank: the others go on for a part, or until at_most, and then wait") {
  for (const bool elastic : {false, true}) {
    std::atomic<int> ended = 0;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const auto with = [&](auto pace) -> acco::any_optimizer<float> {
        return acco::optimizer{acco::two_phase{.pace = pace}, acco::sgd{}, acco::host_storage<float>{}, world, count};
      };
      auto training = elastic ? with(acco::elastic_pace{.at_least = 1, .at_most = 8}) : with(acco::fixed_pace{1});
      training.initialize(std::vector<float>(count, 0.0F));
      std::array<double, 1> number{1};
      bool met = false;
      while (training.samples() < 100 * batch) {
        add(training);
        auto const report = training.accumulated(batch);
        if (report && !met) {  // the first: elsewhere ranks of elastic pace may have begun different rounds
          met = true;
          training.sum_over_ranks(number);
          if (world.rank() == 0) {
            // what the round in flight still lets pass, and all of at_most but the last
            const int least = elastic ? 8 : 1;
            for (int k = 0; k < 60000 * patience() && ended < least; ++k)
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            CHECK(ended >= least);
            CHECK(ended <= (elastic ? 15 : 2));
          }
        } else if (world.rank() == 1 && met) {
          ++ended;
        }
      }
      training.finish();
    });
  }
}

TEST_CASE("an evaluation longer than the deadline ends the training, on the others and then on the one that evaluated") {
  const auto what = thrown([](acco::threads_backend const& world) {
    auto training = make(world, {.deadline = 1});
    training.initialize(std::vector<float>(count, 0.0F));
    for (int k = 0; k < 40; ++k) {
      add(training);
      training.accumulated(batch);
      if (k == 7 && world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    training.finish();
  });
  CHECK(contains(what[1], "rank 0 did not come to "));
  CHECK(contains(what[1], "within 1 s"));
  CHECK(contains(what[0], "did not come to "));
  CHECK(contains(what[0], "is impossible"));
}

TEST_CASE("the deadline runs while the waiting rank's own thread computes") {
  const auto what = thrown([](acco::threads_backend const& world) {
    auto training = make(world, {.deadline = 1});
    training.initialize(std::vector<float>(count, 0.0F));
    const auto late = [] { std::this_thread::sleep_for(std::chrono::seconds(3)); };
    for (int k = 0; k < 8; ++k) {
      add(training);
      if (k == 1 && world.rank() == 0) late();  // before it brings its part
      training.accumulated(batch);
      if (k == 1 && world.rank() == 1) late();  // computes on; when its thread comes to wait, rank 0 has been there
    }
    training.finish();
  });
  CHECK(contains(what[1], "rank 0 did not come to "));
}
