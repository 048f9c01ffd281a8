// SPDX-License-Identifier: Apache-2.0
// What an encoding loses of committed gradients, and sends later: against the recurrence, and against the sum of all gradients.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "conformance/schedule.hpp"
#include "support/counting.hpp"
#include "support/problem.hpp"

namespace {

/// Half of every number arrives: what is lost does not depend on the blocks, so a recurrence says all.
struct half_of_it {
  static constexpr char const* name = "half_of_it";
  static constexpr std::size_t block_size = 64, block_bytes = block_size * sizeof(float);
  static constexpr bool biased = true;
  static void encode(float const* values, std::byte* bytes) {
    float halves[block_size];
    for (std::size_t i = 0; i < block_size; ++i) halves[i] = values[i] / 2;
    std::memcpy(bytes, halves, sizeof halves);
  }
  static void decode(std::byte const* bytes, float* values) { std::memcpy(values, bytes, block_bytes); }
};

constexpr std::size_t count = 777;
/// The sum of a micro-batch's gradients: known beforehand, whatever the parameters are.
double gradient(int rank, std::size_t step, std::size_t i) {
  return std::sin(static_cast<double>(i * 7 + step * 31) + 2 * rank) + 0.25 * problem::unit(i + 1000 * step);
}

struct story {
  double keep = 1;
  std::size_t steps = 9;
  std::optional<std::size_t> poisoned = {};  ///< a gradient of this step is not finite: the step is left out
  std::optional<std::size_t> silent = {};    ///< rank 0 brings nothing to this step
  std::optional<std::size_t> given = {};     ///< before this step everybody's parameters are set
  std::optional<acco::loss_scaling> scaling = {};
  bool raises = false;  ///< what is not finite ends the training, instead of being left out
  double close = 2e-5;
};

/// The parameters by the recurrence, in fp64: p = keep e + g, half of p arrives, e = half of p.
std::vector<double> expected(story const& s, int ranks, double rate) {
  std::vector<double> theta(count, 1.0);
  std::vector<std::vector<double>> lost(static_cast<std::size_t>(ranks), std::vector<double>(count, 0.0));
  const auto forget = [&] {
    for (auto& each : lost) each.assign(count, 0.0);
  };
  for (std::size_t step = 0; step < s.steps; ++step) {
    if (s.given == step) {
      theta.assign(count, 5.0);
      forget();
    }
    if (s.poisoned == step) {
      forget();
      continue;
    }
    const int bring = s.silent == step ? ranks - 1 : ranks;
    for (std::size_t i = 0; i < count; ++i) {
      double arrived = 0;
      for (int rank = ranks - bring; rank < ranks; ++rank) {
        double& e = lost[static_cast<std::size_t>(rank)][i];
        const double p = s.keep * e + gradient(rank, step, i);
        arrived += p / 2;
        e = p / 2;
      }
      theta[i] -= rate * arrived / bring;
    }
  }
  return theta;
}

/// The same by the library; make(wire) gives a schedule of one micro-batch a step, or two, of which each brings half.
template <class Storage = acco::host_storage<float>, class Store = acco::full, class Make>
void follows(Make&& make, int ranks, story const& s, unsigned micro_batches = 1) {
  using T = typename Storage::gradient_type;
  const double rate = 0.125;
  std::vector<double> found(count);
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::options chosen;
    if (!s.raises) chosen.on_non_finite = acco::non_finite::skip;
    chosen.bucket_elements = 300;
    chosen.loss_scale = s.scaling;
    acco::with_error_feedback<half_of_it, Store> wire;
    wire.keep = static_cast<float>(s.keep);
    acco::optimizer training{make(wire), acco::sgd{.learning_rate = rate}, Storage{}, world, count, chosen};
    training.initialize(std::vector<typename Storage::parameter_type>(count, 1.0F));
    for (std::size_t step = 0; step < s.steps; ++step) {
      if (s.given == step) {
        training.finish();
        training.set_parameters(std::vector<typename Storage::parameter_type>(count, 5.0F));
      }
      for (unsigned m = 0; m < micro_batches; ++m) {
        const bool brings = s.silent != step || world.rank() != 0;
        for (std::size_t i = 0; i < count && brings; ++i) {
          T& g = training.gradients()[i];
          g = static_cast<T>(static_cast<double>(g) + training.loss_scale() * gradient(world.rank(), step, i));
        }
        if (s.poisoned == step && world.rank() == ranks - 1) training.gradients()[5] = std::numeric_limits<T>::infinity();
        training.accumulated(brings ? 1 : 0);
      }
    }
    training.finish();
    std::vector<typename Storage::parameter_type> out(count);
    training.gather_committed(out);
    for (std::size_t i = 0; i < count && world.rank() == 0; ++i) found[i] = static_cast<double>(out[i]);
  });
  const std::vector<double> right = expected(s, ranks, rate);
  double beside = 0;
  for (std::size_t i = 0; i < count; ++i) beside = std::max(beside, std::abs(right[i] - found[i]));
  CHECK(beside < s.close);
}

template <class Feedback>
using gradients_only = acco::coded<Feedback, acco::full>;
constexpr auto synchronous = [](auto wire) { return acco::synchronous{.commit = gradients_only<decltype(wire)>{wire}}; };

}  // namespace

TEST_CASE("what is lost arrives later, under every schedule, on any number of ranks: the recurrence") {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const double keep : {1.0, 0.5, 0.0}) {
      CAPTURE(ranks);
      CAPTURE(keep);
      const story s{.keep = keep};
      follows(synchronous, ranks, s);
      follows(synchronous, ranks, {.keep = keep, .raises = true});
      follows([](auto wire) { return acco::delayed{.commit = gradients_only<decltype(wire)>{wire}}; }, ranks, s);
      follows([](auto wire) { return acco::weight_prediction{.commit = gradients_only<decltype(wire)>{wire}}; }, ranks, s);
    }
  }
}
TEST_CASE("two_phase: nothing of the estimate is fed back, whichever way it travels") {
  const auto with = [](auto estimate) {
    return [estimate](auto wire) {
      return acco::two_phase{
          .estimate = estimate, .commit = gradients_only<decltype(wire)>{wire}, .pace = acco::fixed_pace{1, 1}};
    };
  };
  for (const double keep : {1.0, 0.5}) {
    const story s{.keep = keep};
    follows(with(acco::block_int4{}), 3, s, 2);  // two equal micro-batches: the same mean
    follows(with(acco::coded<acco::block_ternary, acco::block_ternary>{}), 3, s, 2);
    follows(with(acco::own_slice{}), 3, s, 2);
  }
}
TEST_CASE("numbers of other types, and a loss scale that changes") {
  follows<acco::host_storage<double>>(synchronous, 2, {});
  follows<acco::host_storage<float, acco::bfloat16>>(synchronous, 2, {.steps = 5, .close = 0.02});  // rounds what is kept
  follows<acco::host_storage<float>, float>(synchronous, 3, {});
  follows<acco::host_storage<float>, acco::bfloat16>(synchronous, 3, {.keep = 0.5, .poisoned = 4, .close = 4e-3});
  for (const double keep : {1.0, 0.75})
    follows(synchronous, 2, {.keep = keep, .scaling = acco::loss_scaling{.initial = 64, .growth = 2, .interval = 2}});
}
TEST_CASE("a step that is left out takes with it what was lost; a rank that brings nothing keeps it; new parameters begin anew") {
  for (const int ranks : {2, 3}) {
    follows(synchronous, ranks, {.poisoned = 4});
    follows(synchronous, ranks, {.silent = 4});
    follows(synchronous, ranks, {.given = 4});
    follows(synchronous, ranks, {.poisoned = 3, .scaling = acco::loss_scaling{.initial = 1024, .growth = 2, .interval = 2}});
    follows([](auto wire) { return acco::delayed{.commit = gradients_only<decltype(wire)>{wire}}; }, ranks, {.poisoned = 4});
  }
}
#ifndef ACCO_SANITIZED
namespace {

/// The loss a number of a bowl after `steps` steps of a rule on two ranks.
double loss_after(int steps, auto rule, auto commit) {
  constexpr std::size_t n = 2048;
  double loss = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::synchronous{.commit = commit},
                             rule,
                             acco::host_storage<float>{},
                             world,
                             n,
                             acco::options{.check_habits = acco::habit_checks::off}};  // gradients may become 0
    training.initialize(std::vector<float>(n, 0.0F));
    double sum = 0;
    for (int step = 0; step < steps; ++step) {
      sum = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const float target = static_cast<float>(std::sqrt(-2 * std::log(1 - problem::unit(2 * i))) *
                                                std::cos(6.2831853 * problem::unit(2 * i + 1)));
        const float d = training.parameters()[i] - target;
        training.gradients()[i] += d;
        sum += static_cast<double>(d * d) / 2 / n;
      }
      training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0) loss = sum;
  });
  return loss;
}

}  // namespace

TEST_CASE("codes that are not loose follow a rule with momentum to where it goes without them; loose ones do not, and say so") {
  const acco::sgd heavy{.learning_rate = 0.05, .momentum = 0.9};
  const auto parameters = [&](auto rule, auto code) { return loss_after(400, rule, acco::coded<acco::full, decltype(code)>{}); };
  const auto gradients = [&](auto rule, auto code) { return loss_after(400, rule, acco::coded<decltype(code), acco::full>{}); };
  const auto follows = [&](auto code) {
    static_assert(!acco::loose<decltype(code)>);
    CHECK(parameters(heavy, code) < 1e-9);
    CHECK(gradients(heavy, acco::with_error_feedback<decltype(code)>{}) < 1e-9);
  };
  follows(acco::block_int8{});
  follows(acco::block_int4{});
  follows(acco::block_gauss4{});
  follows(acco::block_gauss3{});
  follows(acco::block_gauss2{});
  const acco::adamw bounded{.learning_rate = 0.01, .beta2 = 0.99, .weight_decay = 0};
  const auto falls_behind = [&](auto code) {
    static_assert(acco::loose<decltype(code)>);
    CHECK_FALSE(parameters(heavy, acco::loosely<decltype(code)>{}) < 1);
    CHECK_FALSE(gradients(heavy, acco::loosely<acco::with_error_feedback<decltype(code)>>{}) < 0.1);
    CHECK(loss_after(800, bounded, acco::coded<acco::full, decltype(code)>{}) < 1e-3);
    CHECK(loss_after(800, bounded, acco::coded<acco::with_error_feedback<decltype(code)>, acco::full>{}) < 1e-3);
    CHECK(parameters(acco::sgd{.learning_rate = 0.05}, acco::loosely<decltype(code)>{}) < 1e-3);
  };
  falls_behind(acco::block_ternary{});
  falls_behind(acco::rotated_gauss2{});
  falls_behind(acco::block_top<16>{});
}
#endif

TEST_CASE("what does not fit into half is cut off, and not taken for a gradient that is not finite") {
  acco::threads_backend::run(1, [](acco::threads_backend const& world) {
    using feedback = acco::with_error_feedback<acco::block_gauss2>;
    acco::optimizer training{acco::synchronous{.commit = acco::coded<feedback, acco::full>{}}, acco::sgd{.learning_rate = 1e-6},
                             acco::host_storage<acco::half>{}, world, std::size_t{256}};
    training.initialize(std::vector<acco::half>(256, acco::half(0.0F)));
    for (int step = 0; step < 40; ++step) {
      for (std::size_t i = 0; i < 256; ++i) training.gradients()[i] = acco::half(i == 0 ? 60000.0F : 30000.0F);
      CHECK_NOTHROW(training.accumulated(1));
    }
    training.finish();
    CHECK(static_cast<float>(training.parameters()[0]) < -0.5F);
  });
}

TEST_CASE("back to a snapshot: what codes had lost is what it was then") {
  double after_rewind = 0, right = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto train = [&](acco::options const& chosen, auto&& then) {
      acco::optimizer training{synchronous(acco::with_error_feedback<half_of_it>{}),
                               acco::sgd{.learning_rate = 0.125},
                               acco::host_storage<float>{},
                               world,
                               count,
                               chosen};
      training.initialize(std::vector<float>(count, 1.0F));
      const auto step = [&](std::size_t which) {
        for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += static_cast<float>(gradient(world.rank(), which, i));
        training.accumulated(1);
      };
      then(training, step);
      training.finish();
      return static_cast<double>(training.parameters()[3]);
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

#ifndef ACCO_SANITIZED  // of numbers alone, and long: thousands of steps, which the cases above take a few of
TEST_CASE_TEMPLATE("telescoping: once nothing is added, all that ever was has arrived", Encoding, acco::block_gauss2,
                   acco::block_gauss3, acco::rotated_gauss2, acco::block_ternary, acco::block_int4<>) {
  const auto missing = [](auto wire, int ranks) {
    double furthest = 0;
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::delayed{.commit = acco::coded<decltype(wire), acco::full>{}},
                               acco::sgd{.learning_rate = 0.25},
                               acco::host_storage<float>{},
                               world,
                               count,
                               acco::options{.check_habits = acco::habit_checks::off}};  // gradients end on purpose
      training.initialize(std::vector<float>(count, 0.0F));
      std::vector<double> sum(count, 0.0);
      for (std::size_t step = 0; step < 400; ++step) {
        for (std::size_t i = 0; i < count && step < 8; ++i) {
          training.gradients()[i] += static_cast<float>(gradient(world.rank(), step, i));
          for (int rank = 0; rank < ranks; ++rank)
            sum[i] += 0.25 * static_cast<double>(static_cast<float>(gradient(rank, step, i))) / ranks;
        }
        training.accumulated(1);
      }
      training.finish();
      for (std::size_t i = 0; i < count && world.rank() == 0; ++i)
        furthest = std::max(furthest, std::abs(static_cast<double>(training.parameters()[i]) + sum[i]));
    });
    return furthest;
  };
  for (const int ranks : {1, 3}) {
    CHECK(missing(acco::loosely<acco::with_error_feedback<Encoding>>{}, ranks) < 3e-5);
    CHECK(missing(acco::without_feedback<Encoding>{}, ranks) > 3e-3);
  }
}

#endif

TEST_CASE("memory() counts what is kept; a steady round allocates nothing; ranks that keep differently are told") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto make = [&](auto wire) {
      return acco::optimizer{acco::delayed{.commit = gradients_only<decltype(wire)>{wire}}, acco::sgd{},
                             acco::host_storage<float>{}, world, std::size_t{64'000}};
    };
    auto with = make(acco::with_error_feedback<acco::block_gauss2>{});
    auto without = make(acco::without_feedback<acco::block_gauss2>{});
    const auto kept = [&](auto wire) { return make(wire).memory().encoded - without.memory().encoded; };
    const std::size_t halves = kept(acco::with_error_feedback<acco::block_gauss2, acco::bfloat16>{});
    const std::size_t bytes = kept(acco::with_error_feedback<acco::block_gauss2, acco::int8_blocks>{});
    CHECK(halves >= 2 * 64'000);
    CHECK(halves < 2 * 64'000 + 8192);
    CHECK(bytes >= 64'000 * 260 / 256);
    CHECK(bytes < 64'000 * 260 / 256 + 8192);
    const std::size_t more = with.memory().encoded - without.memory().encoded;
    CHECK(more >= 4 * 64'000);
    CHECK(more < 4 * 64'000 + 8192);
    with.initialize(std::vector<float>(64'000, 1.0F));
    std::size_t before = 0;
    for (int m = 0; m < 20; ++m) {
      if (m == 10) {
        std::vector<double> nothing(1);
        with.sum_over_ranks(nothing);
        before = counting::news();
      }
      with.gradients()[0] += 1;
      with.accumulated(1);
    }
    CHECK(counting::news() == before);
    with.finish();

    acco::with_error_feedback<acco::block_gauss2> other;
    other.keep = world.rank() == 0 ? 1.0F : 0.5F;
    auto differs = make(other);
    try {
      differs.initialize(std::vector<float>(64'000, 1.0F));
      FAIL("ranks that keep differently trained");
    } catch (acco::mismatch_error const& e) {
      CHECK(std::string(e.what()).find("commit feedback keeps") != std::string::npos);
    }
    other.keep = 1.5F;
    CHECK_THROWS_WITH_AS(make(other), doctest::Contains("with_error_feedback::keep is 1.5"), acco::usage_error);
  });
}
