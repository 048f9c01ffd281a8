// SPDX-License-Identifier: Apache-2.0
// What the trainer's interface promises on several ranks, over any backend.
#pragma once

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "support/train.hpp"
#include "support/worlds.hpp"

namespace conformance {

template <class World = worlds::threads, class Training>
void add_parameters_as_gradients(Training& training) {
  worlds::settle<World>();
  auto const p = training.parameters();
  auto const g = training.gradients();
  for (std::size_t i = 0; i < p.size(); ++i) g[i] += p[i];
}

template <class World>
void trainer_suite() {
  SUBCASE("report->committed follows the schedule's table, and parameters() then holds the committed weights") {
    World::run(2, [](auto world) {
      acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{.learning_rate = 0.1},
                               typename worlds::storage_of<World>::template type<double>{}, world, 206};
      training.initialize(std::vector<double>(206, 1.0));
      std::vector<double> committed(206);
      std::size_t commits = 0;
      for (int m = 0; m < 12; ++m) {
        add_parameters_as_gradients<World>(training);
        auto const report = training.accumulated(1);
        CHECK(report.has_value() == (m > 0));
        if (!report) continue;
        CHECK(report->round == static_cast<std::size_t>(m - 1));
        CHECK(report->committed == (report->round % 2 == 1));
        if (!report->committed) continue;
        ++commits;
        CHECK(report->step == commits);
        CHECK(report->samples == training.samples());
        CHECK(training.samples() == 4.0 * static_cast<double>(commits));  // two micro-batches of weight 1 on two ranks
      }
      CHECK(commits == 5);
      // The round in flight is an odd one (a commit of round 11), so gather_committed shows what comes next; finish()
      // shows the same.
      training.gather_committed(committed);
      training.finish();
      worlds::settle<World>();
      CHECK(std::vector<double>(training.parameters().begin(), training.parameters().end()) == committed);
      CHECK(training.samples() == 24);
      CHECK(training.steps() == 6);
    });
  }
  SUBCASE("a prediction leaves state_digest unchanged, a commit changes it") {
    World::run(3, [](auto world) {
      acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{},
                               typename worlds::storage_of<World>::template type<float>{}, world,
                               190};  // every rank owns some of them
      training.initialize(std::vector<float>(190, 1.0F));
      std::uint64_t before = training.state_digest();
      for (int m = 0; m < 10; ++m) {
        add_parameters_as_gradients<World>(training);
        training.accumulated(1);
        const std::uint64_t after = training.state_digest();  // waits for the round that has just begun: round m
        CHECK((before == after) == (m % 2 == 0));
        before = after;
      }
      training.finish();
    });
  }
  SUBCASE("mean loss and learning-rate factor in the report are those of all ranks") {
    World::run(3, [](auto world) {
      acco::optimizer training{acco::synchronous{},
                               acco::adamw{},
                               typename worlds::storage_of<World>::template type<float>{},
                               world,
                               4,
                               acco::options{.learning_rate = [](double samples) { return 1 / (1 + samples); }}};
      training.initialize(std::vector<float>(4, 0.0F));
      const double weight = world.rank() + 1;
      const auto first = training.accumulated(weight, 10 * weight + 6);
      REQUIRE(first.has_value());
      CHECK(first->weight == 6);
      CHECK(first->mean_loss == doctest::Approx(13));  // (60 + 18) / 6
      CHECK(first->learning_rate_scale == 1);
      const auto second = training.accumulated(weight);
      CHECK(second->learning_rate_scale == doctest::Approx(1.0 / 7));
      double sum[] = {1.0, static_cast<double>(world.rank())};
      training.sum_over_ranks(sum);
      CHECK(sum[0] == 3);
      CHECK(sum[1] == 3);
      training.finish();  // who leaves without it has failed, and the others may hear that before they have the sum
    });
  }
  SUBCASE("elastic pace: a fast rank goes on while the network is busy, within its bounds, and every sample counts") {
    World::run(2, [](auto world) {
      auto slow_link = [&] {
        if constexpr (std::is_same_v<World, worlds::threads>) {
          return acco::rate_limited(world, {.bytes_per_second = 1e12, .latency = 2e-3});
        } else {
          return world;  // the slow rank is slow enough
        }
      }();
      acco::optimizer training{acco::two_phase{.pace = acco::elastic_pace{.at_least = 2, .at_most = 50}}, acco::adamw{},
                               typename worlds::storage_of<World>::template type<float>{}, slow_link, 8};
      training.initialize(std::vector<float>(8, 1.0F));
      std::size_t most = 0, mine = 0, least = 1000;
      while (training.samples() < 2000) {
        add_parameters_as_gradients<World>(training);
        std::this_thread::sleep_for(std::chrono::microseconds(world.rank() == 0 ? 100 : 900));
        ++mine;
        if (auto const report = training.accumulated(1)) {
          most = std::max(most, report->micro_batches);
          least = std::min(least, report->micro_batches);
        }
        if (mine > 2000) break;
      }
      training.finish(acco::unfinished::commit);
      CHECK(least >= 2);
      CHECK(most <= 50);
      if (world.rank() == 0) CHECK(most > 4);
      double both[] = {static_cast<double>(mine)};
      training.sum_over_ranks(both);
      CHECK(both[0] == training.samples());  // nothing is lost, nothing counted twice
      CHECK(static_cast<std::uint64_t>(training.totals().micro_batches) == mine);
    });
  }
  SUBCASE("NaN or infinite gradients on one rank: every rank throws and names rank and tensor; parameters stay readable") {
    acco::parameter_layout layout;
    layout.add("embedding", {5000}).add("head", {3000, 2}).add("bias", {7});
    for (const double clip : {0.0, 1.0}) {
      std::vector<std::vector<char>> what(3);
      World::run(3, [&](auto world) {
        acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                                 acco::adamw{},
                                 typename worlds::storage_of<World>::template type<float>{},
                                 world,
                                 layout,
                                 acco::options{.clip_norm = clip}};
        training.initialize(std::vector<float>(layout.size(), 1.0F));
        float last = 0;
        try {
          for (int m = 0; m < 40; ++m) {
            add_parameters_as_gradients<World>(training);
            if (world.rank() == 1 && m == 5) {  // in two tensors, in the slices of two owners
              training.gradients()[9999] = std::numeric_limits<float>::infinity();
              training.gradients()[5003] = std::numeric_limits<float>::quiet_NaN();
            }
            last = training.parameters()[0];
            if (training.accumulated(1)) {
              worlds::settle<World>();
              last = training.parameters()[0];
            }
          }
          FAIL_CHECK("nothing was thrown");
        } catch (acco::non_finite_error const& e) {
          const std::string_view words = e.what();
          what[static_cast<std::size_t>(world.rank())].assign(words.begin(), words.end());
          CHECK(e.peer() == 1);
        }
        worlds::settle<World>();
        CHECK(training.parameters()[0] == last);
        CHECK(std::isfinite(last));
      });
      if constexpr (requires { World::share(what); }) World::share(what);
      for (auto const& each : what) {
        const std::string words(each.begin(), each.end());
        CAPTURE(words);
        CHECK(
            words.find("rank 1 brought 2 gradients that are infinite or not a number, the first in tensor 'head' at element 3") !=
            std::string::npos);
      }
    }
  }
}

}  // namespace conformance
