// SPDX-License-Identifier: Apache-2.0
// What docs/numbers.md says of a report: which numbers every rank has alike, and how those of a step, of totals and of
// memory hang together.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"

TEST_CASE("what the page calls the same on every rank is; totals are sums; the table of memory has the page's sizes") {
  constexpr int ranks = 3;
  constexpr std::size_t count = 3 * 64 * 10;
  std::array<std::vector<acco::round_report>, ranks> reports;
  std::array<acco::round_totals, ranks> totals;
  std::array<acco::memory_table, ranks> memory;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    acco::any_optimizer<float> training =
        acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{.first = 3, .second = 2}},
                        acco::adamw{},
                        acco::host_storage<float>{},
                        world,
                        count,
                        acco::options{.clip_norm = 0.5,
                                      .learning_rate = acco::in_steps{acco::warmup_linear{.warmup = 3, .total = 9}},
                                      .check_habits = acco::habit_checks::off}};
    training.initialize(problem::converted<float>(problem::initial(count)));
    for (std::size_t m = 0; m < 23; ++m) {
      const std::size_t samples = problem::batch_size(world.rank(), m);
      double loss = 0;
      for (std::size_t k = 0; k < samples; ++k)
        loss += problem::add_sample(problem::sample_id(world.rank(), m, k), training.parameters(), training.gradients());
      if (auto const report = training.accumulated(static_cast<double>(samples), loss)) reports[rank].push_back(*report);
    }
    training.finish();
    totals[rank] = training.totals();
    memory[rank] = training.memory();
  });
  REQUIRE(reports[0].size() == 8);
  double step_loss = 0;
  for (std::size_t k = 0; k < reports[0].size(); ++k) {
    acco::round_report const& a = reports[0][k];
    for (int rank = 1; rank < ranks; ++rank) {
      acco::round_report const& b = reports[static_cast<std::size_t>(rank)][k];
      for (auto const member :
           {&acco::round_report::samples, &acco::round_report::weight, &acco::round_report::mean_loss,
            &acco::round_report::step_weight, &acco::round_report::step_loss, &acco::round_report::gradient_norm,
            &acco::round_report::clip_scale, &acco::round_report::learning_rate_scale})
        CHECK(a.*member == b.*member);
      CHECK(a.round == b.round);
      CHECK(a.committed == b.committed);
      CHECK(a.step == b.step);
      CHECK(a.first == b.first);
      CHECK(a.second == b.second);
    }
    CHECK(a.clip_scale == doctest::Approx(std::min(1.0, 0.5 / a.gradient_norm)));
    CHECK(a.computing.seconds() >= 0);
    step_loss += a.mean_loss * a.weight;
    CHECK(a.step_loss == doctest::Approx(step_loss / a.step_weight));
    if (a.committed) step_loss = 0;
    const double hidden = 1 - a.exposed_seconds / a.communication_seconds;
    CHECK(a.hidden_fraction() == doctest::Approx(std::max(0.0, hidden)));
  }
  for (auto const& t : totals) CHECK(t.dropped == totals[0].dropped);
  CHECK(totals[0].dropped > 0);  // 23 micro-batches are four steps of five, and three of a fifth
  CHECK(totals[0].micro_batches >= 20);
  for (auto const& m : memory) CHECK(m.total() == memory[0].total());
  acco::memory_table const& m = memory[0];
  const auto about = [](std::size_t bytes, std::size_t of) { return bytes >= of && bytes < of + 1024; };  // alignment
  CHECK(about(m.parameters, count * 4));
  CHECK(about(m.gradients, count * 4));
  CHECK(about(m.in_flight, count * 4));
  CHECK(about(m.masters, count / ranks * 4));
  CHECK(m.slots >= 2 * (count / ranks * 4));
  CHECK(m.slots < 2 * (count / ranks * 4) + 2048);
  CHECK(about(m.reduced, count / ranks * 4));
  CHECK(m.encoded == 0);
}
