// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/observe/round_report.hpp>

TEST_CASE("hidden fraction: what the trainer did not have to wait for") {
  acco::round_report r;
  CHECK(r.hidden_fraction() == 0);
  r.communication_seconds = 4;
  r.exposed_seconds = 1;
  CHECK(r.hidden_fraction() == 0.75);
  r.exposed_seconds = 5;  // measured on two clocks
  CHECK(r.hidden_fraction() == 0);
  acco::round_totals totals;
  totals.add(r);
  r.exposed_seconds = 0;
  totals.add(r);
  CHECK(totals.rounds == 2);
  CHECK(totals.communication_seconds == 8);
  CHECK(totals.exposed_seconds == 5);
  CHECK(totals.hidden_fraction() == doctest::Approx(0.375));
}

TEST_CASE("times: a synchronous round is exposed, a delayed one behind longer computation is hidden") {
  const auto hidden = [](auto schedule) {
    double fraction = 0;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      const auto link =
          acco::rate_limited(world, {.bytes_per_second = 1e12, .latency = 20e-3});  // four collectives: 80 ms a round
      acco::optimizer training{schedule, acco::sgd{}, acco::host_storage<float>{}, link, 10};
      training.initialize(std::vector<float>(10, 1.0F));
      const auto began = std::chrono::steady_clock::now();
      double computed = 0, communicated = 0;
      for (int m = 0; m < 4; ++m) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (auto const report = training.accumulated(1)) {
          computed = report->compute_seconds;
          communicated = report->communication_seconds;
          CHECK(computed >= 0.3);
          CHECK(communicated >= 0.08);
          CHECK(report->computing.seconds() == doctest::Approx(computed));
          CHECK(report->communicating.seconds() == doctest::Approx(communicated));
        }
      }
      if (world.rank() == 0) fraction = training.totals().hidden_fraction();
      training.finish();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
      CHECK(training.totals().compute_seconds <=
            elapsed.count());  // no stretch of computation is counted twice, also inside finish
    });
    return fraction;
  };
  CHECK(hidden(acco::synchronous{}) < hidden(acco::delayed{}));
}

TEST_CASE("times: what the trainer waits for an answer in the middle of a part is exposed, and not its computation") {
  std::counting_semaphore<8> asking{0};
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::optimizer training{acco::delayed{.pace = acco::fixed_pace{2}}, acco::sgd{}, acco::host_storage<float>{}, world, 100};
    training.initialize(std::vector<float>(100, 1.0F));
    for (int m = 0; m < 8; ++m) {
      if (m % 2 == 1) {
        if (world.rank() == 1) {  // only once the other is about to wait
          asking.acquire();
          std::this_thread::sleep_for(std::chrono::milliseconds(150));
        } else {
          asking.release();
        }
        double mine[1] = {1};
        training.sum_over_ranks(mine);
      }
      training.accumulated(1);
    }
    training.finish();
    if (world.rank() == 0) {  // it has computed next to nothing, and waited four times
      CHECK(training.totals().exposed_seconds > training.totals().compute_seconds);
    }
  });
}
