// SPDX-License-Identifier: Apache-2.0
// The trainer's own memory: arrays that the optimizer works in, tensors by name, parameters that the trainer replaces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"

namespace {

constexpr int ranks = 3;

acco::parameter_layout layout_of(bool frozen) {
  acco::parameter_layout layout;
  const auto ice = layout.add_group({.frozen = true});
  layout.add("first", {31, 7}).add("stem", {53}, frozen ? ice : 0).add("last", {141});
  return layout;
}

/// Calls visit(schedule) for every kind of round.
template <class Visitor>
void every_schedule(Visitor&& visit) {
  visit(acco::synchronous{.pace = acco::fixed_pace{2}});
  visit(acco::delayed{});
  visit(acco::weight_prediction{});
  visit(acco::two_phase{.pace = acco::fixed_pace{.first = 2, .second = 1}});
  visit(acco::two_phase{.estimate = acco::block_int4{}});
  visit(acco::two_phase{.estimate = acco::block_int4{}, .commit = acco::coded<acco::block_int8<>, acco::block_int4<>>{}});
}

template <class P, class G>
void micro_batches(acco::any_optimizer<P, G>& training, int rank, std::size_t from, std::size_t until) {
  for (std::size_t m = from; m < until; ++m) {
    (void)problem::add_sample(problem::sample_id(rank, m, 0), training.parameters(), training.gradients());
    training.accumulated(1);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("adopted arrays train to the bits of stable addresses, never move, and outlive the optimizer", Storage,
                   acco::host_storage<float>, acco::host_storage<double>, acco::host_storage<acco::bfloat16, float>) {
  using P = typename Storage::parameter_type;
  using G = typename Storage::gradient_type;
  for (const bool frozen : {false, true}) {
    every_schedule([&](auto schedule) {
      acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
        auto const layout = layout_of(frozen);
        const auto make = [&] {
          return acco::optimizer{schedule,  acco::adamw{.learning_rate = 0.02},
                                 Storage{}, world,
                                 layout,    acco::options{.clip_norm = 0.7, .stable_addresses = true}};
        };
        auto initial = problem::converted<P>(problem::initial(layout.size()));
        auto stable = make();
        stable.initialize(initial);
        micro_batches(stable, world.rank(), 0, 13);
        stable.finish();

        std::vector<P> parameters = initial;
        if (world.rank() != 0) std::fill(parameters.begin(), parameters.end(), P(7.0F));  // rank 0's reach every rank
        std::vector<G> gradients(layout.size(), G(3.0F));                                 // of what came before
        {
          auto training = make();
          training.adopt(parameters, gradients);
          CHECK(parameters == initial);
          CHECK(std::all_of(gradients.begin(), gradients.end(), [](G g) { return g == G(0.0F); }));
          CHECK(training.memory().parameters == 0);
          CHECK(training.memory().gradients == 0);
          for (std::size_t m = 0; m < 13; ++m) {
            CHECK(training.parameters().data() == parameters.data());
            CHECK(training.gradients().data() == gradients.data());
            micro_batches(training, world.rank(), m, m + 1);
          }
          training.finish();
          CHECK(training.state_digest() == stable.state_digest());
        }
        CHECK(std::equal(parameters.begin(), parameters.end(), stable.parameters().begin()));
      });
    });
  }
}

TEST_CASE("an optimizer that ends with a round in flight touches the trainer's arrays no more") {
  acco::mock_world(2, {.delay = acco::complete_when_waited_for{}}).run([](acco::mock_backend const& world) {
    auto parameters = std::make_unique<std::vector<double>>(100, 1.0);
    auto gradients = std::make_unique<std::vector<double>>(100, 0.0);
    {
      acco::optimizer training{acco::two_phase{}, acco::sgd{.learning_rate = 1}, acco::host_storage<double>{}, world, 100};
      training.adopt(*parameters, *gradients);
      for (int m = 0; m < 4; ++m) {
        for (double& g : *gradients) g += 1;
        training.accumulated(1);
      }
      training.finish();
      for (double& g : *gradients) g += 1;
      training.accumulated(1);  // in flight when it ends
    }
    CHECK(*parameters == std::vector<double>(100, -1.0));  // two steps
    gradients.reset();                                     // under the address sanitizer a late access would be seen
    parameters.reset();
  });
}

TEST_CASE("adopt refuses arrays of another size, and what comes too late; a tensor's two spans") {
  acco::optimizer training{acco::two_phase{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, layout_of(false)};
  std::vector<float> p(411), g(411), less(410);
  CHECK_THROWS_WITH_AS(training.adopt(p, less),
                       doctest::Contains("adopt got 411 parameters and 410 gradients, the layout has 411"), acco::usage_error);
  CHECK_THROWS_WITH_AS(training.adopt(less, g), doctest::Contains("adopt got 410 parameters and 411 gradients"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS((void)training.tensor("last"), doctest::Contains("parameters() was called before initialize"),
                       acco::usage_error);
  training.adopt(p, g);
  CHECK_THROWS_WITH_AS(training.adopt(p, g), doctest::Contains("adopt was called after initialize"), acco::usage_error);
  CHECK_THROWS_WITH_AS(training.initialize(p), doctest::Contains("initialize was called twice"), acco::usage_error);
  auto const last = training.tensor("last");
  CHECK(last.parameters.data() == p.data() + 270);
  CHECK(last.gradients.data() == g.data() + 270);
  CHECK(last.parameters.size() == 141);
  CHECK(last.gradients.size() == 141);
  CHECK_THROWS_WITH_AS((void)training.tensor("lost"), doctest::Contains("no tensor is called 'lost'"), acco::usage_error);
  training.finish();
}

TEST_CASE("set_parameters: rank 0's values on every rank, the rest of the state stays; refused while a step is under way") {
  every_schedule([](auto schedule) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto const layout = layout_of(true);
      acco::optimizer training{schedule, acco::sgd{.learning_rate = 0.01, .momentum = 0.9}, acco::host_storage<double>{}, world,
                               layout};
      training.initialize(problem::initial(layout.size()));
      micro_batches(training, world.rank(), 0, 12);
      CHECK_THROWS_WITH_AS(training.set_parameters(std::vector<double>(layout.size())),
                           doctest::Contains("set_parameters was called while a step is under way"), acco::usage_error);
      training.finish();
      CHECK_THROWS_WITH_AS(training.set_parameters(std::vector<double>(5)), doctest::Contains("set_parameters got 5 parameters"),
                           acco::usage_error);
      const auto steps = training.steps();
      const auto digest = training.state_digest();
      const std::vector<double> halves(layout.size(), world.rank() == 0 ? 0.5 : -9);
      training.set_parameters(halves);
      CHECK(training.steps() == steps);
      CHECK(training.state_digest() != digest);
      std::vector<double> committed(layout.size());
      training.gather_committed(committed);
      CHECK(committed == std::vector<double>(layout.size(), 0.5));
      CHECK(std::equal(committed.begin(), committed.end(), training.parameters().begin()));
      // The momentum has stayed: without any gradient the weights go on.
      while (training.steps() == steps) training.accumulated(1);
      training.finish();
      CHECK(training.tensor("first").parameters[0] != 0.5);
      CHECK(training.tensor("stem").parameters[3] == 0.5);  // frozen
      training.set_parameters(training.parameters());       // its own
    });
  });
}
