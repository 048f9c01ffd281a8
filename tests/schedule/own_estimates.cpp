// SPDX-License-Identifier: Apache-2.0
// Where two_phase comes to rest when ranks have different data: own_slice beside the minimum, as docs/schedules.md
// says.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

namespace {

/// Two ranks, whose minima lie at c and -c: that of all is 0. What the first rank's slice comes to.
template <class Estimate>
double rest(Estimate estimate, double rate, double momentum) {
  double found = 0;
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::two_phase{.estimate = estimate, .pace = acco::fixed_pace{.first = 3, .second = 1}},
                             acco::sgd{.learning_rate = rate, .momentum = momentum}, acco::host_storage<double>{}, world,
                             std::size_t{2},
                             // at rest nothing is left to learn
                             acco::options{.check_habits = acco::habit_checks::off}};
    training.initialize(std::vector<double>{1.0, -2.0});
    const double minimum = world.rank() == 0 ? 4 : -4;
    for (int k = 0; k < 4 * 500; ++k) {
      for (std::size_t i = 0; i < 2; ++i) training.gradients()[i] += training.parameters()[i] - minimum;
      (void)training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0) found = training.parameters()[0];
  });
  return found;
}

}  // namespace

TEST_CASE("own_slice rests beside the minimum where data differ, by its closed form; the others rest there") {
  for (const double momentum : {0.0, 0.5}) {
    for (const double rate : {0.1, 0.3}) {
      CAPTURE(momentum);
      CAPTURE(rate);
      // theta - p d = 0 and d = step (theta~ - c), where a momentum at rest adds nothing.
      const double p = 0.75, c = 4, d = -rate * c / (1 + rate * (1 - p));
      CHECK(rest(acco::own_slice{}, rate, momentum) == doctest::Approx(p * d).epsilon(1e-9));
      CHECK(std::abs(rest(acco::full{}, rate, momentum)) < 1e-9);
      CHECK(std::abs(rest(acco::own_corrected{}, rate, momentum)) < 1e-9);
    }
  }
}
