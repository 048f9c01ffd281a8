// SPDX-License-Identifier: Apache-2.0
// Rounds that travel encoded: the same training where the encoding loses nothing, and what may be said where it does.
#include <cmath>
#include <limits>
#include <string>

#include "conformance/schedule.hpp"
#include "support/counting.hpp"
#include "support/float_wire.hpp"

namespace {

constexpr double rounding = 2e-4;  // of fp32 on the wire, as AdamW enlarges it in the steps of a test
acco::fixed_pace pace(unsigned first, unsigned second) { return {.first = first, .second = second}; }

/// Gradients of a quadratic, different on every rank.
template <class Training>
double add_quadratic(Training& training, int rank) {
  auto const p = training.parameters();
  auto const g = training.gradients();
  double loss = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float d = static_cast<float>(p[i]) - std::sin(static_cast<float>(i)) + 0.1F * static_cast<float>(rank);
    g[i] += d;
    loss += 0.5 * static_cast<double>(d) * static_cast<double>(d);
  }
  return loss;
}

constexpr auto fully_coded =
    acco::two_phase{.estimate = acco::block_int4{},
                    .commit = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}},
                    .pace = acco::fixed_pace{.first = 3, .second = 1}};

}  // namespace

// Every mix of types, and every world, once: with everything encoded.
TEST_CASE("two_phase: an encoded estimate trains like an exact one") {
  conformance::schedule_suite<worlds::threads, false>(
      reference::algorithm::two_phase,
      [](unsigned first, unsigned second) { return acco::two_phase{.estimate = float_wire{}, .pace = pace(first, second)}; },
      rounding);
}
TEST_CASE("two_phase: everything encoded") {
  conformance::schedule_suite(
      reference::algorithm::two_phase,
      [](unsigned first, unsigned second) {
        return acco::two_phase{.estimate = float_wire{}, .commit = float_wire{}, .pace = pace(first, second)};
      },
      rounding);
}
TEST_CASE("two_phase: every other choice of what is encoded") {
  const auto s = conformance::setting(3, 13, 3, 1);
  const acco::adamw rule{.learning_rate = 0.02};
  const auto check = [&](auto estimate, auto commit) {
    conformance::compare<acco::host_storage<double>>(
        reference::algorithm::two_phase,
        [&](unsigned first, unsigned second) {
          return acco::two_phase{.estimate = estimate, .commit = commit, .pace = pace(first, second)};
        },
        rule, conformance::mixed_layout(), s, rounding);
  };
  const acco::coded<float_wire> gradients;
  const acco::coded<acco::full, float_wire> parameters;
  check(acco::full{}, float_wire{});
  check(acco::full{}, parameters);
  check(gradients, acco::full{});
  check(gradients, parameters);
  check(parameters, gradients);
  check(parameters, parameters);
}
TEST_CASE("synchronous, encoded") {
  conformance::schedule_suite<worlds::threads, false>(
      reference::algorithm::synchronous,
      [](unsigned first, unsigned second) { return acco::synchronous{.commit = float_wire{}, .pace = pace(first, second)}; },
      rounding);
}
TEST_CASE("delayed, encoded") {
  conformance::schedule_suite<worlds::threads, false>(
      reference::algorithm::delayed,
      [](unsigned first, unsigned second) { return acco::delayed{.commit = float_wire{}, .pace = pace(first, second)}; },
      rounding);
}
TEST_CASE("weight_prediction, encoded") {
  conformance::schedule_suite<worlds::threads, false>(
      reference::algorithm::weight_prediction,
      [](unsigned first, unsigned second) {
        return acco::weight_prediction{.commit = float_wire{}, .pace = pace(first, second)};
      },
      rounding);
}

TEST_CASE_TEMPLATE("coarse numbers: all ranks hold the same bits after every round, in every world; finish() shows the masters",
                   World, worlds::threads, worlds::mock_late, worlds::mock_random AND_IN_DEEP(worlds::decorated)) {
  constexpr std::size_t count = 3001;
  for (const double clip : {0.0, 1.0}) {
    std::vector<std::vector<std::uint64_t>> seen(3);
    std::vector<double> first(3), last(3);
    World::run(3, [&](auto world) {
      const auto me = static_cast<std::size_t>(world.rank());
      acco::optimizer training{fully_coded,
                               acco::adamw{.learning_rate = 0.05, .weight_decay = 0},
                               acco::host_storage<acco::bfloat16, float>{},
                               world,
                               count,
                               acco::options{.clip_norm = clip}};
      training.initialize(std::vector<acco::bfloat16>(count, acco::bfloat16(1.0F)));
      std::size_t apart = 0;
      std::vector<acco::bfloat16> masters(count);
      for (int m = 0; m < 80; ++m) {
        const double loss = add_quadratic(training, world.rank());
        const auto report = training.accumulated(1, loss);
        if (!report) continue;
        std::uint64_t hash = 1;
        for (acco::bfloat16 const p : training.parameters()) hash = hash * 0x9fb21c651e98df25ULL + p.bits();
        seen[me].push_back(hash);
        if (!report->committed) continue;
        (first[me] == 0 ? first[me] : last[me]) = report->mean_loss;
        training.gather_committed(masters);
        for (std::size_t i = 0; i < count; ++i) apart += masters[i].bits() != training.parameters()[i].bits() ? 1U : 0U;
      }
      CHECK(apart > 0);  // what arrives is coarse
      training.finish();
      training.gather_committed(masters);
      for (std::size_t i = 0; i < count; ++i) CHECK(masters[i].bits() == training.parameters()[i].bits());
    });
    CHECK(seen[0].size() > 30);
    CHECK(seen[0] == seen[1]);
    CHECK(seen[0] == seen[2]);
    CHECK(last[0] < 0.3 * first[0]);
  }
}

TEST_CASE("what arrives stays within one step's coding error of the masters: nothing drifts") {
  constexpr std::size_t count = 2000;
  constexpr double rate = 0.01;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{fully_coded, acco::adamw{.learning_rate = rate, .weight_decay = 0}, acco::host_storage<float>{},
                             world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    std::vector<float> masters(count);
    for (int m = 0; m < 800; ++m) {
      add_quadratic(training, world.rank());
      const auto report = training.accumulated(1);
      if (!report || !report->committed || report->step % 20 != 0) continue;
      training.gather_committed(masters);
      double worst = 0;
      for (std::size_t i = 0; i < count; ++i)
        worst = std::max(worst, std::abs(static_cast<double>(masters[i]) - static_cast<double>(training.parameters()[i])));
      // a commit differs from the prediction in use by little more than a step each way
      CHECK(worst <= 3 * rate / 13.8);
      CHECK(worst > 0);
    }
  });
}

TEST_CASE("every so many commits the parameters travel in full") {
  constexpr std::size_t count = 700;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    auto schedule =
        acco::delayed{.commit = acco::coded{.gradients = acco::block_int8{}, .parameters = acco::block_int4{}, .exact_every = 3}};
    acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, acco::host_storage<float>{}, world, count};
    training.initialize(std::vector<float>(count, 1.0F));
    std::vector<float> masters(count);
    for (int m = 0; m < 14; ++m) {
      add_quadratic(training, world.rank());
      const auto report = training.accumulated(1);
      if (!report) continue;
      std::vector<float> const shown(training.parameters().begin(), training.parameters().end());
      std::vector<float> before = masters;
      training.gather_committed(masters);  // the round in flight is committed too: compare with the one before it
      if (report->step > 1) CHECK((shown == before) == (report->step % 3 == 0));
    }
    training.finish();
  });
}

TEST_CASE("bytes are those of the theory") {
  constexpr std::size_t count = 102400;  // whole blocks on every rank
  for (const int ranks : {2, 4}) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      acco::optimizer training{fully_coded, acco::sgd{}, acco::host_storage<float>{},
                               world,       count,       acco::options{.check_habits = acco::habit_checks::off}};
      training.initialize(std::vector<float>(count, 1.0F));
      constexpr std::uint64_t int8 = count / 256 * 260, int4 = count / 256 * 132;
      const auto n = static_cast<std::uint64_t>(ranks);
      const std::uint64_t numbers =
          // that they are counts, counts, squares, what diverged
          (1 + acco::count_numbers + 1 + 1) * sizeof(double) * (n - 1);
      for (int m = 0; m < 24; ++m) {
        if (const auto report = training.accumulated(1))
          CHECK(report->bytes_sent == (report->committed ? int8 + int4 : 2 * int4) * (n - 1) / n + numbers);
      }
      training.finish();
    });
  }
}

TEST_CASE("quiet parameters beside a loud one train under coded commits") {
  constexpr std::size_t count = 512;
  // of what quiet parameters have come to, on their way from 0 to 1
  const auto least = [&](auto schedule, double loud) {
    double found = 1e9;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer training{
          schedule, acco::adamw{.learning_rate = 0.01, .weight_decay = 0}, acco::host_storage<float>{}, world,
          count,    acco::options{.check_habits = acco::habit_checks::off}};
      training.initialize(std::vector<float>(count, 0.0F));
      for (std::size_t m = static_cast<std::size_t>(world.rank()); training.steps() < 500; m += 2) {
        auto const p = training.parameters();
        auto const g = training.gradients();
        const double noise = (2 * problem::unit(m) - 1 < 0 ? -1 : 1) * (0.6 + 0.8 * problem::unit(m + 77777));
        for (std::size_t i = 0; i < count; ++i) g[i] += i % 64 == 5 ? static_cast<float>(loud * noise) : p[i] - 1;
        training.accumulated(1);
      }
      training.finish();
      for (std::size_t i = 0; i < count && world.rank() == 0; ++i)
        found = i % 64 == 5 ? found : std::min(found, static_cast<double>(training.parameters()[i]));
    });
    return found;
  };
  using both = acco::coded<acco::block_int8<>, acco::block_int4<>>;
  CHECK(least(acco::synchronous{.commit = both{}}, 400) > 0.9);
  CHECK(least(acco::delayed{.commit = both{}}, 400) > 0.9);
  CHECK(least(acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::block_int4{}, .pace = acco::fixed_pace{1}}, 30) >
        0.9);
  using biased = acco::coded<acco::nearest<acco::block_int8<>>, acco::block_int4<>>;
  CHECK(least(acco::synchronous{.commit = biased{}}, 400) < 0.2);  // by an explicit word
}

TEST_CASE("memory() counts the encoded bytes, and is what is allocated") {
  constexpr std::size_t count = 102400;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto check = [&](auto schedule, std::size_t encoded, bool in_place = false) {
      counting::resource resource;
      acco::host_storage<float> storage;
      storage.memory = &resource;
      const acco::options unchecked{.in_place = in_place, .check_habits = acco::habit_checks::off};
      acco::optimizer training{schedule, acco::adamw{}, storage, world, count, unchecked};
      acco::optimizer plain{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, storage, world, count, unchecked};
      CHECK(training.memory().encoded >= encoded);
      CHECK(training.memory().encoded < encoded + 4096);
      // 192: its stagger
      const std::size_t aside = schedule.plan(0).keeps && !in_place ? count * sizeof(float) + 192 : 0;
      if (schedule.plan(0).meanwhile == acco::computation::continues)
        CHECK(training.memory().total() == plain.memory().total() + training.memory().encoded + aside);
      const std::size_t promised = training.memory().total();
      training.initialize(std::vector<float>(count, 1.0F));
      for (int m = 0; m < 12; ++m) training.accumulated(1);
      training.finish();
      CHECK(resource.now == promised);
      CHECK(resource.most == promised);
    };
    constexpr std::size_t int8 = count / 256 * 260, int4 = count / 256 * 132;
    check(acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{1}}, 2 * int4);
    check(acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{1}}, 2 * int4, true);
    check(fully_coded, 2 * int8);
    check(acco::delayed{.commit = acco::coded{.parameters = acco::block_int4{}}}, int4);
    check(acco::synchronous{.commit = acco::block_int8{}}, 2 * int8);
    check(acco::two_phase{.pace = acco::fixed_pace{1}}, 0);
  });
}

TEST_CASE("gradients that are not finite are named with rank and tensor, or the step is left out") {
  acco::parameter_layout layout;
  layout.add("embedding", {500}).add("head", {30, 20});
  for (const double clip : {0.0, 1.0}) {
    for (const int when : {1, 3}) {  // in the part that the estimate carries, in the other
      for (const auto what : {acco::non_finite::raise, acco::non_finite::skip}) {
        std::atomic<int> named = 0;
        acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
          acco::optimizer training{fully_coded, acco::adamw{}, acco::host_storage<float>{},
                                   world,       layout,        acco::options{.clip_norm = clip, .on_non_finite = what}};
          training.initialize(std::vector<float>(layout.size(), 1.0F));
          try {
            for (int m = 0; m < 40; ++m) {
              add_quadratic(training, world.rank());
              if (world.rank() == 1 && m == 8 + when) training.gradients()[503] = std::numeric_limits<float>::quiet_NaN();
              training.accumulated(1);
            }
            training.finish();
          } catch (acco::non_finite_error const& e) {
            CHECK(e.peer() == 1);
            CHECK(std::string(e.what()).find("'head' at element 3") != std::string::npos);
            ++named;
          }
          for (float const p : training.parameters()) CHECK(std::isfinite(p));
          if (what == acco::non_finite::skip) CHECK(training.steps() == 9);  // one of ten
        });
        CHECK(named == (what == acco::non_finite::raise ? 3 : 0));
      }
    }
  }
}

TEST_CASE("an update that overflows is refused by the encoding, and named on every rank") {
  std::atomic<int> named = 0;
  try {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::delayed{.commit = acco::block_int8{}}, acco::sgd{.learning_rate = 1e38},
                               acco::host_storage<float>{}, world, 300};
      training.initialize(std::vector<float>(300, 1.0F));
      try {
        for (int m = 0; m < 10; ++m) {
          training.gradients()[299] = 1e15F;
          training.accumulated(1);
        }
      } catch (acco::non_finite_error const& e) {
        named += std::string(e.what()).find("element 299") != std::string::npos ? 1 : 100;
        for (float const p : training.parameters()) CHECK(std::isfinite(p));
        throw;
      }
    });
  } catch (acco::error const&) {  // counted
  }
  CHECK(named == 2);
}
