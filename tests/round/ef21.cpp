// SPDX-License-Identifier: Apache-2.0
// with_ef21: against the algorithm, step by step, in fp64 on one thread; and where it arrives, and coding without it does not.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/counting.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {

/// Of each block the largest number arrives, as a float.
struct largest_of_it {
  static constexpr char const* name = "largest_of_it";
  static constexpr std::size_t block_size = 64, block_bytes = 2 * sizeof(float);
  static constexpr bool biased = true;
  static void encode(float const* values, std::byte* bytes) {
    std::size_t most = 0;
    for (std::size_t i = 1; i < block_size; ++i) most = std::abs(values[i]) > std::abs(values[most]) ? i : most;
    const float sent[2] = {static_cast<float>(most), values[most]};
    std::memcpy(bytes, sent, sizeof sent);
  }
  static void decode(std::byte const* bytes, float* values) {
    float sent[2];
    std::memcpy(sent, bytes, sizeof sent);
    std::fill_n(values, block_size, 0.0F);
    values[static_cast<std::size_t>(sent[0])] = sent[1];
  }
};

constexpr std::size_t count = 256 * 3;  // shares of whole blocks: the algorithm below need not know where they begin
constexpr double rate = 0.125;

/// The sum of the gradients of a rank's samples, known beforehand.
double gradient(int rank, std::size_t step, std::size_t i) {
  return std::sin(static_cast<double>(i * 7 + step * 3) + 2 * rank) + 0.3 * problem::unit(i + 1000 * step);
}

struct story {
  std::size_t steps = 12;
  std::optional<std::size_t> poisoned = {};  ///< a gradient of this step is not finite
  std::optional<std::size_t> given = {};     ///< before this step everybody's parameters are set
  std::optional<acco::loss_scaling> scaling = {};
  bool weighs = false;  ///< ranks bring 0 to 3 samples, other numbers in every step
  bool halves = false;  ///< two micro-batches a step, of which the first travels exactly, for an estimate, and is kept
  std::size_t bucket = 0;

  [[nodiscard]] double samples(int rank, std::size_t step) const {
    return weighs ? static_cast<double>((static_cast<std::size_t>(rank) * 5 + step * 3 + 1) % 4) : 1;
  }
};

/// EF21 as it is written down, with g_i / n for what it calls f_i's gradient.
std::vector<double> expected(story const& s, int ranks) {
  std::vector<double> theta(count, 1.0);
  std::vector<std::vector<double>> h(static_cast<std::size_t>(ranks), std::vector<double>(count, 0.0));
  for (std::size_t step = 0; step < s.steps; ++step) {
    if (s.given == step) {
      theta.assign(count, 5.0);
      for (auto& each : h) each.assign(count, 0.0);
    }
    double n = 0;
    for (int rank = 0; rank < ranks; ++rank) n += s.samples(rank, step);
    if (s.halves) n *= 2;
    if (s.poisoned == step || n == 0) continue;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& mine = h[static_cast<std::size_t>(rank)];
      for (std::size_t block = 0; block < count; block += 64) {
        const auto lacks = [&](std::size_t i) { return (s.samples(rank, step) > 0 ? gradient(rank, step, i) : 0) / n - mine[i]; };
        std::size_t most = block;
        for (std::size_t i = block; i < block + 64; ++i) most = std::abs(lacks(i)) > std::abs(lacks(most)) ? i : most;
        mine[most] += lacks(most);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (auto const& each : h) theta[i] -= rate * each[i];
      for (int rank = 0; rank < ranks && s.halves; ++rank) theta[i] -= rate * gradient(rank, step, i) / n;
    }
  }
  return theta;
}

constexpr auto synchronous = [](auto commit) { return acco::synchronous{.commit = commit}; };
constexpr auto delayed = [](auto commit) { return acco::delayed{.commit = commit}; };
constexpr auto two_phase = [](auto commit) { return acco::two_phase{.commit = commit, .pace = acco::fixed_pace{1, 1}}; };
template <class Encoding, class Schedule = decltype(synchronous)>
auto make(auto const& world, acco::options const& chosen, Encoding const& code = {}, double of = rate, Schedule schedule = {}) {
  return acco::optimizer{schedule(acco::coded<Encoding, acco::full>{code, {}}),
                         acco::sgd{.learning_rate = of},
                         acco::host_storage<float>{},
                         world,
                         count,
                         chosen};
}
template <class Training>
void micro_batch(Training& training, int rank, std::size_t step, story const& s) {
  const double samples = s.samples(rank, step);
  for (std::size_t i = 0; i < count && samples > 0; ++i)
    training.gradients()[i] += static_cast<float>(training.loss_scale() * gradient(rank, step, i));
  if (s.poisoned == step && rank == 0) training.gradients()[5] = std::numeric_limits<float>::infinity();
  training.accumulated(samples);
}

/// The furthest that a parameter of the library's is from the algorithm's.
double beside(int ranks, story const& s, auto schedule, auto run) {
  std::vector<float> found(count);
  run(ranks, [&](auto const& world) {
    acco::options chosen{.on_non_finite = acco::non_finite::skip, .check_habits = acco::habit_checks::off};
    chosen.loss_scale = s.scaling;
    chosen.bucket_elements = s.bucket;
    auto training = make(world, chosen, acco::with_ef21<largest_of_it>{}, rate, schedule);
    training.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t step = 0; step < s.steps; ++step) {
      if (s.given == step) {
        training.finish();
        training.set_parameters(std::vector<float>(count, 5.0F));
      }
      for (int m = 0; m < (s.halves ? 2 : 1); ++m) micro_batch(training, world.rank(), step, s);
    }
    training.finish();
    if (world.rank() == 0) std::copy_n(training.parameters().data(), count, found.data());
  });
  const std::vector<double> right = expected(s, ranks);
  double most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::abs(right[i] - static_cast<double>(found[i])));
  return most;
}

constexpr auto threads = [](int ranks, auto&& each) { acco::threads_backend::run(ranks, each); };
constexpr auto mock = [](int ranks, auto&& each) {
  acco::mock_world(ranks, {.delay = acco::complete_when_waited_for{}}).run(each);
};

}  // namespace

TEST_CASE(
    "EF21 on 1 to 3 ranks is the algorithm: loss scales, other numbers of samples, steps that are left out, new parameters") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const auto follows = [ranks](story const& s, auto schedule) { CHECK(beside(ranks, s, schedule, threads) < 1e-5); };
    follows({}, synchronous);
    follows({.bucket = 64 * static_cast<std::size_t>(ranks) * 2}, delayed);
    follows({.weighs = true}, synchronous);
    follows({.poisoned = 4, .given = 7}, delayed);
    follows({.poisoned = 3, .scaling = acco::loss_scaling{.initial = 48, .growth = 2, .interval = 2}}, synchronous);
    follows({.halves = true}, two_phase);
    CHECK(beside(ranks, {.weighs = true}, delayed, mock) < 1e-5);
  }
}

TEST_CASE("of gradients that settle the coarsest code brings all with EF21, and not without: ranks that pull apart" *
          doctest::skip(!thorough())) {
  const auto furthest = [](auto code) {
    double most = 0;
    acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
      const auto target = [](int rank, std::size_t i) {
        return static_cast<float>(std::sin(static_cast<double>(i)) + 3 * std::cos(static_cast<double>(i * 5) + 2.0944 * rank));
      };
      auto training = make(world, {.check_habits = acco::habit_checks::off}, code, 0.01);
      training.initialize(std::vector<float>(count, 0.0F));
      for (int step = 0; step < 2500; ++step) {
        for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += training.parameters()[i] - target(world.rank(), i);
        training.accumulated(1);
      }
      training.finish();
      for (std::size_t i = 0; i < count && world.rank() == 0; ++i) {
        const float mean = (target(0, i) + target(1, i) + target(2, i)) / 3;
        most = std::max(most, static_cast<double>(std::abs(training.parameters()[i] - mean)));
      }
    });
    return most;
  };
  CHECK(furthest(acco::with_ef21<largest_of_it>{}) < 1e-4);
  CHECK(furthest(acco::without_feedback<largest_of_it>{}) > 0.1);
}

TEST_CASE("EF21: back to a snapshot; memory() counts the estimates and their sum") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::options snapshots{.check_habits = acco::habit_checks::off};
    snapshots.snapshots = 3;
    snapshots.snapshot_every = 1;
    auto training = make<acco::with_ef21<largest_of_it>>(world, snapshots);
    auto straight = make<acco::with_ef21<largest_of_it>>(world, {.check_habits = acco::habit_checks::off});
    auto without = make<acco::without_feedback<largest_of_it>>(world, {});
    const std::size_t more = straight.memory().encoded - without.memory().encoded;
    CHECK(more >= 4 * (count + count / 2));
    CHECK(more < 4 * (count + count / 2) + 1024);
    training.initialize(std::vector<float>(count, 1.0F));
    straight.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t step = 0; step < 4; ++step) micro_batch(training, world.rank(), step, {});
    REQUIRE(training.rewind(2).undone == 2);
    for (const std::size_t step : {4U, 5U}) micro_batch(training, world.rank(), step, {});
    for (const std::size_t step : {0U, 1U, 4U, 5U}) micro_batch(straight, world.rank(), step, {});
    training.finish();
    straight.finish();
    CHECK(training.world_digest() == straight.world_digest());
  });
}
