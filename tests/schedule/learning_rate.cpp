// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <doctest/doctest.h>

#include <acco/schedule/learning_rate.hpp>

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
}
