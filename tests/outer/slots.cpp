// SPDX-License-Identifier: Apache-2.0
// Slots that workers exchange, each at a period of its own (DES-LOC, arXiv 2505.22549): beside the equations in double,
// on a noisy Rosenbrock function, and among workers that come.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

namespace {

constexpr std::size_t count = 70;  // padded to a cache line, and to other shares where workers are three
using storage = acco::host_storage<double>;

/// Of a quadratic around a number of the worker's own, with what looks like noise.
double gradient(double at, int worker, std::size_t step, std::size_t i) {
  return at - worker - 0.01 * static_cast<double>(i) + std::sin(static_cast<double>(7 * i + 31 * step) + 2 * worker);
}

/// Adam (arXiv 1412.6980, Algorithm 1), and what DES-LOC's Algorithm 1 does behind each step.
struct by_hand {
  static constexpr double rate = 0.05, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;
  using numbers = std::vector<double>;
  std::vector<numbers> x, m, v;  // of each worker

  explicit by_hand(std::size_t workers) : x(workers, numbers(count, 1)), m(workers, numbers(count)), v(m) {}
  static void average(std::vector<numbers>& of) {
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (numbers const& each : of) sum += each[i];
      for (numbers& each : of) each[i] = sum / static_cast<double>(of.size());
    }
  }
  void step(std::size_t t) {  // from 1
    for (std::size_t w = 0; w < x.size(); ++w) {
      for (std::size_t i = 0; i < count; ++i) {
        const double g = gradient(x[w][i], static_cast<int>(w), t - 1, i);
        m[w][i] = beta1 * m[w][i] + (1 - beta1) * g;
        v[w][i] = beta2 * v[w][i] + (1 - beta2) * g * g;
        const double at = static_cast<double>(t);
        x[w][i] -= rate * (m[w][i] / (1 - std::pow(beta1, at))) / (std::sqrt(v[w][i] / (1 - std::pow(beta2, at))) + epsilon);
      }
    }
  }
};
acco::adamw adam() {
  return {.learning_rate = by_hand::rate,
          .beta1 = by_hand::beta1,
          .beta2 = by_hand::beta2,
          .epsilon = by_hand::epsilon,
          .weight_decay = 0};
}
template <class Training>
void take_step(Training& training, int worker, std::size_t step) {
  for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += gradient(training.parameters()[i], worker, step, i);
  (void)training.accumulated(1);
}
double furthest(std::span<double const> found, std::vector<double> const& right) {
  double most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::abs(found[i] - right[i]));
  return most;
}

}  // namespace

TEST_CASE("parameters, first and second moments are means of the workers, each at its own period") {
  struct periods {
    unsigned first, second;
  };
  for (const periods of : {periods{1, 1}, periods{3, 6}, periods{0, 2}, periods{2, 0}}) {
    for (const int workers : {2, 3}) {
      CAPTURE(of.first);
      CAPTURE(workers);
      constexpr std::size_t steps = 4, rounds = 12;
      by_hand right(static_cast<std::size_t>(workers));
      std::vector<std::vector<std::vector<double>>> then;  // by step, and worker
      for (std::size_t t = 1; t <= steps * rounds; ++t) {
        right.step(t);
        if (t % steps == 0) by_hand::average(right.x);
        if (of.first != 0 && t % (steps * of.first) == 0) by_hand::average(right.m);
        if (of.second != 0 && t % (steps * of.second) == 0) by_hand::average(right.v);
        then.push_back(right.x);
      }
      acco::threads_backend::run(workers, [&](acco::threads_backend const& world) {
        acco::optimizer training{
            acco::local_updates{.method = acco::local_sgd, .steps = steps, .slots_every = {of.first, of.second}}, adam(),
            storage{}, world, count};
        training.initialize(std::vector<double>(count, 1));
        double most = 0;
        for (std::size_t t = 0; t < steps * rounds; ++t) {
          take_step(training, world.rank(), t);
          most = std::max(most, furthest(training.parameters(), then[t][static_cast<std::size_t>(world.rank())]));
        }
        training.finish();
        CHECK(most < 1e-12);
      });
    }
  }
}
TEST_CASE("workers of two ranks, fragments: slots come together all the same") {
  const auto together = [](auto const& level) {
    acco::threads_backend::run(4, [&](acco::threads_backend const& world) {
      acco::optimizer training{level, acco::sgd{.learning_rate = 0.01, .momentum = 0.9}, storage{}, world, count};
      training.initialize(std::vector<double>(count, 1));
      for (std::size_t t = 0; t < 8; ++t) take_step(training, world.rank(), t);
      // from here on gradients are 0, so that steps are what slots are; they came together behind the eighth
      std::vector<double> before(training.parameters().begin(), training.parameters().end());
      (void)training.accumulated(1);
      double moved[1] = {before[3] - training.parameters()[3]}, sum[1] = {moved[0]};
      CHECK(moved[0] != 0);
      training.finish();
      training.sum_over_ranks(sum);
      CHECK(sum[0] == doctest::Approx(4 * moved[0]).epsilon(1e-9));
    });
  };
  together(acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = 4, .slots_every = {2}});
  together(acco::local_updates{.method = acco::local_sgd, .steps = 4, .fragments = 2, .slots_every = {1}});
}

namespace {
/// The last losses of so many workers at the anchor: their median, on (1 - x)^2 + 100 (y - x^2)^2 from (-1, 1.5), whose
/// gradients have noise of 200.
double rosenbrock(acco::slot_periods slots_every) {
  constexpr int workers = 16;
  constexpr std::size_t steps = 16, rounds = 192, last = 48;
  std::vector<double> losses;
  acco::threads_backend::run(workers, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = steps, .slots_every = slots_every},
                             acco::sgd{.learning_rate = 1e-4, .momentum = 0.99}, storage{}, world, std::size_t{2}};
    training.initialize(std::array<double, 2>{-1, 1.5});
    std::mt19937_64 seed(static_cast<unsigned>(world.rank()));
    std::normal_distribution<double> noise(0, 200);
    for (std::size_t t = 1; t <= steps * rounds; ++t) {
      const double x = training.parameters()[0], y = training.parameters()[1];
      training.gradients()[0] += -2 * (1 - x) - 400 * x * (y - x * x) + noise(seed);
      training.gradients()[1] += 200 * (y - x * x) + noise(seed);
      (void)training.accumulated(1);
      if (t % steps != 0 || t + steps * last <= steps * rounds || world.rank() != 0) continue;
      const double a = training.parameters()[0], b = training.parameters()[1];
      losses.push_back((1 - a) * (1 - a) + 100 * (b - a * a) * (b - a * a));
    }
    training.finish();
  });
  std::nth_element(losses.begin(), losses.begin() + last / 2, losses.end());
  return losses[last / 2];
}
}  // namespace

TEST_CASE("a noisy Rosenbrock function: workers with momenta of their own oscillate, those that exchange them do not") {
  const double own = rosenbrock({}), exchanged = rosenbrock({1}), seldom = rosenbrock({3});
  MESSAGE("their own ", own, ", exchanged ", exchanged, ", every third time ", seldom);
  CHECK(own > 4 * exchanged);
  CHECK(own > 1.5 * seldom);
}

TEST_CASE("who joins begins with the mean slots, after as many updates; those that were there take them, too") {
  constexpr std::size_t steps = 4, before = 12, after = 16;
  by_hand right(2);
  std::vector<std::vector<std::vector<double>>> then;  // by step behind the change, and worker
  for (std::size_t t = 1; t <= before + after; ++t) {
    right.step(t);
    if (t % steps == 0) by_hand::average(right.x);
    if (t % steps == 0) by_hand::average(right.m);
    if (t % (2 * steps) == 0) by_hand::average(right.v);
    if (t > before) then.push_back(right.x);
    if (t != before) continue;
    by_hand::average(right.v);
    for (auto* of : {&right.x, &right.m, &right.v}) of->push_back(of->front());
  }
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    const auto made = [&](acco::threads_backend const& over) -> acco::any_optimizer<double> {
      return acco::optimizer{acco::local_updates{.method = acco::local_sgd, .steps = steps, .slots_every = {1, 2}}, adam(),
                             storage{}, over, count};
    };
    auto const two = world.split(world.rank() == 2 ? 1 : 0);
    auto const all = world.split(0);
    const bool joins = world.rank() == 2;
    auto training = made(joins ? all : two);
    if (joins) {
      training.join();
    } else {
      training.initialize(std::vector<double>(count, 1));
      for (std::size_t t = 0; t < before; ++t) take_step(training, world.rank(), t);
      training.finish();
      training.regroup(all);
    }
    double most = 0;
    for (std::size_t t = 0; t < after; ++t) {
      take_step(training, world.rank(), before + t);
      most = std::max(most, furthest(training.parameters(), then[t][static_cast<std::size_t>(world.rank())]));
    }
    training.finish();
    CHECK(most < 1e-12);
  });
}

TEST_CASE("a rank that is gone when slots are exchanged is named, by its rank in the world") {
  std::array<std::string, 3> heard;
  try {
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      auto& mine = heard[static_cast<std::size_t>(world.rank())];
      try {
        acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = 2, .slots_every = {1}},
                                 acco::sgd{.learning_rate = 0.01, .momentum = 0.9}, storage{}, world, count};
        training.initialize(std::vector<double>(count, 1));
        for (std::size_t t = 0; t < 20; ++t) {
          if (t == 7 && world.rank() == 1) throw std::runtime_error("bad batch");
          take_step(training, world.rank(), t);
        }
        training.finish();
      } catch (std::exception const& e) {
        mine = e.what();
        throw;
      }
    });
  } catch (std::exception const& e) {
    CHECK(std::string(e.what()) == "bad batch");
  }
  for (std::string const& said : {heard[0], heard[2]}) {
    CAPTURE(said);
    CHECK(said.find("rank 1") != std::string::npos);
  }
}
TEST_CASE("workers come to finish at different times: those that have take part, and every second exchange is one of finish") {
  for (const unsigned period : {1U, 2U}) {
    CAPTURE(period);
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::local_updates{.method = acco::diloco, .steps = 4, .slots_every = {period}},
                               acco::sgd{.learning_rate = 0.01, .momentum = 0.9},
                               storage{},
                               world,
                               count,
                               acco::options{.deadline = 60}};
      training.initialize(std::vector<double>(count, 1));
      for (int epoch = 0; epoch < 2; ++epoch) {
        const std::size_t steps = world.rank() == 0 ? 14 : world.rank() == 1 ? 7 : 4;
        for (std::size_t t = 0; t < steps; ++t) take_step(training, world.rank(), t);
        training.finish();
      }
      const double before = training.parameters()[3];  // the anchor's
      (void)training.accumulated(1);                   // without a gradient: the step is the momentum, alike on all
      double moved[1] = {training.parameters()[3] - before};
      const double mine = moved[0];
      CHECK(mine != 0);
      training.finish();
      training.sum_over_ranks(moved);
      CHECK(moved[0] == doctest::Approx(3 * mine).epsilon(1e-9));
    });
  }
}
TEST_CASE("workers that have come to finish take the means, and do not count in them") {
  by_hand right(1);
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = 4, .slots_every = {1, 2}}, adam(), storage{},
                             world, count};
    training.initialize(std::vector<double>(count, 1));
    double most = 0;
    for (std::size_t t = 0; t < 16 && world.rank() == 0; ++t) {
      right.step(t + 1);
      take_step(training, 0, t);
      most = std::max(most, furthest(training.parameters(), right.x[0]));
    }
    training.finish();
    CHECK(most < 1e-12);
  });
}
TEST_CASE("slots are exchanged where workers wait") {
  acco::threads_backend::run(1, [](acco::threads_backend const& world) {
    CHECK_THROWS_WITH_AS(
        (acco::optimizer{acco::local_updates{.method = acco::co2, .slots_every = {1}}, acco::adamw{}, storage{}, world, count}),
        doctest::Contains("slots_every exchanges slots where workers wait"), acco::usage_error);
  });
}
TEST_CASE("a period for a slot that the rule has not is refused") {
  acco::threads_backend::run(1, [](acco::threads_backend const& world) {
    using level = acco::local_updates<>;
    CHECK_THROWS_WITH_AS((acco::optimizer{level{.slots_every = {0, 0, 3}}, acco::adamw{}, storage{}, world, count}),
                         doctest::Contains("slots_every has a period for slot 2, and the rule has 2 slots"), acco::usage_error);
  });
}
