// SPDX-License-Identifier: Apache-2.0
// What the trainer's interface promises, beyond the equality with the reference that tests/schedule/ shows.
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "conformance/trainer.hpp"
#include "support/train.hpp"
#include "support/worlds.hpp"

namespace {

using acco::fixed_pace;
using conformance::add_parameters_as_gradients;

}  // namespace

TEST_CASE("the trainer's promises on several ranks") { conformance::trainer_suite<worlds::threads>(); }

TEST_CASE("weight_prediction never shows committed weights before finish; gather_committed does") {
  acco::optimizer training{acco::weight_prediction{}, acco::sgd{.learning_rate = 0.1}, acco::host_storage<double>{},
                           acco::solo_backend{}, 3};
  training.initialize(std::vector<double>(3, 1.0));
  for (int m = 0; m < 5; ++m) {
    add_parameters_as_gradients(training);
    if (auto const report = training.accumulated(1)) CHECK_FALSE(report->committed);
  }
  std::vector<double> committed(3);
  training.gather_committed(committed);
  CHECK(committed[0] != training.parameters()[0]);
  training.finish();
  CHECK(committed[0] == training.parameters()[0]);
}

TEST_CASE("the first prediction does not leak into the step count: the first commit is AdamW's first step") {
  // With one sample whose gradient never changes, AdamW's first step moves every parameter by the learning rate,
  // whatever the gradient's size.
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                           acco::adamw{.learning_rate = 0.25, .epsilon = 1e-300, .weight_decay = 0}, acco::host_storage<double>{},
                           acco::solo_backend{}, 2};
  training.initialize(std::vector<double>{5.0, -3.0});
  for (int m = 0; m < 2; ++m) {
    training.gradients()[0] += 2;
    training.gradients()[1] += -7;
    training.accumulated(1);
  }
  training.finish();
  CHECK(training.steps() == 1);
  CHECK(training.parameters()[0] == doctest::Approx(4.75).epsilon(1e-12));
  CHECK(training.parameters()[1] == doctest::Approx(-2.75).epsilon(1e-12));
}

TEST_CASE("training goes on after finish()") {
  const auto train = [](bool pause) {
    std::vector<double> end;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::synchronous{}, acco::adamw{.learning_rate = 0.1}, acco::host_storage<double>{}, world, 5};
      training.initialize(std::vector<double>(5, 1.0));
      for (int m = 0; m < 8; ++m) {
        add_parameters_as_gradients(training);
        training.accumulated(1);
        if (pause && m == 3) training.finish();
      }
      training.finish();
      if (world.rank() == 0) end.assign(training.parameters().begin(), training.parameters().end());
    });
    return end;
  };
  CHECK(train(true) == train(false));  // synchronous: a pause between steps changes nothing

  acco::optimizer training{acco::two_phase{.pace = fixed_pace{2}}, acco::adamw{}, acco::host_storage<float>{},
                           acco::solo_backend{}, 4};
  training.initialize(std::vector<float>(4, 1.0F));
  for (int stretch = 1; stretch <= 4; ++stretch) {
    for (int m = 0; m < 5; ++m) {
      add_parameters_as_gradients(training);
      training.accumulated(1);
    }
    training.finish(acco::unfinished::commit);
    CHECK(training.samples() == 5 * stretch);  // nothing is lost
  }
}

TEST_CASE("spans stay where they are until a report, for ever with stable_addresses, and are re-issued after a report") {
  for (const bool stable : {false, true}) {
    acco::optimizer training{
        acco::delayed{.pace = fixed_pace{2}},     acco::adamw{}, acco::host_storage<float>{}, acco::solo_backend{}, 4,
        acco::options{.stable_addresses = stable}};
    training.initialize(std::vector<float>(4, 1.0F));
    auto const* parameters = training.parameters().data();
    auto* gradients = training.gradients().data();
    int moves = 0;
    for (int m = 0; m < 12; ++m) {
      CHECK(training.parameters().data() == parameters);
      CHECK(training.gradients().data() == gradients);
      if (training.accumulated(1)) {
        moves += training.parameters().data() != parameters || training.gradients().data() != gradients ? 1 : 0;
        parameters = training.parameters().data();
        gradients = training.gradients().data();
      }
      for (const float g : training.gradients()) CHECK((g == 0.0F || m % 2 == 0));
    }
    CHECK((moves == 0) == stable);
  }
}

TEST_CASE("fixed pace: the same ranks give bit-identical runs, twenty times under load") {
  std::atomic<bool> stop = false;
  std::vector<std::jthread> load;
  for (int i = 0; i < 3; ++i) {
    load.emplace_back([&] {
      volatile double x = 1;
      while (!stop) x = x * 1.0000001;
    });
  }
  const acco::two_phase schedule{.pace = fixed_pace{.first = 2, .second = 1}};
  reference::setting s{.ranks = 4, .first = 2, .second = 1, .micro_batches = {30, 30, 28, 30}};
  s.clip_norm = 0.5;
  const acco::parameter_layout layout(1003);
  const auto first = library::train<acco::host_storage<float, float>>(worlds::threads{}, schedule,
                                                                      acco::adamw{.learning_rate = 0.01}, layout, s);
  for (int run = 0; run < 20; ++run) {
    const auto again = library::train<acco::host_storage<float, float>>(worlds::threads{}, schedule,
                                                                        acco::adamw{.learning_rate = 0.01}, layout, s);
    CHECK(again.digests == first.digests);
    CHECK(again.parameters == first.parameters);
  }
  stop = true;
}

TEST_CASE("bfloat16 parameters with fp32 accumulation: a thousand small increments do not vanish") {
  const auto sum_of = [](auto storage) {
    acco::optimizer training{acco::synchronous{.pace = fixed_pace{1000}}, acco::sgd{.learning_rate = 1}, storage,
                             acco::solo_backend{}, 1};
    using P = typename decltype(storage)::parameter_type;
    training.initialize(std::vector<P>(1, P(0.0F)));
    for (int m = 0; m < 1000; ++m) {
      training.gradients()[0] += 1.0F;
      training.accumulated(1);
    }
    return -static_cast<double>(training.parameters()[0]);  // the mean gradient
  };
  CHECK(sum_of(acco::host_storage<acco::bfloat16, float>{}) == 1.0);
  CHECK(sum_of(acco::host_storage<acco::bfloat16, acco::bfloat16>{}) <
        0.3);  // what fp32 accumulation is for: 256 + 1 is 256 in bfloat16
}

TEST_CASE("bytes and calls are those of the theory: two passes a synchronous step, four an ACCO step") {
  constexpr std::size_t count = 1280;  // whole shares of four ranks
  const auto sent = [&](auto schedule, int steps) {
    acco::mock_world world(4);
    world.run([&](acco::mock_backend const& rank) {
      acco::optimizer training{schedule, acco::adamw{}, acco::host_storage<float>{},
                               rank,     count,         acco::options{.check_habits = acco::habit_checks::off}};
      training.initialize(std::vector<float>(count, 1.0F));
      const auto before = rank.counters();
      std::uint64_t reported = 0;
      for (int m = 0; m < steps * 2; ++m) {
        if (auto const report = training.accumulated(1)) reported += report->bytes_sent;
      }
      training.finish();
      const auto after = rank.counters();
      const std::uint64_t pass = count * sizeof(float) * 3 / 4;
      const auto rounds = training.totals().rounds;
      CHECK(after.bytes_of(acco::collective::reduce_scatter) - before.bytes_of(acco::collective::reduce_scatter) ==
            rounds * pass);
      CHECK(after.bytes_of(acco::collective::all_gather) - before.bytes_of(acco::collective::all_gather) == rounds * pass);
      CHECK(after.calls_of(acco::collective::reduce_scatter) - before.calls_of(acco::collective::reduce_scatter) == rounds);
      CHECK(rounds == static_cast<std::size_t>(2 * steps));
      constexpr std::uint64_t small =
          // that they are counts, counts, squares, to each of the others
          (1 + acco::count_numbers + 1) * sizeof(double) * 3;
      CHECK(training.totals().bytes_sent == rounds * (2 * pass + small));
      CHECK(reported <= training.totals().bytes_sent);
    });
  };
  sent(acco::synchronous{}, 3);
  sent(acco::two_phase{.pace = acco::fixed_pace{1}}, 3);
  sent(acco::delayed{}, 2);
}

TEST_CASE("frozen tensors: no state, no traffic, no change, wherever they lie") {
  acco::parameter_layout layout;
  const auto still = layout.add_group({.frozen = true});
  layout.add("embedding", {1000}, still).add("a", {400}).add("middle", {500}, still).add("b", {112}).add("end", {7}, still);
  acco::mock_world world(4);
  world.run([&](acco::mock_backend const& rank) {
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{.learning_rate = 0.1},
                             acco::host_storage<float>{}, rank, layout};
    const auto table = training.memory();
    CHECK(table.masters < 128 * sizeof(float) + 1024);  // 512 trainable elements on four ranks, and alignment
    std::vector<float> start(layout.size());
    for (std::size_t i = 0; i < start.size(); ++i) start[i] = 1 + static_cast<float>(i % 97);
    training.initialize(start);
    const auto before = rank.counters();
    for (int m = 0; m < 6; ++m) {
      for (float& g : training.gradients()) g += 1000;  // also on the frozen elements: ignored
      auto const report = training.accumulated(1);
      if (report) CHECK(report->gradient_norm == doctest::Approx(1000 * std::sqrt(512.0)));
    }
    training.finish();
    const auto rounds = training.totals().rounds;
    CHECK(rank.counters().bytes_of(acco::collective::reduce_scatter) - before.bytes_of(acco::collective::reduce_scatter) ==
          rounds * 384 * sizeof(float));
    std::vector<float> committed(layout.size());
    training.gather_committed(committed);
    for (std::size_t i = 0; i < start.size(); ++i) {
      const bool trainable = (i >= 1000 && i < 1400) || (i >= 1900 && i < 2012);
      CHECK((training.parameters()[i] != start[i]) == trainable);
      CHECK(committed[i] == training.parameters()[i]);
    }
  });
}
