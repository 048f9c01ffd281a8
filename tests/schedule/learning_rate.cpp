// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include <doctest/doctest.h>

#include <acco/schedule/learning_rate.hpp>
#include <acco/schedule/learning_rate_function.hpp>

TEST_CASE("constant, warm-up, cosine and line pass through their corners and never leave their range") {
  CHECK(acco::constant{}(1e9) == 1.0);
  CHECK(acco::constant{0.5}(0) == 0.5);
  const acco::warmup_cosine cosine{.warmup = 100, .total = 1100, .final_factor = 0.1};
  const acco::warmup_linear line{.warmup = 100, .total = 1100, .final_factor = 0.2};
  CHECK(cosine(0) == doctest::Approx(1.0 / 101));
  CHECK(cosine(50) == doctest::Approx(51.0 / 101));
  CHECK(cosine(100) == doctest::Approx(1));
  CHECK(cosine(600) == doctest::Approx(0.55));
  CHECK(cosine(1100) == doctest::Approx(0.1));
  CHECK(cosine(1e9) == doctest::Approx(0.1));
  CHECK(line(100) == doctest::Approx(1));
  CHECK(line(600) == doctest::Approx(0.6));
  CHECK(line(1100) == doctest::Approx(0.2));
  CHECK(line(1e9) == doctest::Approx(0.2));
  for (double s = 0; s < 1500; s += 0.5) {
    CHECK((cosine(s) > 0 && cosine(s) <= 1));
    CHECK((line(s) > 0 && line(s) <= 1));
    if (s > 100) CHECK((cosine(s) <= cosine(s - 0.5) + 1e-12 && line(s) <= line(s - 0.5) + 1e-12));
  }
}

TEST_CASE("the warm-up counts the coming step: by one, or by the samples that it is said to have") {
  // Four steps of warm-up, as trainers count them: (it + 1) / (warm-up + 1), and 1 from step 4 on.
  const acco::in_steps steps{acco::warmup_linear{.warmup = 4, .total = 14}};
  for (std::uint64_t it = 0; it < 4; ++it)
    CHECK(steps({.samples = 1e6, .steps = it}) == doctest::Approx((static_cast<double>(it) + 1) / 5));
  CHECK(steps({.samples = 0, .steps = 4}) == 1);
  CHECK(steps({.samples = 0, .steps = 9}) == doctest::Approx(0.5));
  CHECK(steps({.samples = 0, .steps = 14}) == 0);
  // The same steps of 512 tokens each, in tokens and in samples of 16 tokens.
  const acco::warmup_linear in_weight{.warmup = 4 * 512, .total = 14 * 512, .step = 512};
  const acco::in_tokens of_samples{in_weight, 16}, of_tokens{in_weight};
  const acco::in_samples same{in_weight};
  for (std::uint64_t it = 0; it < 16; ++it) {
    const double tokens = 512 * static_cast<double>(it), expected = steps({.steps = it});
    CHECK(of_samples({.samples = tokens / 16, .steps = 77}) == doctest::Approx(expected).epsilon(1e-12));
    CHECK(of_tokens({.samples = tokens, .steps = 77}) == doctest::Approx(expected).epsilon(1e-12));
    CHECK(same({.samples = tokens}) == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("warm-up, stable, decay: linear or by a root; without a decay it stays") {
  const acco::warmup_stable_decay wsd{.warmup = 10, .total = 100, .decay = 20, .final_factor = 0.1};
  CHECK(wsd(0) == doctest::Approx(1.0 / 11));
  for (const double stable : {10.0, 11.0, 50.0, 80.0}) CHECK(wsd(stable) == 1);
  CHECK(wsd(90) == doctest::Approx(0.55));
  CHECK(wsd(100) == doctest::Approx(0.1));
  CHECK(wsd(1e9) == doctest::Approx(0.1));
  const acco::warmup_stable_decay root{.total = 100, .decay = 16, .shape = acco::cooldown::one_minus_square_root};
  CHECK(root(84) == 1);
  CHECK(root(88) == doctest::Approx(0.5));
  CHECK(root(93) == doctest::Approx(0.25));
  CHECK(root(100) == 0);
  CHECK(acco::warmup_stable_decay{.warmup = 3, .total = 10}(1e9) == 1);
  CHECK(acco::warmup_stable_decay{.warmup = 3, .total = 10, .decay = 7}(3) == 1);
}

TEST_CASE("cosines that begin again, each longer than the one before") {
  const acco::warmup_cosine_restarts same{.warmup = 4, .period = 10, .final_factor = 0.2};
  for (const double begin : {4.0, 14.0, 24.0, 1004.0}) {
    CHECK(same(begin) == doctest::Approx(1));
    CHECK(same(begin + 5) == doctest::Approx(0.6));
    CHECK(same(begin + 9.999) == doctest::Approx(0.2).epsilon(1e-4));
  }
  CHECK(same(2) == doctest::Approx(0.6));
  for (const double stretch : {1.5, 2.0, 1.1, 1.01}) {  // against the periods laid end to end
    const acco::warmup_cosine_restarts laid{.period = 10, .stretch = stretch, .final_factor = 0.1};
    double begin = 0, length = 10;
    for (int k = 0; k < 40; ++k) {
      CHECK(laid(begin) == doctest::Approx(1).epsilon(1e-9));  // a restart, however it is rounded
      for (const double share : {0.001, 0.25, 0.5, 0.999})
        CHECK(laid(begin + share * length) == doctest::Approx(0.1 + 0.9 * 0.5 * (1 + std::cos(3.14159265358979 * share))));
      begin += length;
      length *= stretch;
    }
  }
  const acco::warmup_cosine_restarts endless{.period = 1000, .stretch = 1 + 1e-9};
  CHECK(endless(1e12 + 0.5) >= 0);
  const acco::warmup_cosine_restarts once{.period = 100, .stretch = 1e300};
  CHECK(once(100) == doctest::Approx(1));
  CHECK(once(1e10) == doctest::Approx(1));
  const acco::warmup_cosine_restarts longer{.period = 10, .stretch = 2};
  for (const double begin : {0.0, 10.0, 30.0, 70.0, 150.0}) {
    CHECK(longer(begin) == doctest::Approx(1));
    CHECK(longer(begin + (begin + 10) / 2) == doctest::Approx(0.5));  // half of a period of begin + 10
  }
}

TEST_CASE("periods that are fractions begin where whole numbers say that they do") {
  for (const int parts : {500, 300}) {  // of an epoch: periods of 0.1, and of a third
    const int period = parts == 500 ? 50 : 100;
    for (const int warmup : {0, 90}) {
      const auto unit = [parts](int n) { return static_cast<double>(n) / parts; };
      const acco::warmup_cosine_restarts rate{.warmup = unit(warmup), .period = unit(period)};
      std::size_t wrong = 0;
      for (int at = warmup; at <= 10000; ++at) {
        const double right = 0.5 * (1 + std::cos(3.14159265358979323846 * ((at - warmup) % period) / period));
        wrong += std::abs(rate(unit(at)) - right) < 1e-9 ? 0U : 1U;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("degenerate schedules stay finite") {
  CHECK(acco::warmup_cosine{.warmup = 0, .total = 10}(0) == doctest::Approx(1));
  CHECK(acco::warmup_cosine{.warmup = 10, .total = 10}(3) == doctest::Approx(4.0 / 11));
  CHECK(acco::warmup_cosine{.warmup = 10, .total = 10}(10) == doctest::Approx(0.1));
}

TEST_CASE("a forgotten total, one below the warm-up, and numbers that are none are refused, by check and by every call") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto refused = [](auto rate, char const* what) {
    CAPTURE(what);
    CHECK_THROWS_WITH_AS(rate.check(), doctest::Contains(what), acco::usage_error);
    CHECK_THROWS_WITH_AS(rate(2000), doctest::Contains(what), acco::usage_error);
  };
  refused(acco::warmup_cosine{}, "warmup_cosine::total is 0");
  refused(acco::warmup_cosine{.warmup = 1000}, "total is 0, with a warmup of 1000. Give the samples of the whole training");
  refused(acco::warmup_cosine{.warmup = 10, .total = 5}, "warmup_cosine::total is 5, with a warmup of 10");
  refused(acco::warmup_cosine{.warmup = -1, .total = 5}, "warmup_cosine::warmup is -1");
  refused(acco::warmup_cosine{.total = infinity}, "warmup_cosine::total is inf");
  refused(acco::warmup_cosine{.total = 5, .final_factor = nan}, "warmup_cosine::final_factor is nan");
  refused(acco::warmup_linear{.warmup = 1000}, "warmup_linear::total is 0, with a warmup of 1000");
  refused(acco::warmup_linear{.warmup = nan, .total = 5}, "warmup_linear::warmup is nan");
  refused(acco::warmup_linear{.total = nan}, "warmup_linear::total is nan");
  refused(acco::warmup_linear{.total = 5, .final_factor = -1}, "warmup_linear::final_factor is -1");
  refused(acco::constant{-1}, "constant::factor is -1");
  refused(acco::warmup_cosine{.total = 5, .step = 0}, "warmup_cosine::step is 0");
  refused(acco::warmup_linear{.total = 5, .step = -1}, "warmup_linear::step is -1");
  refused(acco::warmup_stable_decay{}, "warmup_stable_decay::total is 0, with a warmup of 0 and a decay of 0");
  refused(acco::warmup_stable_decay{.warmup = 60, .total = 100, .decay = 50},
          "warmup_stable_decay::total is 100, with a warmup of 60 and a decay of 50. Give the samples of the whole training");
  refused(acco::warmup_stable_decay{.total = 100, .decay = nan}, "warmup_stable_decay::decay is nan");
  refused(acco::warmup_cosine_restarts{}, "warmup_cosine_restarts::period is 0");
  refused(acco::warmup_cosine_restarts{.period = 5, .stretch = 0.5}, "warmup_cosine_restarts::stretch is 0.5. Give 1 or more");
}

TEST_CASE("what holds a learning rate: functions of samples or of a position, pointers, or nothing; it passes check() on") {
  using held = acco::learning_rate_function;
  CHECK(!held());
  CHECK(!held(std::function<double(double)>()));
  CHECK(!held(static_cast<double (*)(double)>(nullptr)));
  const acco::training_position at{.samples = 40, .steps = 3};
  CHECK(held([](double samples) { return 2 * samples; })(at) == 80);
  CHECK(held([](acco::training_position const& p) { return static_cast<double>(p.steps); })(at) == 3);
  CHECK(held(std::function<double(double)>([](double samples) { return samples; }))(at) == 40);
  CHECK(held(acco::in_steps{[](double steps) { return steps; }})(at) == 3);
  held(acco::constant{1}).check({});
  CHECK_THROWS_WITH_AS(held(acco::constant{-1}).check({}), doctest::Contains("constant::factor is -1"), acco::usage_error);
  CHECK_THROWS_WITH_AS(held(acco::in_steps{acco::warmup_cosine{}}).check({}), doctest::Contains("warmup_cosine::total is 0"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(held(acco::in_tokens{acco::constant{}, 0}).check({}),
                       doctest::Contains("in_tokens::tokens_per_sample is 0"), acco::usage_error);
}
