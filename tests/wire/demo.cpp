// SPDX-License-Identifier: Apache-2.0
// DeMo, published and sharded, against the released code's arithmetic in double; and in the limits of its code.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"
#include "wire/published_demo.hpp"

namespace {

constexpr std::size_t block = 256, count = 6 * block;  // shares of one, two, three ranks are whole blocks
constexpr std::size_t steps = 8;
constexpr double rate = 0.01;
using acco::mean_over;

/// A direction that stays, and noise.
double gradient(std::size_t rank, std::size_t step, std::size_t i) {
  return static_cast<float>(problem::unit(i * 31 + step * 7919 + rank * 104729) - 0.5 +
                            0.2 * std::cos(0.05 * static_cast<double>(i)));
}

struct outcome {
  std::vector<double> parameters, momentum;
  std::uint64_t bytes = 0;
};

/// The last `silent` ranks bring no samples.
template <class Schedule, class Rule>
outcome trained(int ranks, Schedule const& schedule, Rule const& rule, std::size_t until = steps, int silent = 0) {
  using storage = acco::host_storage<double>;
  outcome found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::round_engine<storage> training(std::make_unique<acco::schedule_of<Schedule, storage>>(schedule),
                                         std::make_unique<acco::rule_of<Rule, storage>>(rule), storage{},
                                         std::make_unique<acco::backend_of<acco::threads_backend, storage>>(world),
                                         acco::parameter_layout(count), {.check_habits = acco::habit_checks::off});
    training.initialize(std::vector<double>(count, 1.0));
    for (std::size_t step = 0; step < until; ++step) {
      const bool brings = world.rank() < ranks - silent;
      for (std::size_t i = 0; brings && i < count; ++i)
        training.gradients()[i] += gradient(static_cast<std::size_t>(world.rank()), step, i);
      auto const report = training.accumulated(brings ? 1 : 0, 0);
      if (report && world.rank() == 0) found.bytes = report->bytes_sent;
    }
    training.finish(acco::unfinished::commit);
    if (world.rank() != 0) return;
    found.parameters.assign(training.parameters().begin(), training.parameters().end());
    found.momentum.assign(training.feedback().begin(), training.feedback().end());
  });
  return found;
}

constexpr acco::lion by_sign{.learning_rate = rate, .beta1 = 0, .beta2 = 0};
constexpr acco::sgd plain{.learning_rate = rate, .momentum = 0};

std::size_t apart(std::vector<double> const& a, std::vector<double> const& b, double within) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < count; ++i) n += std::abs(a[i] - b[i]) < within ? 0U : 1U;
  return n;
}

template <mean_over Over, class Parameters, class Rule>
void compare(int ranks, Rule const& rule, int silent = 0) {
  CAPTURE(ranks);
  const acco::synchronous schedule{.commit = acco::demo_wire<Parameters, acco::block_dct_top<24, block, 8, Over>>{}};
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  published::demo right{
      24,
      rate,
      0.999,
      Over == mean_over::senders,
      std::is_same_v<Rule, acco::lion>,
      false,
      published::blocks_of(all, block),
      std::vector<std::vector<double>>(static_cast<std::size_t>(ranks - silent), std::vector<double>(count, 0.0)),
      std::vector<double>(count, 1.0)};
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<std::vector<double>> gradients(right.delta.size(), std::vector<double>(count));
    for (std::size_t rank = 0; rank < gradients.size(); ++rank)
      for (std::size_t i = 0; i < count; ++i) gradients[rank][i] = gradient(rank, step, i);
    right.step(gradients);
  }
  const outcome found = trained(ranks, schedule, rule, steps, silent);
  // where a sum is near 0, or a number between two codes, the last bit decides
  CHECK(apart(found.parameters, right.theta, 1e-5) <= 5);
  CHECK(apart(found.momentum, right.delta[0], 1e-4) <= 5);
}

/// k = 0 or all, as `Count` says: nothing arrives, or everything.
template <bool All>
struct limit {
  static constexpr char const* name = "limit";
  static constexpr std::size_t block_size = 256, block_bytes = block_size * sizeof(float);
  static void encode(float const* values, std::byte* bytes) {
    std::memset(bytes, 0, block_bytes);
    if (All) std::memcpy(bytes, values, block_bytes);
  }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
};

}  // namespace

TEST_CASE("as published: all ranks get all codes, and the sign of the mean over the senders is the step") {
  for (const int ranks : {1, 2, 3}) compare<mean_over::senders, acco::updated_by_all>(ranks, by_sign);
  compare<mean_over::senders, acco::updated_by_all>(3, plain);
}
TEST_CASE("sharded: the owner of a share makes the update, of the mean over all ranks or over the senders") {
  for (const int ranks : {1, 2, 3}) compare<mean_over::all, acco::full>(ranks, by_sign);
  compare<mean_over::senders, acco::full>(3, plain);
}
TEST_CASE("who brings no samples is not there: of sizes, too") {
  compare<mean_over::senders, acco::full>(3, plain, 1);
  compare<mean_over::senders, acco::updated_by_all>(3, plain, 2);
}

TEST_CASE("with all components there is no momentum: it is signSGD of the mean gradient") {
  using all = acco::demo_wire<acco::full, limit<true>>;
  const outcome found = trained(1, acco::synchronous{.commit = all{}}, by_sign);
  acco::synchronous<all> forgets;
  forgets.commit.gradients.policy.decay = 0;
  CHECK(found.parameters == trained(1, forgets, by_sign).parameters);
  CHECK(*std::max_element(found.momentum.begin(), found.momentum.end()) < 1e-7);  // gradients are floats
  std::vector<double> theta(count, 1.0);
  for (std::size_t step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < count; ++i) theta[i] -= std::copysign(rate, gradient(0, step, i));
  CHECK(apart(found.parameters, theta, 1e-12) == 0);
}
TEST_CASE("with no component parameters stand still, and the momentum is the decayed sum of all gradients") {
  const outcome found = trained(2, acco::synchronous{.commit = acco::demo_wire<acco::full, limit<false>>{}}, by_sign);
  CHECK(found.parameters == std::vector<double>(count, 1.0));
  std::vector<double> sum(count, 0.0);
  for (std::size_t step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < count; ++i) sum[i] = 0.999 * sum[i] + gradient(0, step, i);
  CHECK(apart(found.momentum, sum, 1e-12) == 0);
}
TEST_CASE("what was applied and what is left is the decayed sum of all gradients") {
  acco::synchronous<acco::demo_wire<acco::full>> schedule;
  for (const double decay : {1 - 0x1p-20, 0.875}) {
    schedule.commit.gradients.policy.decay = decay;
    std::vector<double> arrived(count, 0.0), sum(count, 0.0), before(count, 1.0);
    outcome found;
    for (std::size_t step = 0; step < steps; ++step) {
      found = trained(1, schedule, acco::sgd{.learning_rate = 1, .momentum = 0}, step + 1);
      for (std::size_t i = 0; i < count; ++i) {
        sum[i] = decay * sum[i] + gradient(0, step, i);
        arrived[i] = decay * arrived[i] + (before[i] - found.parameters[i]);
      }
      before = found.parameters;
    }
    for (std::size_t i = 0; i < count; ++i) arrived[i] += found.momentum[i];
    CHECK(apart(arrived, sum, 1e-12) == 0);
  }
}

TEST_CASE("sharded, what a rank sends does not grow with the number of ranks; published, it does") {
  using code = acco::block_dct_top<24>;
  constexpr std::uint64_t codes = acco::encoded_size<code>(count), changes = acco::encoded_size<acco::block_int4<>>(count);
  constexpr std::uint64_t sums = 100 * sizeof(double);  // of a few numbers
  for (const std::uint64_t ranks : {2U, 3U}) {
    const auto sent = [&](auto const& wire) {
      return trained(static_cast<int>(ranks), acco::synchronous{wire}, by_sign, 2).bytes;
    };
    const std::uint64_t sharded = sent(acco::demo_wire<acco::block_int4<>, code>{});
    CHECK(sharded >= (ranks - 1) * (codes + changes) / ranks);
    CHECK(sharded <= (ranks - 1) * (codes + changes) / ranks + sums);
    const std::uint64_t published = sent(acco::demo_wire<acco::updated_by_all, code>{});
    CHECK(published >= (ranks - 1) * codes);
    CHECK(published <= (ranks - 1) * codes + sums);
  }
}
