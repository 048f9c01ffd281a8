// SPDX-License-Identifier: Apache-2.0
// Gradients of matrices as products of thin ones: against the algorithm of the paper (PowerSGD, arXiv 1905.13727),
// written down plainly in fp64, through rounds that count and rounds that do not.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/counting.hpp"
#include "support/worlds.hpp"

namespace {

using storage = acco::host_storage<double>;
using vector = std::vector<double>;
acco::with_error_feedback<acco::power_sgd> with_rank(unsigned rank) { return {{.rank = rank}, {}}; }
const acco::power_sgd all_of_it{.rank = 100, .min_compression = 0};

/// Two matrices that pay at rank 3 and one that does not, of sizes that no pack and no share divides; a vector; a
/// frozen tensor in between, whose elements do not travel.
struct matrix {
  std::size_t rows, columns, begin;
};
constexpr matrix matrices[] = {{23, 17, 0}, {14, 30, 23 * 17 + 12}};
constexpr std::size_t trainable = 23 * 17 + 12 + 14 * 30 + 70, frozen = 9;
acco::parameter_layout layout(std::size_t rule_of_tall = 0) {
  acco::parameter_layout found;
  const std::size_t still = found.add_group({.frozen = true}), tall = found.add_group({.rule = rule_of_tall});
  found.add("tall", {23, 17}, tall).add("small", {4, 3}).add("frozen", {3, 3}, still).add("deep", {14, 6, 5}).add("vector", {70});
  return found;
}
std::size_t in_layout(std::size_t element) { return element < matrices[1].begin ? element : element + frozen; }

double weight(int rank, std::size_t step) { return 1.0 + static_cast<double>((static_cast<std::size_t>(rank) + step) % 3); }
double gradient(int rank, std::size_t step, std::size_t i) {
  const auto x = static_cast<double>(i);
  return weight(rank, step) * (std::sin(x * x + 7 * x + 31 * static_cast<double>(step) + 2 * rank) + 0.25 * std::cos(3 * x));
}
/// What becomes of a step: a gradient of the last rank is not finite; nobody brings anything; rank 0 does not.
enum class fate { counts, poisoned, empty, without_rank_0 };
fate fate_of(std::size_t step) {
  return step % 7 == 3 ? fate::poisoned : step % 7 == 5 ? fate::empty : step % 7 == 2 ? fate::without_rank_0 : fate::counts;
}
bool brings(int rank, int ranks, std::size_t step) {
  return fate_of(step) != fate::empty && (fate_of(step) != fate::without_rank_0 || rank != 0 || ranks == 1);
}
double brought(int rank, int ranks, std::size_t step, std::size_t i) {
  return brings(rank, ranks, step) ? gradient(rank, step, i) : 0;
}
double all_of(int ranks, std::size_t step) {
  double all = 0;
  for (int r = 0; r < ranks; ++r) all += brings(r, ranks, step) ? weight(r, step) : 0;
  return all;
}

/// The algorithm: p_i = g_i + e_i, P = orthonormal(sum of p_i Q), Q = sum of p_i' P, M = P Q', e_i = p_i - P P' p_i.
struct algorithm {
  int ranks;
  std::size_t rank;
  bool feeds;
  std::vector<vector> e = std::vector<vector>(static_cast<std::size_t>(ranks), vector(trainable));
  std::vector<std::vector<vector>> q = {};

  algorithm(int all, std::size_t of, bool with_feedback) : ranks(all), rank(of), feeds(with_feedback) {
    for (matrix const& m : matrices) {
      q.emplace_back();
      for (std::size_t v = 0; v < rank; ++v) {
        q.back().emplace_back();
        for (std::size_t k = 0; k < m.columns; ++k) {
          const std::uint32_t bits = acco::random_bits(std::uint64_t{1} << 32U, m.begin + v * m.columns + k);
          q.back().back().push_back(bits / 2147483648.0 - 1);
        }
      }
    }
  }
  /// What is taken for the sum of all gradients of a step that counts.
  vector operator()(std::size_t step) {
    vector sum(trainable);
    for (int r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < trainable; ++i) sum[i] += brought(r, ranks, step, i) + e[static_cast<std::size_t>(r)][i];
    }
    const vector sent = sum;
    for (std::size_t k = 0; k < 2; ++k) {
      const auto [m, n, begin] = matrices[k];
      std::vector<vector> p;
      for (vector const& direction : q[k]) {
        vector x(m);
        for (std::size_t i = 0; i < m * n; ++i) x[i / n] += sent[begin + i] * direction[i % n];
        const auto dot = [&](vector const& y) {
          double found = 0;
          for (std::size_t i = 0; i < m; ++i) found += x[i] * y[i];
          return found;
        };
        for (std::size_t w = 0; w < 2 * p.size(); ++w) {
          vector const& y = p[w % p.size()];
          const double share = dot(y);
          for (std::size_t i = 0; i < m; ++i) x[i] -= share * y[i];
        }
        const double norm = std::sqrt(dot(x));
        for (double& each : x) each /= norm;
        p.push_back(x);
      }
      std::fill_n(sum.begin() + static_cast<std::ptrdiff_t>(begin), m * n, 0.0);
      for (std::size_t v = 0; v < rank; ++v) {
        q[k][v].assign(n, 0.0);
        for (std::size_t i = 0; i < m * n; ++i) q[k][v][i % n] += sent[begin + i] * p[v][i / n];
        for (std::size_t i = 0; i < m * n; ++i) sum[begin + i] += p[v][i / n] * q[k][v][i % n];
      }
      for (int r = 0; feeds && r < ranks; ++r) {
        double* const kept = e[static_cast<std::size_t>(r)].data() + begin;
        for (std::size_t i = 0; i < m * n; ++i) kept[i] += brought(r, ranks, step, begin + i);
        const vector own(kept, kept + m * n);
        for (std::size_t v = 0; v < rank; ++v) {
          for (std::size_t column = 0; column < n; ++column) {
            double along = 0;
            for (std::size_t i = 0; i < m; ++i) along += own[i * n + column] * p[v][i];
            for (std::size_t i = 0; i < m; ++i) kept[i * n + column] -= p[v][i] * along;
          }
        }
      }
    }
    return sum;
  }
};

constexpr std::size_t steps = 10;
constexpr double rate = 0.125;

/// Trains, and calls look(training, step, rank) after each micro-batch, of which a step has as many.
template <class World = worlds::threads, class Schedule, class Rule, class Look>
void train(int ranks, Schedule schedule, Rule rule, unsigned micro_batches, Look&& look) {
  World::run(ranks, [&](typename World::backend world) {
    acco::round_engine<storage> training(std::make_unique<acco::schedule_of<Schedule, storage>>(schedule),
                                         std::make_unique<acco::rule_of<Rule, storage>>(rule), storage{},
                                         std::make_unique<acco::backend_of<typename World::backend, storage>>(world),
                                         layout(acco::matrix_rule<Rule> ? 1 : 0),
                                         {.on_non_finite = acco::non_finite::skip,
                                          .check_habits = acco::habit_checks::off,
                                          .compare_every = 1,
                                          .bucket_elements = 300});
    training.initialize(vector(trainable + frozen, 1.0));
    for (std::size_t step = 0; step < steps; ++step) {
      for (unsigned m = 0; m < micro_batches; ++m) {
        const bool does = brings(world.rank(), ranks, step);
        for (std::size_t i = 0; does && i < trainable; ++i)
          training.gradients()[in_layout(i)] += gradient(world.rank(), step, i) / micro_batches;
        if (fate_of(step) == fate::poisoned && world.rank() == ranks - 1)
          training.gradients()[50] = std::numeric_limits<double>::quiet_NaN();
        (void)training.accumulated(does ? weight(world.rank(), step) / micro_batches : 0, 0);
        look(training, step, world.rank());
      }
    }
    training.finish(acco::unfinished::commit);
    look(training, steps, world.rank());
  });
}
/// The parameters at the end, on every rank alike.
template <class World = worlds::threads, class Schedule, class Rule = acco::sgd>
vector trained(int ranks, Schedule schedule, unsigned micro_batches = 1, Rule rule = {.learning_rate = rate}) {
  std::vector<vector> found(static_cast<std::size_t>(ranks));
  train<World>(ranks, schedule, rule, micro_batches, [&](auto& training, std::size_t step, int rank) {
    if (step == steps) found[static_cast<std::size_t>(rank)].assign(training.parameters().begin(), training.parameters().end());
  });
  for (vector const& each : found) CHECK(each == found[0]);
  return found[0];
}
double furthest(vector const& a, vector const& b) {
  REQUIRE(a.size() == b.size());
  double found = 0;
  for (std::size_t i = 0; i < a.size(); ++i) found = std::max(found, std::abs(a[i] - b[i]));
  return found;
}
/// What the algorithm ends with, and what each rank keeps then.
vector expected(algorithm& a) {
  vector theta(trainable + frozen, 1.0);
  for (std::size_t step = 0; step < steps; ++step) {
    if (fate_of(step) == fate::poisoned || fate_of(step) == fate::empty) continue;
    const vector sum = a(step);
    for (std::size_t i = 0; i < trainable; ++i) theta[in_layout(i)] -= rate * sum[i] / all_of(a.ranks, step);
  }
  return theta;
}

}  // namespace

TEST_CASE("on any number of ranks of unequal weight: the algorithm of the paper, and what is kept is what was not applied") {
  for (const int ranks : {1, 2, 3}) {
    for (const unsigned rank : {1U, 2U, 3U}) {
      CAPTURE(ranks);
      CAPTURE(rank);
      algorithm a(ranks, rank, true);
      const vector theta = expected(a);
      vector missing(trainable);  // what was computed, less what was applied, and what is kept
      std::mutex one_at_a_time;
      std::vector<vector> before(static_cast<std::size_t>(ranks), vector(trainable + frozen, 1.0));
      train(ranks, acco::synchronous{.commit = with_rank(rank)}, acco::sgd{.learning_rate = rate}, 1,
            [&](auto& training, std::size_t step, int r) {
              const vector now(training.parameters().begin(), training.parameters().end());
              const vector e(training.feedback().begin(), training.feedback().end());
              const std::scoped_lock lock(one_at_a_time);
              vector& last = before[static_cast<std::size_t>(r)];
              for (std::size_t i = 0; i < trainable; ++i) {
                if (step < steps && fate_of(step) != fate::poisoned) missing[i] += brought(r, ranks, step, i);
                if (r == 0 && step < steps) missing[i] -= (last[in_layout(i)] - now[in_layout(i)]) / rate * all_of(ranks, step);
                if (step == steps) missing[i] -= e[i];
              }
              last = now;
              if (step != steps) return;
              CHECK(furthest(now, theta) < 1e-11);
              CHECK(furthest(e, a.e[static_cast<std::size_t>(r)]) < 1e-11);
            });
      CHECK(furthest(missing, vector(trainable)) < 1e-10);
    }
  }
}

TEST_CASE("without feedback; late; in two halves, whichever way estimates travel; with parameters that travel encoded") {
  algorithm plain(3, 2, false), feeding(3, 2, true);
  const vector without = expected(plain), with = expected(feeding);
  CHECK(furthest(trained(3, acco::synchronous{.commit = acco::without_feedback<acco::power_sgd>{{.rank = 2}}}), without) < 1e-11);
  CHECK(furthest(with, without) > 1e-3);
  CHECK(furthest(trained(3, acco::delayed{.commit = with_rank(2)}), with) < 1e-11);
  CHECK(furthest(trained<worlds::mock_late>(3, acco::delayed{.commit = with_rank(2)}), with) < 1e-11);
  const acco::fixed_pace halves{1, 1};
  CHECK(furthest(trained(3, acco::two_phase{.estimate = acco::block_int4{}, .commit = with_rank(2), .pace = halves}, 2), with) <
        1e-11);
  CHECK(furthest(trained(3, acco::synchronous{.commit = acco::coded{with_rank(2), acco::block_int8{}}}), with) < 1e-11);
}

TEST_CASE("estimates travel as products, without a residual, and go on in the directions of the last") {
  algorithm a(2, 2, false);
  std::vector<vector> shown(steps, vector(trainable + frozen));
  vector theta(trainable + frozen, 1.0);
  for (std::size_t step = 0; step < steps; ++step) {
    shown[step] = theta;
    if (fate_of(step) == fate::poisoned || fate_of(step) == fate::empty) continue;
    const vector sum = a(step);
    for (std::size_t i = 0; i < trainable; ++i) {
      shown[step][in_layout(i)] -= rate * sum[i] / all_of(2, step);
      for (int r = 0; r < 2; ++r) theta[in_layout(i)] -= rate * brought(r, 2, step, i) / all_of(2, step);
    }
  }
  std::size_t calls[2] = {};
  train(2, acco::two_phase{.estimate = acco::power_sgd{.rank = 2}, .pace = acco::fixed_pace{1, 1}},
        acco::sgd{.learning_rate = rate}, 2, [&](auto& training, std::size_t step, int rank) {
          if (step == steps || calls[rank]++ % 2 == 0) return;
          CHECK(furthest({training.parameters().begin(), training.parameters().end()}, shown[step]) < 1e-11);
        });
  CHECK(calls[1] == 2 * steps);
}

TEST_CASE(
    "a rank of the smaller side or more is exact, for matrices of a rule, which lie elsewhere, and a commit that adds, too") {
  const acco::with_error_feedback<acco::power_sgd> exact{all_of_it, {}};
  for (const int ranks : {1, 3})
    CHECK(furthest(trained(ranks, acco::synchronous{.commit = exact}), trained(ranks, acco::synchronous{})) < 1e-11);
  const acco::two_phase adds{.commit = exact, .pace = acco::fixed_pace{1, 1}};
  CHECK(furthest(trained(3, adds, 2), trained(3, acco::synchronous{})) < 1e-11);
  const acco::rules both{acco::sgd{.learning_rate = rate}, acco::muon{.learning_rate = 0.01}};
  CHECK(furthest(trained(3, acco::synchronous{.commit = exact}, 1, both), trained(3, acco::synchronous{}, 1, both)) < 1e-9);
}

TEST_CASE("bytes are those of the thin matrices and of what travels exactly; memory has what is kept; nothing is allocated") {
  constexpr int ranks = 3;
  const auto padded = [](std::size_t numbers) { return ((numbers + ranks - 1) / ranks + 63) / 64 * 64 * ranks; };
  const std::size_t first = padded(2 * (23 + 14) + 12 + 70), second = padded(2 * (17 + 30));
  worlds::threads::run(ranks, [&](acco::threads_backend const& world) {
    const auto bytes = [&](auto schedule) {
      acco::optimizer training{schedule, acco::sgd{}, storage{}, world, layout(), {.check_habits = acco::habit_checks::off}};
      training.initialize(vector(trainable + frozen, 1.0));
      std::uint64_t sent = 0;
      for (int m = 0; m < 3; ++m) {  // the first round tells all ranks in which directions they are to begin, too
        for (std::size_t i = 0; i < trainable; ++i) training.gradients()[in_layout(i)] += gradient(world.rank(), 0, i);
        sent = training.accumulated(1)->bytes_sent;
      }
      training.finish();
      return std::pair(sent, training.memory().encoded);
    };
    const auto [whole, none] = bytes(acco::synchronous{});
    const auto [thin, kept] = bytes(acco::synchronous{.commit = with_rank(2)});
    const auto of = [](acco::collective operation, std::size_t numbers) {
      return acco::bytes_sent(operation, ranks, sizeof(double) * numbers);
    };
    CHECK(thin + of(acco::collective::reduce_scatter, padded(trainable)) ==
          whole + of(acco::collective::all_to_all, first + second) + of(acco::collective::all_gather, first + second));
    const std::size_t expected = 3 * first + second + 2 * (17 + 30) + padded(trainable) / ranks * (1 + ranks);
    CHECK(kept - none >= sizeof(double) * expected);
    CHECK(kept - none <= sizeof(double) * expected + 64 * 6 * 9);
  });
  acco::optimizer alone{acco::synchronous{.commit = with_rank(2)}, acco::sgd{}, storage{}, acco::solo_backend{}, layout(),
                        {.check_habits = acco::habit_checks::off}};
  alone.initialize(vector(trainable + frozen, 1.0));
  std::size_t before = 0;
  for (int m = 0; m < 4; ++m) {
    alone.gradients()[3] += 1;
    (void)alone.accumulated(1);
    if (m == 0) before = counting::news();
  }
  CHECK(counting::news() == before);
  alone.finish();
}

TEST_CASE("gradients in half: what is kept of several is larger than any of them; estimates need nothing kept") {
  constexpr std::size_t side = 32;
  acco::parameter_layout square;
  square.add("square", {side, side});
  const auto trained = [&](auto schedule, float gradient) {
    acco::optimizer training{schedule, acco::sgd{.learning_rate = 1, .momentum = 0}, acco::host_storage<float, acco::half>{},
                             acco::solo_backend{}, square};
    training.initialize(std::vector<float>(side * side, 0.0F));
    for (int m = 0; m < 8; ++m) {
      for (std::size_t i = 0; i < side * side; ++i)
        training.gradients()[i] =
            static_cast<acco::half>(i % (side + 1) == 0 ? gradient : 0.0F);  // of as many directions as it has
      (void)training.accumulated(1);
    }
    training.finish();
    double most = 0;
    for (const float x : training.parameters()) most = std::max(most, std::abs(static_cast<double>(x)));
    return most;
  };
  const acco::fixed_pace halves{.first = 1, .second = 1};
  CHECK(trained(acco::synchronous{.commit = with_rank(1)}, 60000) < 8 * 60000.0 + 1);  // not infinite, which would end it
  CHECK(trained(acco::two_phase{.estimate = acco::power_sgd{.rank = 1}, .pace = halves}, 20000) == 4 * 20000.0);
}

TEST_CASE(
    "a gradient that is not finite ends the training, and is named; what makes no sense is refused; ranks are told of others") {
  worlds::threads::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&](acco::power_sgd const& of, acco::parameter_layout what) {
      return acco::optimizer{acco::synchronous{.commit = acco::with_feedback{of, acco::error_feedback{}}}, acco::sgd{}, storage{},
                             world, std::move(what)};
    };
    auto training = make({.rank = 1}, layout());
    training.initialize(vector(trainable + frozen, 1.0));
    if (world.rank() == 1) training.gradients()[in_layout(matrices[1].begin) + 7] = std::numeric_limits<double>::infinity();
    CHECK_THROWS_WITH_AS(training.accumulated(1),
                         doctest::Contains("rank 1 brought 1 gradients that are infinite or not a "
                                           "number, the first in tensor 'deep' at element 7"),
                         acco::non_finite_error);
    CHECK_THROWS_WITH_AS(make({.rank = 0}, layout()), doctest::Contains("power_sgd::rank is 0"), acco::usage_error);
    CHECK_THROWS_WITH_AS(make({.min_compression = -1}, layout()), doctest::Contains("power_sgd::min_compression is -1"),
                         acco::usage_error);
    CHECK_THROWS_WITH_AS(make({}, acco::parameter_layout(4096)), doctest::Contains("no trainable tensor is a matrix that rank 4"),
                         acco::usage_error);
    auto differs = make({.rank = world.rank() == 0 ? 1U : 2U}, layout());
    CHECK_THROWS_WITH_AS(differs.initialize(vector(trainable + frozen, 1.0)), doctest::Contains("commit gradients.rank"),
                         acco::mismatch_error);
  });
}
