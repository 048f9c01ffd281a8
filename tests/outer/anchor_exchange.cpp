// SPDX-License-Identifier: Apache-2.0
// The exchange's dynamics: closed forms on quadratics, the limits of stability on both sides, and settings that are the
// same as others in every bit.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/function_view.hpp>
#include <acco/outer.hpp>

#include "any_recurrence.hpp"
#include "support/float_wire.hpp"
#include "support/thorough.hpp"

namespace {

/// What trains, whatever it was made of: what is done with it is compiled once.
using mocked = acco::function_view<acco::any_optimizer<double>(acco::mock_backend const&)>;
using threaded = acco::function_view<acco::any_optimizer<float>(acco::threads_backend const&)>;

/// The worker's parameters at the start of each round, where all workers have the same quadratics of these curvatures
/// around 0; local steps are SGD at rate 1. All workers stand where worker 0 stands.
std::vector<std::vector<double>> iterates(int workers, unsigned steps, mocked make, std::vector<double> const& curvatures,
                                          std::size_t rounds, double initial) {
  std::vector<std::vector<double>> found;
  acco::mock_backend::run(workers, [&](acco::mock_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<double>(curvatures.size(), initial));
    for (std::size_t r = 0; r < rounds * steps && std::abs(training.parameters()[0]) < 1e60; ++r) {
      auto const at = training.parameters();
      if (world.rank() == 0 && r % steps == 0) found.emplace_back(at.begin(), at.end());
      auto const g = training.gradients();
      for (std::size_t i = 0; i < at.size(); ++i) g[i] += curvatures[i] * at[i];
      (void)training.accumulated(1);
    }
    training.finish();
  });
  return found;
}

template <class Level>
std::vector<std::vector<double>> iterates(int workers, Level const& level, std::vector<double> const& curvatures,
                                          std::size_t rounds, double initial = 1) {
  const auto make = [&](acco::mock_backend const& world) -> acco::any_optimizer<double> {
    return acco::optimizer{level,
                           acco::sgd{.learning_rate = 1},
                           acco::host_storage<double>{},
                           world,
                           curvatures.size(),
                           acco::options{.check_habits = acco::habit_checks::off}};  // gradients may vanish here
  };
  return iterates(workers, level.steps, make, curvatures, rounds, initial);
}

const std::vector<double> curvatures{0.01, 0.05, 0.1, 0.2, 0.3, 0.45};
/// What a round of `steps` local steps removes of the error.
double removed(double curvature, unsigned steps) { return 1 - std::pow(1 - curvature, steps); }

/// Of z^n = c[0] z^(n-1) + c[1] z^(n-2) + ...: each iterate follows from those before it, and the ratio of the last
/// ones is the dominant root, where that is real.
template <class Level>
void check_polynomial(int workers, Level const& level, std::function<std::vector<double>(double)> const& coefficients) {
  constexpr std::size_t rounds = 24;
  auto const x = iterates(workers, level, curvatures, rounds);
  for (std::size_t i = 0; i < curvatures.size(); ++i) {
    auto const c = coefficients(removed(curvatures[i], level.steps));
    double largest = 0;
    for (std::size_t r = 4; r < rounds; ++r) {
      double next = 0, scale = 1e-14;
      for (std::size_t k = 0; k < c.size(); ++k) {
        next += c[k] * x[r - 1 - k][i];
        scale += std::abs(x[r - 1 - k][i]);
      }
      largest = std::max(largest, std::abs(x[r][i] - next) / scale);
    }
    CAPTURE(i);
    CHECK(largest < 1e-11);
  }
}

using vector = std::vector<double>;

/// Whether the error has grown over many rounds, in which a root of 1.002 shows.
template <class Level>
bool diverges(int workers, Level const& level, double b) {
  const std::size_t rounds = thorough() ? 1000 : 500;
  auto const x = iterates(workers, level, {b}, rounds);
  if (x.size() < rounds) return true;  // out of all bounds
  double first = 0, last = 0;
  for (std::size_t r = 0; r < 100; ++r) {
    first = std::max(first, std::abs(x[r + 200][0]));
    last = std::max(last, std::abs(x[x.size() - 1 - r][0]));
  }
  return !(last < first || last == 0);
}
/// One local step, so that a round removes exactly its curvature; 3 % on either side of the limit.
template <class Level>
void check_limit(int workers, Level level, double limit) {
  level.steps = 1;
  CAPTURE(limit);
  CHECK(!diverges(workers, level, 0.97 * limit));
  CHECK(diverges(workers, level, 1.03 * limit));
}

template <class Rule>
acco::local_updates<any_recurrence<Rule>> late(Rule rule, acco::work_meanwhile work, unsigned steps = 4) {
  return {.method = {.rule = rule, .delay = acco::whole_round, .work = work}, .steps = steps};
}

/// The parameters after each micro-batch and at the end, of rank 0.
std::vector<float> trained_by(int ranks, threaded make, std::size_t micro_batches, bool alike) {
  constexpr std::size_t count = 70;
  std::vector<float> found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<float>(count, 1.0F));
    for (std::size_t t = 0; t < micro_batches; ++t) {
      auto const at = training.parameters();
      auto const g = training.gradients();
      const auto mine = static_cast<float>(alike ? 0 : world.rank());
      for (std::size_t i = 0; i < at.size(); ++i) g[i] += at[i] - 0.25F * static_cast<float>(i % 5) - mine;
      (void)training.accumulated(1);
      if (world.rank() == 0) found.insert(found.end(), training.parameters().begin(), training.parameters().end());
    }
    training.finish();
    if (world.rank() == 0) found.insert(found.end(), training.parameters().begin(), training.parameters().end());
  });
  return found;
}

template <class Schedule>
std::vector<float> trained(int ranks, Schedule const& schedule, std::size_t micro_batches, double rate = 0.125,
                           bool alike = false) {
  const auto make = [&](acco::threads_backend const& world) -> acco::any_optimizer<float> {
    return acco::optimizer{schedule, acco::sgd{.learning_rate = rate}, acco::host_storage<float>{}, world, std::size_t{70}};
  };
  return trained_by(ranks, make, micro_batches, alike);
}

std::size_t elements() { return thorough() ? 300 : 140; }

/// All anchors that gather_committed gives at the end of a round, where worker m wants apart * m, of curvatures between
/// 0.05
/// and 1.
std::vector<std::vector<double>> anchors(int workers, unsigned steps, mocked make, double apart, int rounds) {
  const std::size_t count = elements();
  std::vector<std::vector<double>> found;
  acco::mock_backend::run(workers, [&](acco::mock_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<double>(count, 3.0));
    std::vector<double> now(count);
    for (unsigned t = 1; t <= static_cast<unsigned>(rounds) * steps; ++t) {
      auto const at = training.parameters();
      auto const g = training.gradients();
      for (std::size_t i = 0; i < count; ++i) {
        const double want = apart * world.rank() + std::sin(static_cast<double>(i) * (1 + world.rank() * (apart == 0 ? 0 : 1)));
        g[i] += (0.3 + 0.7 * static_cast<double>(i) / static_cast<double>(count)) * (at[i] - want);
      }
      (void)training.accumulated(1);
      if (t % steps != 0) continue;
      training.gather_committed(now);
      if (world.rank() == 0) found.push_back(now);
    }
    training.finish();
  });
  return found;
}
template <class Level>
std::vector<std::vector<double>> anchors(int workers, Level const& level, double apart, int rounds) {
  const auto make = [&](acco::mock_backend const& world) -> acco::any_optimizer<double> {
    return acco::optimizer{level,
                           acco::sgd{.learning_rate = 0.5},
                           acco::host_storage<double>{},
                           world,
                           elements(),
                           acco::options{.check_habits = acco::habit_checks::off}};
  };
  return anchors(workers, level.steps, make, apart, rounds);
}
double largest_difference(std::vector<double> const& a, std::vector<double> const& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("in four bits every method comes to the same point as in full, where all workers want the same") {
  constexpr acco::block_int4<> four;
  const auto check = [](auto const& level) {
    CAPTURE(std::string(level.method.rule.name));
    auto const found = anchors(3, level, 0, 160);
    std::vector<double> point(found.back().size());
    for (std::size_t i = 0; i < point.size(); ++i) point[i] = std::sin(static_cast<double>(i));
    CHECK(largest_difference(found[3], point) > 1e-3);  // it takes its time
    CHECK(largest_difference(found.back(), point) < 1e-6);
  };
  check(acco::local_updates{.method = acco::local_sgd, .steps = 4, .exchange = four});
  check(acco::local_updates{.method = acco::fedavg, .steps = 4, .exchange = four});
  check(acco::local_updates{
      .method = acco::waiting{.rule = acco::sgd{.learning_rate = 0.7, .momentum = 0.5}}, .steps = 4, .exchange = four});
  check(acco::local_updates{.method = acco::waiting{.rule = acco::sgd{.learning_rate = 0.7, .momentum = 0.6, .nesterov = true}},
                            .steps = 4,
                            .exchange = four});
  check(acco::local_updates{.method = acco::delayed_diloco, .steps = 4, .exchange = four});
  check(
      acco::local_updates{.method = acco::keeping{.rule = acco::delayed_diloco.rule, .delay = 2}, .steps = 4, .exchange = four});
  check(acco::local_updates{.method = acco::eager_diloco, .steps = 4, .exchange = four});
  check(acco::local_updates{.method = acco::restarting{.rule = acco::clipped_momentum{.learning_rate = 0.6}, .by_gap = true},
                            .steps = 4,
                            .exchange = four});
  check(acco::local_updates{.method = acco::overlap_local_sgd, .steps = 4, .exchange = four});
  check(acco::local_updates{.method = acco::restarting{.rule = acco::sgd{.learning_rate = 0.4, .momentum = 0.6, .nesterov = true},
                                                       .delay = 1,
                                                       .keep_local = 0.5},
                            .steps = 4,
                            .fragments = 2,
                            .exchange = four});
}

TEST_CASE("where workers want different things four bits stay near, and their mean over time is that of exact exchanges") {
  const auto check = [](auto const& coarse, auto const& exact) {
    constexpr int rounds = 600, settled = 200;
    auto const found = anchors(3, coarse, 1, rounds), wanted = anchors(3, exact, 1, settled);
    auto const& point = wanted.back();
    CHECK(largest_difference(wanted[settled - 10], point) < 1e-4);
    std::vector<double> mean(point.size(), 0.0);
    double farthest = 0;
    for (int r = settled; r < rounds; ++r) {
      auto const& x = found[static_cast<std::size_t>(r)];
      farthest = std::max(farthest, largest_difference(x, point));
      for (std::size_t i = 0; i < x.size(); ++i) mean[i] += x[i] / (rounds - settled);
    }
    MESSAGE("at most " << farthest << ", their mean " << largest_difference(mean, point));
    CHECK(farthest < 0.3);
    CHECK(farthest > 1e-3);
    CHECK(largest_difference(mean, point) < 0.02);
  };
  check(acco::local_updates{.method = acco::local_sgd, .steps = 4, .exchange = acco::block_int4{}},
        acco::local_updates{.method = acco::local_sgd, .steps = 4});
  check(acco::local_updates{.method = acco::delayed_diloco, .steps = 4, .exchange = acco::block_int4{}},
        acco::local_updates{.method = acco::delayed_diloco, .steps = 4});
}

TEST_CASE("a wire that loses nothing gives the exact form: in every bit for changes, within rounding for anchors") {
  CHECK(trained(3, acco::local_updates{.method = acco::diloco, .steps = 2, .exchange = acco::coded<float_wire, acco::full>{}},
                9) == trained(3, acco::local_updates{.method = acco::diloco, .steps = 2}, 9));
  CHECK(trained(
            2, acco::local_updates{.method = acco::delayed_diloco, .steps = 2, .exchange = acco::coded<float_wire, acco::full>{}},
            9) == trained(2, acco::local_updates{.method = acco::delayed_diloco, .steps = 2}, 9));
  auto const found = trained(3, acco::local_updates{.method = acco::eager_diloco, .steps = 2, .exchange = float_wire{}}, 9),
             wanted = trained(3, acco::local_updates{.method = acco::eager_diloco, .steps = 2}, 9);
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(static_cast<double>(found[i]) == doctest::Approx(static_cast<double>(wanted[i])).epsilon(1e-6));
}

TEST_CASE("every so many exchanges the anchor travels in full, beside changes that are encoded, too") {
  using coarse = acco::coded<float_wire, acco::block_int4<>>;
  const auto with = [](coarse wire) {
    return trained(3, acco::local_updates{.method = acco::diloco, .steps = 2, .exchange = wire}, 9);
  };
  coarse each_time;
  each_time.exact_every = 1;
  auto const exact =
      trained(3, acco::local_updates{.method = acco::diloco, .steps = 2, .exchange = acco::coded<float_wire, acco::full>{}}, 9);
  CHECK(with(each_time) == exact);
  CHECK(with({}) != exact);
}

namespace {

/// As `trained`, all parameters of rank 0, where the first `still` micro-batches have no gradient and are not told of.
std::vector<std::vector<float>> after(int ranks, threaded make, std::size_t count, unsigned still, unsigned micro_batches) {
  std::vector<std::vector<float>> found;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto training = make(world);
    training.initialize(std::vector<float>(count, 1.0F));
    const auto keep = [&] {
      if (world.rank() == 0) found.emplace_back(training.parameters().begin(), training.parameters().end());
    };
    for (unsigned t = 0; t < still + micro_batches; ++t) {
      auto const at = training.parameters();
      auto const g = training.gradients();
      for (std::size_t i = 0; t >= still && i < count; ++i)
        g[i] += at[i] - std::sin(static_cast<float>(i * (t - still + 1))) - static_cast<float>(world.rank());
      (void)training.accumulated(1);
      if (t >= still) keep();
    }
    training.finish();
    keep();
  });
  return found;
}
/// Every fragment is what it is where the whole is one fragment that has stood still for the steps by which it is late.
template <class Level>
void check_fragments(int ranks, Level whole, unsigned fragments, std::size_t count) {
  const unsigned steps = whole.steps, micro_batches = 3 * steps + steps / 2;
  Level level = whole;
  const auto make = [&](acco::threads_backend const& world) -> acco::any_optimizer<float> {
    return acco::optimizer{level,
                           acco::sgd{.learning_rate = 0.1},
                           acco::host_storage<float>{},
                           world,
                           count,
                           acco::options{.check_habits = acco::habit_checks::off}};
  };
  level.fragments = fragments;
  auto const found = after(ranks, make, count, 0, micro_batches);
  level.fragments = whole.fragments;
  const acco::partition shares(count, whole.ranks_a_group,
                               acco::host_storage<float>::usual_share * static_cast<std::size_t>(whole.ranks_a_group));
  CAPTURE(count);
  CAPTURE(fragments);
  CAPTURE(steps);
  std::size_t compared = 0;
  for (unsigned p = 0; p < fragments; ++p) {
    auto const wanted = after(ranks, make, count, steps - (p + 1) * steps / fragments, micro_batches);
    REQUIRE(wanted.size() == found.size());
    const std::size_t begin = shares.slice_size() * p / fragments, end = shares.slice_size() * (p + 1) / fragments;
    for (int r = 0; r < whole.ranks_a_group; ++r) {
      shares.for_positions(r, [&](std::size_t offset, std::size_t first, std::size_t n) {
        for (std::size_t k = 0; k < n; ++k) {
          if (offset + k < begin || offset + k >= end || first + k >= count) continue;
          ++compared;
          for (std::size_t t = 0; t < found.size(); ++t) {
            CAPTURE(t);
            CAPTURE(first + k);
            REQUIRE(found[t][first + k] == wanted[t][first + k]);
          }
        }
      });
    }
  }
  CHECK(compared == count);
}

}  // namespace

TEST_CASE("fragments are as many trainings of their own, in every bit, whatever becomes of the steps meanwhile") {
  const acco::sgd rule{.learning_rate = 0.6, .momentum = 0.4, .nesterov = true};
  const auto check = [&](int ranks, auto method, unsigned steps, unsigned fragments, std::size_t count, int ranks_a_group = 1) {
    check_fragments(ranks, acco::local_updates{.method = method, .ranks_a_group = ranks_a_group, .steps = steps}, fragments,
                    count);
  };
  check(2, acco::waiting{.rule = rule}, 6, 3, 192);
  check(3, acco::restarting{.rule = rule, .delay = 1, .keep_local = 0.5}, 6, 3, 70);
  check(2, acco::restarting{.rule = rule, .delay = 2}, 6, 3, 300);
  check(4, acco::keeping{.rule = rule, .delay = 3}, 4, 2, 500, 2);
  check(2, acco::restarting{.rule = rule}, 4, 4, 70);
  check(2, acco::eager{.rule = rule}, 4, 2, 70);
  check(3, acco::pulling{.keep_local = 0.3}, 4, 4, 130);
  check(3, acco::waiting{}, 2, 2, 130);
  check(2, acco::keeping{}, 4, 4, 130);
  check_fragments(
      4,
      acco::local_updates{
          .method = acco::keeping{.rule = rule, .delay = 1}, .ranks_a_group = 2, .steps = 4, .exchange = float_wire{}},
      2, 500);
}

TEST_CASE("one fragment of streaming_diloco is diloco with a short delay") {
  const acco::restarting late{
      .rule = acco::sgd{.learning_rate = 0.4, .momentum = 0.9, .nesterov = true}, .delay = 1, .keep_local = 0.5};
  CHECK(trained(2, acco::local_updates{.method = acco::streaming_diloco, .steps = 4}, 11) ==
        trained(2, acco::local_updates{.method = late, .steps = 4}, 11));
  CHECK(trained(2, acco::local_updates{.method = acco::restarting{.rule = acco::diloco.rule, .delay = 0}, .steps = 4}, 11) ==
        trained(2, acco::local_updates{.method = acco::diloco, .steps = 4}, 11));
}

TEST_CASE("without a delay a round is averaging, heavy ball, or Nesterov's, on what local steps remove") {
  check_polynomial(2, acco::local_updates{.method = acco::local_sgd, .steps = 4}, [](double b) { return vector{1 - b}; });
  check_polynomial(
      3, acco::local_updates{.method = acco::waiting{.rule = acco::sgd{.learning_rate = 0.8, .momentum = 0.6}}, .steps = 3},
      [](double b) { return vector{1 + 0.6 - 0.8 * b, -0.6}; });
  check_polynomial(2, acco::local_updates{.method = acco::diloco, .steps = 5},
                   [](double b) { return vector{1 + 0.9 - 0.7 * 1.9 * b, -0.9 * (1 - 0.7 * b)}; });
}

TEST_CASE("a whole round late the polynomials are of one degree more") {
  const double mu = 0.4, lr = 0.5;
  check_polynomial(2, late(acco::sgd{.learning_rate = lr, .momentum = mu}, acco::work_meanwhile::restart),
                   [=](double b) { return vector{1 + mu, -(mu + lr * b)}; });
  check_polynomial(2, late(acco::sgd{.learning_rate = lr, .momentum = mu, .nesterov = true}, acco::work_meanwhile::restart),
                   [=](double b) { return vector{1 + mu, -(mu + lr * b * (1 + mu)), lr * b * mu}; });
  for (const int workers : {1, 2, 4}) {
    const double m = workers;
    check_polynomial(workers, late(acco::sgd{.learning_rate = lr}, acco::work_meanwhile::eager),
                     [=](double b) { return vector{1 - lr * b / m, -lr * b * (1 - 1 / m)}; });
  }
  check_polynomial(3, late(acco::sgd{.learning_rate = lr}, acco::work_meanwhile::keep),
                   [=](double b) { return vector{1 - b, b * (1 - lr)}; });
}

TEST_CASE("stable 3 percent below the limits, divergent 3 percent above them") {
  const auto nesterov = [](double rate, double momentum) {
    return acco::sgd{.learning_rate = rate, .momentum = momentum, .nesterov = true};
  };
  using meanwhile = acco::work_meanwhile;
  check_limit(1, acco::local_updates{.method = acco::diloco}, 2 * (1 + 0.9) / (0.7 * (1 + 2 * 0.9)));  // z = -1
  check_limit(1, acco::local_updates{.method = acco::slowmo}, 2 * (1 + 0.5));
  check_limit(1, late(nesterov(0.7, 0.9), meanwhile::restart), 0.3597);
  check_limit(1, late(nesterov(0.4, 0.9), meanwhile::restart), 0.6295);
  check_limit(1, late(nesterov(0.4, 0.5), meanwhile::restart), 1.4013);
  for (const double mu : {0.2, 0.5, 0.6})
    check_limit(1, late(acco::sgd{.learning_rate = 1, .momentum = mu}, meanwhile::restart), 1 - mu);
  check_limit(2, late(acco::sgd{.learning_rate = 0.7}, meanwhile::eager), 2.857);
  check_limit(4, late(acco::sgd{.learning_rate = 0.7}, meanwhile::eager), 1 / (0.7 * 0.75));
  check_limit(2, late(nesterov(0.4, 0.9), meanwhile::eager), 0.96);
  check_limit(1, late(acco::sgd{.learning_rate = 0.7}, meanwhile::keep), 2 / (2 - 0.7));
}

TEST_CASE("defaults of methods with a delay are stable where local steps solve the problem") {
  CHECK(!diverges(2, acco::local_updates{.method = acco::delayed_diloco, .steps = 1}, 1.0));
  CHECK(!diverges(4, acco::local_updates{.method = acco::eager_diloco, .steps = 1}, 1.0));
  CHECK(!diverges(2, acco::local_updates{.method = acco::co2, .steps = 1}, 1.0));
  CHECK(!diverges(2, acco::local_updates{.method = acco::overlap_local_sgd, .steps = 1}, 1.0));
  CHECK(!diverges(2, acco::local_updates{.method = acco::streaming_diloco, .steps = 6, .fragments = 3}, 1.0));
  CHECK(!diverges(2, acco::local_updates{.method = acco::streaming_diloco, .steps = 3, .fragments = 3}, 1.0));
}

TEST_CASE("averaging after every step of SGD is synchronous training, in every bit") {
  CHECK(trained(4, acco::local_updates{.method = acco::local_sgd, .steps = 1}, 4) == trained(4, acco::synchronous{}, 4));
  CHECK(trained(2, acco::local_updates{.method = acco::fedavg, .steps = 1}, 4) == trained(2, acco::synchronous{}, 4));
}

TEST_CASE("a worker alone that averages trains like the inner schedule, in every bit") {
  for (const unsigned steps : {1U, 3U}) {
    CHECK(trained(1, acco::local_updates{.method = acco::local_sgd, .steps = steps}, 11, 0.1) ==
          trained(1, acco::synchronous{}, 11, 0.1));
    CHECK(trained(2, acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = steps}, 11, 0.1) ==
          trained(2, acco::synchronous{}, 11, 0.1));
    const acco::two_phase inner{.pace = acco::fixed_pace{.first = 1, .second = 1}};
    CHECK(trained(1, acco::local_updates{.method = acco::local_sgd, .inner = acco::weight_prediction{}, .steps = 100}, 11, 0.1) ==
          trained(1, acco::weight_prediction{}, 11, 0.1));
    CHECK(trained(1, acco::local_updates{.method = acco::local_sgd, .inner = inner, .steps = steps}, 12, 0.1) ==
          trained(1, inner, 12, 0.1));
    CHECK(trained(1, acco::local_updates{.method = acco::local_sgd, .inner = acco::delayed{}, .steps = steps}, 11, 0.1) ==
          trained(1, acco::delayed{}, 11, 0.1));
  }
}

TEST_CASE("an eager worker alone is one that waits, in every bit where the sums are exact") {
  // eager's anchor is a round behind its worker, so the worker's path is compared
  CHECK(trained(1, acco::local_updates{.method = acco::eager{}, .steps = 2}, 4) ==
        trained(1, acco::local_updates{.method = acco::local_sgd, .steps = 2}, 4));
}

TEST_CASE("who keeps all of his own trains as without exchange, in every bit, until the end") {
  const acco::local_updates alone{.method = acco::waiting{.keep_local = 1}, .steps = 2};
  auto with = trained(3, alone, 8, 0.1, true), without = trained(1, acco::synchronous{}, 8, 0.1, true);
  with.resize(8 * 70);
  without.resize(8 * 70);
  CHECK(with == without);
}

TEST_CASE("CO2 of one step, without momentum, gap and clip, is the delayed update") {
  const acco::clipped_momentum none{.learning_rate = 1, .momentum = 0, .limit = 1e30};
  const acco::local_updates co2{.method = acco::restarting{.rule = none}, .steps = 1};
  auto late = trained(2, co2, 4), delayed = trained(2, acco::delayed{}, 4);
  late.resize(4 * 70);
  delayed.resize(4 * 70);
  CHECK(late == delayed);
}

TEST_CASE("the clipped momentum stays within its limit, and without a limit it would not") {
  const auto most_step = [](double limit) {
    double most = 0;
    acco::mock_backend::run(2, [&](acco::mock_backend const& world) {
      acco::local_updates level{.method = acco::co2, .steps = 2};
      level.method.rule = {.learning_rate = 1, .momentum = 0.2, .limit = limit};
      acco::optimizer training{level, acco::sgd{.learning_rate = 0.5}, acco::host_storage<double>{}, world, std::size_t{20}};
      training.initialize(std::vector<double>(20, 0.0));
      std::vector<double> before(20, 0.0), now(20);
      for (int t = 0; t < 20; ++t) {
        for (std::size_t i = 0; i < 20; ++i)
          training.gradients()[i] += training.parameters()[i] - 3 * static_cast<double>(i) - world.rank();
        (void)training.accumulated(1);
        if (t % 2 == 0) continue;
        training.gather_committed(now);
        for (std::size_t i = 0; i < 20; ++i) most = std::max(most, std::abs(now[i] - before[i]));
        before = now;
      }
      training.finish();
    });
    return most;
  };
  CHECK(most_step(0.25) <= 0.25 * (1 + 1e-12));
  CHECK(most_step(0.25) >= 0.25 * (1 - 1e-12));
  CHECK(most_step(1e9) > 1);
}
