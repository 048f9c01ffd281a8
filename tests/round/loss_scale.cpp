// SPDX-License-Identifier: Apache-2.0
// A scale of the losses: what vanishes or overflows in half, and what does not change.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/every_schedule.hpp"

namespace {
constexpr std::size_t count = 300;
}

TEST_CASE("a power of two changes no bit of a training, in any schedule, with skipped updates and a rank that finishes early") {
  every_schedule([](auto schedule) {
    const auto run = [&](double scale) {
      std::vector<double> found;
      acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
        acco::optimizer training{schedule,
                                 acco::adamw{.learning_rate = 0.05},
                                 acco::host_storage<double>{},
                                 world,
                                 count,
                                 acco::options{.clip_norm = 2.0, .on_non_finite = acco::non_finite::skip, .loss_scale = scale}};
        training.initialize(std::vector<double>(count, 1.0));
        for (std::size_t m = 0; m < (world.rank() == 1 ? 30 : 60); ++m) {
          auto const p = training.parameters();
          auto const g = training.gradients();
          for (std::size_t i = 0; i < count; ++i)
            g[i] += scale * (p[i] - static_cast<double>((i + m + static_cast<std::size_t>(world.rank())) % 7));
          if (world.rank() == 1 && (m == 7 || m == 20)) g[3] = std::numeric_limits<double>::infinity();
          auto const report = training.accumulated(1);
          if (report && world.rank() == 0)
            found.insert(found.end(), {report->gradient_norm, report->clip_scale, training.parameters()[5]});
        }
        training.finish();
        if (world.rank() == 0) found.insert(found.end(), training.parameters().begin(), training.parameters().end());
      });
      return found;
    };
    CHECK(run(4096) == run(1));
  });
}

TEST_CASE("half: what would vanish trains, what overflows is skipped, and a scale that means nothing is refused") {
  const auto run = [](double size, double scale) {
    acco::optimizer training{
        acco::two_phase{},
        acco::sgd{.learning_rate = 1 / size},
        acco::host_storage<float, acco::half>{},
        acco::solo_backend{},
        100,
        acco::options{.on_non_finite = acco::non_finite::skip, .loss_scale = scale, .check_habits = acco::habit_checks::off}};
    training.initialize(std::vector<float>(100, 1.0F));
    for (int m = 0; m < 40; ++m) {  // of which four are a step
      for (acco::half& g : training.gradients()) g = acco::half(static_cast<float>(g) + static_cast<float>(scale * size * 0.01));
      training.accumulated(1);
    }
    training.finish();
    return static_cast<double>(training.parameters()[50]);
  };
  CHECK(run(1e-9, 1) == 1.0);  // half has nothing below 6e-8
  CHECK(run(1e-9, 65536) == doctest::Approx(0.9).epsilon(0.02));
  CHECK(run(40, 16777216) == 1.0);  // and nothing above 65504
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    CHECK_THROWS_WITH_AS(acco::options{.loss_scale = bad}.check(), doctest::Contains("options::loss_scale is "),
                         acco::usage_error);
}
