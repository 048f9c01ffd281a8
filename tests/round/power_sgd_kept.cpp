// SPDX-License-Identifier: Apache-2.0
// What PowerSGD has not sent: that it comes later, counts as memory, is gone back to; and what is refused.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/counting.hpp"
#include "support/low_rank_problem.hpp"

using namespace low_rank_problem;

TEST_CASE("telescoping: once nothing is added, all that ever was has arrived") {
  double missing = 0, early = 0;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::synchronous{.commit = of_rank(1)},
                             acco::sgd{.learning_rate = 0.25},
                             storage{},
                             world,
                             layout(),
                             acco::options{.check_habits = acco::habit_checks::off}};
    training.initialize(std::vector<double>(count, 0.0));
    std::vector<double> sum(count, 0.0);
    for (std::size_t step = 0; step < 120; ++step) {
      double weight = 0;
      for (int r = 0; r < 3; ++r) weight += static_cast<double>(samples(r, 0));
      for (std::size_t i = 0; i < count && step < 4; ++i) {
        training.gradients()[i] += gradient(world.rank(), 0, i + step);
        for (int r = 0; r < 3; ++r) sum[i] += 0.25 * gradient(r, 0, i + step) / weight;
      }
      training.accumulated(static_cast<double>(samples(world.rank(), 0)));
      double furthest = 0;
      for (std::size_t i = 0; i < count; ++i) furthest = std::max(furthest, std::abs(training.parameters()[i] + sum[i]));
      if (world.rank() == 0 && step == 3) early = furthest;
      if (world.rank() == 0) missing = furthest;
    }
    training.finish();
  });
  CHECK(missing < 1e-9);
  CHECK(early > 1e-2);
}

namespace {

/// Keeps nothing of what was not sent.
struct forgetful : acco::host_storage<double> {
  static void low_rank_end(queue& q, acco::low_rank_view<double> const& view, double scale, double const* mine, double const* all,
                           bool const* skip) {
    host_storage::low_rank_end(q, view, scale, mine, all, skip);
    q.enqueue([view] { std::fill_n(view.kept, view.matrices[0].size(), 0.0); });
  }
};
/// How far from the target gradient descent ends whose gradients have a large part, of rank 1, that changes its sign.
template <class Storage>
double distance(unsigned rank) {
  double found = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::parameter_layout one;
    one.add("matrix", {12, 9});
    acco::optimizer training{acco::synchronous{.commit = wire{{.rank = rank, .min_compression = 0}}},
                             acco::sgd{.learning_rate = 0.02}, Storage{}, world, one};
    training.initialize(std::vector<double>(108, 0.0));
    double squares = 0;
    for (int step = 0; step < 800; ++step) {
      squares = 0;
      for (std::size_t i = 0; i < 108; ++i) {
        const double lacks = training.parameters()[i] - (2 * problem::unit(i) - 1);
        training.gradients()[i] += lacks + (step % 2 == 0 ? 1.0 : -1.0);
        squares += lacks * lacks;
      }
      training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0) found = std::sqrt(squares / 108);
  });
  return found;
}

}  // namespace

TEST_CASE("least squares of noisy gradients: with what was not sent rank 1 converges; without it never hears of the rest") {
  CHECK(distance<storage>(9) < 0.02);
  CHECK(distance<storage>(1) < 0.1);
  CHECK(distance<forgetful>(1) > 0.3);
}
TEST_CASE("bytes are those of the thin matrices and of what travels exactly; memory counts what is kept; nothing is allocated") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&](auto schedule) { return acco::optimizer{schedule, acco::sgd{}, storage{}, world, layout()}; };
    auto full = make(acco::synchronous{});
    auto low = make(acco::synchronous{.commit = of_rank(2)});
    const auto padded = [](std::size_t numbers) { return ((numbers + 1) / 2 + 63) / 64 * 64 * 2; };
    const std::size_t first = padded(2 * (12 + 8) + 12 + 70), second = padded(2 * (9 + 18)),
                      kept = 12 * 9 + 8 * 18 + 2 * (9 + 18);
    const std::size_t more = low.memory().encoded - full.memory().encoded;
    CHECK(more >= sizeof(double) * (kept + 2 * first + second));
    CHECK(more < sizeof(double) * (kept + 2 * first + second) + 2048);
    std::size_t before = 0;
    const auto train = [&](auto& training) {
      training.initialize(std::vector<double>(count, 1.0));
      std::uint64_t sent = 0;
      for (int m = 0; m < 8; ++m) {
        if (m == 4) {
          std::vector<double> nothing(1);
          training.sum_over_ranks(nothing);
          before = counting::news();
        }
        training.gradients()[0] += 1;
        sent = training.accumulated(1)->bytes_sent;
      }
      CHECK(counting::news() == before);
      training.finish();
      return sent;
    };
    const std::uint64_t whole = train(full), thin = train(low);
    const std::size_t reduce_scatter = padded(count) / 2;
    CHECK(thin - whole + sizeof(double) * reduce_scatter == sizeof(double) * (first + second));
  });
}
TEST_CASE("back to a snapshot: what was kept is what it was then") {
  double after_rewind = 0, right = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto train = [&](acco::options const& chosen, auto&& then) {
      acco::optimizer training{
          acco::synchronous{.commit = of_rank(1)}, acco::sgd{.learning_rate = 0.125}, storage{}, world, layout(), chosen};
      training.initialize(std::vector<double>(count, 1.0));
      const auto step = [&](std::size_t which) {
        for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += gradient(world.rank(), which, i);
        training.accumulated(1);
      };
      then(training, step);
      training.finish();
      return training.parameters()[3];
    };
    acco::options snapshots;
    snapshots.snapshots = 3;
    snapshots.snapshot_every = 1;
    const double back = train(snapshots, [&](auto& training, auto&& step) {
      step(0);
      step(1);
      step(2);
      REQUIRE(training.rewind(2).undone == 2);
      step(3);
    });
    const double straight = train({}, [&](auto&, auto&& step) {
      step(0);
      step(3);
    });
    if (world.rank() == 0) after_rewind = back, right = straight;
  });
  CHECK(after_rewind == right);
}
TEST_CASE("what makes no sense is refused; ranks of different rank are told") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&](wire const& w, auto what) {
      return acco::optimizer{acco::synchronous{.commit = w}, acco::sgd{}, storage{}, world, what};
    };
    CHECK_THROWS_WITH_AS(make({{.rank = 0}}, layout()), doctest::Contains("power_sgd::rank is 0"), acco::usage_error);
    CHECK_THROWS_WITH_AS(make({{.min_compression = -1}}, layout()), doctest::Contains("power_sgd::min_compression is -1"),
                         acco::usage_error);
    CHECK_THROWS_WITH_AS(make({}, std::size_t{4096}), doctest::Contains("no trainable tensor is a matrix that rank 4"),
                         acco::usage_error);
    auto differs = make(of_rank(world.rank() == 0 ? 1 : 2), layout());
    try {
      differs.initialize(std::vector<double>(count, 1.0));
      FAIL("ranks of different rank trained");
    } catch (acco::mismatch_error const& e) {
      CHECK(std::string(e.what()).find("power_sgd of rank") != std::string::npos);
    }
  });
}
