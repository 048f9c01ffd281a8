// SPDX-License-Identifier: Apache-2.0
// DeMo, published and sharded, against the released code's arithmetic in double; in the limits of its code; and on
// parabolas, where it is solved on paper.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
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

/// Adds a rank's gradient in a step, at the parameters.
using loss = std::function<void(std::size_t rank, std::size_t step, std::span<double const>, std::span<double>)>;
void add_fixed(std::size_t rank, std::size_t step, std::span<double const>, std::span<double> gradients) {
  for (std::size_t i = 0; i < count; ++i) gradients[i] += gradient(rank, step, i);
}

/// The last `silent` ranks bring no samples.
template <class Schedule, class Rule>
outcome trained(int ranks, Schedule const& schedule, Rule const& rule, std::size_t until = steps, int silent = 0,
                loss const& add = add_fixed) {
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
      if (brings) add(static_cast<std::size_t>(world.rank()), step, training.parameters(), training.gradients());
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

TEST_CASE("with all components it is gradient descent: on a parabola each direction contracts by 1 - lr lambda") {
  constexpr acco::sgd tenth{.learning_rate = 0.1, .momentum = 0};
  // the loss of a rank is half of lambda (x - b)^2 in each direction, with lambda and b of its own
  const auto lambda = [](std::size_t rank, std::size_t i) {
    return (rank == 0 ? 14.0 : 28.0) * static_cast<double>(i) / count;  // the mean of both: lr lambda from 0 to 2.1
  };
  const auto minimum = [](std::size_t rank, std::size_t i) { return problem::unit(i * 31 + rank * 104729); };
  const auto add = [&](std::size_t rank, std::size_t, std::span<double const> x, std::span<double> gradients) {
    for (std::size_t i = 0; i < count; ++i) gradients[i] += lambda(rank, i) * (x[i] - minimum(rank, i));
  };
  acco::synchronous<acco::demo_wire<acco::full, limit<true>>> schedule;
  schedule.commit.gradients.policy.decay = 0.9;
  for (const std::size_t t : {1U, 30U}) {
    outcome found = trained(2, schedule, tenth, t, 0, add);
    std::vector<double> right(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double mean = (lambda(0, i) + lambda(1, i)) / 2, factor = std::pow(1 - 0.1 * mean, t);
      const double best = (minimum(0, i) + 2 * minimum(1, i)) / 3, scale = std::max(1.0, std::abs(factor));
      right[i] = (best + factor * (1 - best)) / scale;
      found.parameters[i] /= scale;  // of those that diverge
    }
    CHECK(apart(found.parameters, right, 2e-6) == 0);  // gradients travel as floats
  }
}
TEST_CASE("on a parabola components take turns: in T steps each contracts by 1 - lr lambda (1 - beta^T) / (1 - beta)") {
  // Of each block four groups of 24 cosines are off the minimum by e, and lambda is the same for all: the group that
  // has waited longest has the largest momentum. Those that wait: delta <- beta delta + lambda e.
  constexpr std::size_t kept = 24, groups = 4, blocks = count / block;
  constexpr double beta = 0.9, of_all_turns = (1 - beta * beta * beta * beta) / (1 - beta);
  const auto lambda = [](std::size_t of) { return (0.1 + 0.1 * static_cast<double>(of)) / rate / of_all_turns; };
  const auto group = [](std::size_t k) { return k < 240 && k % 10 < groups ? k % 10 : groups; };  // the last: at rest
  const auto begin = [](std::size_t g) { return g == groups ? 0 : 1 - 0.01 * static_cast<double>(g); };
  const auto facing = [](std::size_t k) { return k % 3 == 0 ? -1.0 : 1.0; };

  std::vector<double> minimum(count);
  const auto cosines = [&](std::vector<double> const& x, bool back) {
    std::vector<double> y(count);
    auto to = y.begin();
    for (auto at = x.begin(); at != x.end(); at += block, to += block)
      std::ranges::copy(published::transform({at, at + block}, false, back), to);
    return y;
  };
  std::vector<double> off(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t k = i % block;
    off[i] = facing(k) * begin(group(k));
  }
  off = cosines(off, true);
  for (std::size_t i = 0; i < count; ++i) minimum[i] = 1 - off[i];
  const auto from_minimum = [&](auto const& x) {
    std::vector<double> z(count);
    for (std::size_t i = 0; i < count; ++i) z[i] = x[i] - minimum[i];
    return z;
  };
  const auto add = [&](std::size_t, std::size_t, std::span<double const> x, std::span<double> gradients) {
    const std::vector<double> z = from_minimum(x);  // lambda is the same in a block: no transform is needed
    for (std::size_t i = 0; i < count; ++i) gradients[i] += lambda(i / block) * z[i];
  };
  acco::synchronous<acco::demo_wire<acco::full, acco::block_dct_top<kept, 256, 8, mean_over::senders>>> schedule;
  schedule.commit.gradients.policy.decay = beta;

  std::vector<double> after_a_turn;
  for (const std::size_t until : {groups, 5 * groups}) {
    const outcome found = trained(2, schedule, plain, until, 0, add);
    const std::vector<double> e = cosines(from_minimum(found.parameters), false), delta = cosines(found.momentum, false);
    std::vector<double> right_e(count), right_delta(count);
    for (std::size_t of = 0; of < blocks; ++of) {
      double at[groups + 1], momentum[groups + 1] = {};
      for (std::size_t g = 0; g <= groups; ++g) at[g] = begin(g);
      for (std::size_t step = 0; step < until; ++step) {
        for (std::size_t g = 0; g < groups; ++g) momentum[g] = beta * momentum[g] + lambda(of) * at[g];
        std::size_t const sent = step % groups;  // in 8 bits with a scale, and what that loses stays
        auto const size = static_cast<float>(std::abs(momentum[sent]));
        const acco::kept_code<8> code(acco::kept_code<8>::word_of(std::bit_cast<std::uint32_t>(size), nullptr));
        const double q = std::copysign(static_cast<double>(code.value(code.code(size))), momentum[sent]);
        at[sent] -= rate * q;
        momentum[sent] -= q;
      }
      for (std::size_t k = 0; k < block; ++k) {
        right_e[of * block + k] = facing(k) * at[group(k)];
        right_delta[of * block + k] = facing(k) * momentum[group(k)];
      }
    }
    CHECK(apart(e, right_e, 1e-6) == 0);
    CHECK(apart(delta, right_delta, 1e-3) == 0);                // of momenta of up to 60
    for (std::size_t i = 0; i < count && until != groups; ++i)  // four turns later
      after_a_turn[i] *= std::pow(1 - rate * lambda(i / block) * of_all_turns, 4);
    if (until != groups) CHECK(apart(e, after_a_turn, 0.01) == 0);
    after_a_turn = e;
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
