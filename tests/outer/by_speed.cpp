// SPDX-License-Identifier: Apache-2.0
// Steps by speed: workers make as many as they can until the next exchange, on clocks that the test turns.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

namespace {

thread_local double now = 0;  // of the worker whose thread this is
double turned() noexcept { return now; }

/// A recurrence whose workers look at these clocks.
template <class Method>
struct on_clocks : Method {
  [[nodiscard]] constexpr acco::exchange_settings settings() const {
    auto settings = Method::settings();
    settings.seconds = &turned;
    return settings;
  }
};
constexpr on_clocks<acco::waiting<>> by_samples{acco::fedavg};
constexpr std::size_t count = 37;

double gradient(double at, int worker, std::size_t i) { return at - worker - 0.01 * static_cast<double>(i); }
template <class Training>
void take_step(Training& training, int worker, double seconds) {
  for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += gradient(training.parameters()[i], worker, i);
  now += seconds;
  (void)training.accumulated(1);
}

}  // namespace

TEST_CASE("steps by speed: all come at the same time, and make as many in sum") {
  constexpr std::array<double, 4> seconds{1, 1, 1, 4};
  std::vector<acco::steps_by_speed> workers(4, acco::steps_by_speed(26));
  double all = 0;
  for (std::size_t w = 0; w < 4; ++w) {
    workers[w].begin(100);
    for (int k = 0; k < 26; ++k) workers[w].made_step();
    all += workers[w].arrive(100 + 26 * seconds[w]);
  }
  CHECK(all == 3.25);
  for (auto& each : workers) each.decide(all, 4);
  CHECK(workers[0].steps() == 32);
  CHECK(workers[2].steps() == 32);
  CHECK(workers[3].steps() == 8);
  SUBCASE("what is measured last counts as much as all before") {
    workers[0].begin(0);
    workers[0].made_step();
    CHECK(workers[0].arrive(3) == 0.5);
    CHECK(workers[0].seconds() == 2);
  }
  SUBCASE("nothing measured, nothing known: nothing changes") {
    acco::steps_by_speed fresh(26);
    CHECK(fresh.arrive(7) == 0);
    fresh.decide(3, 4);
    workers[1].decide(0, 4);
    CHECK(fresh.steps() == 26);
    CHECK(workers[1].steps() == 32);
    workers[1].begin(5);  // no step made, and no time gone by
    CHECK(workers[1].arrive(9) == 1);
    workers[1].begin(9);
    workers[1].made_step();
    CHECK(workers[1].arrive(9) == 1);
  }
  SUBCASE("at least one step, at most all of them") {
    workers[3].decide(1e9, 4);
    CHECK(workers[3].steps() == 1);
    workers[3].decide(1e-9, 4);
    CHECK(workers[3].steps() == 104);
  }
}

TEST_CASE("workers of different speed, beside the recurrence in double") {
  // H_m = v_m T, T = workers x steps / sum of v: 3, 6 and 12 a round behind the first; the mean is by samples
  constexpr std::array<double, 3> seconds{4, 2, 1};
  constexpr std::array<unsigned, 3> steps{3, 6, 12};
  constexpr double rate = 0.05;
  constexpr unsigned rounds = 6, nominal = 7;
  std::vector<std::array<double, count>> anchors;
  std::array<double, count> x{};
  for (unsigned round = 0; round < rounds; ++round) {
    std::array<double, count> sum{};
    double samples = 0;
    for (std::size_t w = 0; w < 3; ++w) {
      const unsigned made = round == 0 ? nominal : steps[w];
      for (std::size_t i = 0; i < count; ++i) {
        double at = x[i];
        for (unsigned k = 0; k < made; ++k) at -= rate * gradient(at, static_cast<int>(w), i);
        sum[i] += made * at;
      }
      samples += made;
    }
    for (std::size_t i = 0; i < count; ++i) x[i] = sum[i] / samples;
    anchors.push_back(x);
  }
  for (const int ranks_a_group : {1, 2}) {
    acco::threads_backend::run(3 * ranks_a_group, [&](acco::threads_backend const& world) {
      const int worker = world.rank() / ranks_a_group;
      const auto own = static_cast<std::size_t>(worker);
      now = 0;
      std::vector<double> asked;  // positions of the learning rate
      acco::optimizer training{
          acco::local_updates{.method = by_samples, .ranks_a_group = ranks_a_group, .steps = nominal, .steps_by_speed = true},
          acco::sgd{.learning_rate = rate},
          acco::host_storage<double>{},
          world,
          count,
          acco::options{.learning_rate = [&](acco::training_position const& at) {
            asked.push_back(at.samples);
            return 1.0;
          }}};
      training.initialize(std::vector<double>(count, 0));
      double samples = 0;
      for (unsigned round = 0; round < rounds; ++round) {
        const unsigned made = round == 0 ? nominal : steps[own];
        // its second rank is slower than its first, which decides
        for (unsigned k = 0; k < made; ++k) take_step(training, worker, seconds[own] * (1 + world.rank() % ranks_a_group));
        samples += (round == 0 ? 3.0 * nominal : 21.0) * ranks_a_group;
        REQUIRE(training.samples() == samples);
        REQUIRE(training.steps() == nominal * (round + 1));
        for (std::size_t i = 0; i < count; ++i) REQUIRE(std::abs(training.parameters()[i] - anchors[round][i]) < 1e-12);
        // a position of the whole training: workers that make few steps take large ones
        REQUIRE(asked.back() == samples - (round == 0 ? 3.0 : 21.0 / steps[own]) * ranks_a_group);
      }
      training.finish();
    });
  }
}

TEST_CASE("an exchange that is under way brings the speeds of its start") {
  // both make 6 at first; the exchange of these lands when the second has been made, also by 6
  constexpr std::array<double, 2> seconds{2, 1};
  for (bool const eager : {false, true}) {
    const auto train = [&](auto method) {
      acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
        now = 0;
        acco::optimizer training{acco::local_updates{.method = method, .steps = 6, .steps_by_speed = true},
                                 acco::sgd{.learning_rate = 0.01}, acco::host_storage<double>{}, world, count};
        training.initialize(std::vector<double>(count, 0));
        const unsigned own = world.rank() == 0 ? 4 : 8;
        std::vector<unsigned> lengths;
        unsigned made = 0;
        std::uint64_t before = 0;
        while (lengths.size() < 5) {
          take_step(training, world.rank(), seconds[static_cast<std::size_t>(world.rank())]);
          ++made;
          if (training.steps() == before) continue;
          before = training.steps();
          lengths.push_back(std::exchange(made, 0U));
        }
        // an exchange is seen where it has landed: the first one at the second boundary
        CHECK(lengths == std::vector<unsigned>{12, own, own, own, own});
        training.finish();
      });
    };
    if (eager) {
      train(on_clocks<acco::eager<acco::sgd>>{acco::eager_diloco});
    } else {
      train(on_clocks<acco::restarting<acco::sgd>>{acco::delayed_diloco});
    }
  }
}

TEST_CASE("while a worker is in finish the others go on with the steps that they have") {
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    now = 0;
    acco::optimizer training{acco::local_updates{.method = by_samples, .steps = 4, .steps_by_speed = true},
                             acco::sgd{.learning_rate = 0.01}, acco::host_storage<double>{}, world, count};
    training.initialize(std::vector<double>(count, 0));
    const double seconds = world.rank() == 1 ? 3 : 1;
    const auto steps = [&](unsigned so_many) {
      for (unsigned k = 0; k < so_many; ++k) take_step(training, world.rank(), seconds);
    };
    steps(4);  // then 12 steps in 7 : 3, which is 5, 2, 5
    if (world.rank() != 2) {
      steps(world.rank() == 0 ? 5 : 2);
      CHECK(training.samples() == (12 + 5 + 2));  // and what the third brought: nothing
      steps(world.rank() == 0 ? 5 : 2);
      CHECK(training.samples() == 19 + 7);
    }
    training.finish();
  });
}
