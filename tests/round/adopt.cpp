// SPDX-License-Identifier: Apache-2.0
// The trainer's own memory: arrays that the optimizer works in, tensors by name, parameters that the trainer replaces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

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
  visit(acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{1}});
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
          return acco::optimizer{
              schedule,  acco::adamw{.learning_rate = 0.02},
              Storage{}, world,
              layout,    acco::options{.clip_norm = 0.7, .stable_addresses = true, .check_habits = acco::habit_checks::off}};
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
          for (std::size_t i = 0; i < gradients.size(); ++i)  // those of frozen tensors are none of the library's
            CHECK(gradients[i] == G(frozen && i >= 217 && i < 270 ? 3.0F : 0.0F));
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
      acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{.learning_rate = 1},
                               acco::host_storage<double>{}, world, 100};
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
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                           acco::solo_backend{}, layout_of(false)};
  std::vector<float> p(411), g(411), less(410);
  CHECK_THROWS_WITH_AS(training.adopt(p, less),
                       doctest::Contains("adopt got 411 parameters and 410 gradients, the layout has 411"), acco::usage_error);
  CHECK_THROWS_WITH_AS(training.adopt(less, g), doctest::Contains("adopt got 410 parameters and 411 gradients"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS((void)training.tensor("last"), doctest::Contains("tensor() was called before initialize"),
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

TEST_CASE_TEMPLATE("tensors that lie apart train to the bits of stable addresses, and are all that the trainer needs", Storage,
                   acco::host_storage<float>, acco::host_storage<double>, acco::host_storage<acco::bfloat16, float>) {
  using P = typename Storage::parameter_type;
  using G = typename Storage::gradient_type;
  for (const bool frozen : {false, true}) {
    every_schedule([&](auto schedule) {
      acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
        auto layout = layout_of(frozen);
        layout.add("nothing", {0});
        const auto make = [&] {
          return acco::optimizer{
              schedule,
              acco::adamw{.learning_rate = 0.02},
              Storage{},
              world,
              layout,
              acco::options{
                  .clip_norm = 0.7, .stable_addresses = true, .average_decay = 0.5, .check_habits = acco::habit_checks::off}};
        };
        auto const initial = problem::converted<P>(problem::initial(layout.size()));
        auto stable = make();
        stable.initialize(initial);
        micro_batches(stable, world.rank(), 0, 13);

        std::vector<std::vector<P>> parameters;
        std::vector<std::vector<G>> gradients;
        std::vector<acco::tensor_memory<P, G>> tensors;
        for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
          auto const begin = initial.begin() + static_cast<std::ptrdiff_t>(layout[k].offset);
          parameters.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(layout[k].size));
          if (world.rank() != 0) std::fill(parameters.back().begin(), parameters.back().end(), P(7.0F));
          gradients.emplace_back(layout[k].size, G(3.0F));
        }
        for (std::size_t k = 0; k < layout.tensor_count(); ++k)
          tensors.push_back({parameters[k].data(), frozen && k == 1 ? nullptr : gradients[k].data()});
        const auto whole = [&] {
          std::vector<P> all;
          for (auto const& each : parameters) all.insert(all.end(), each.begin(), each.end());
          return all;
        };
        auto training = make();
        training.adopt(tensors);
        CHECK(whole() == initial);
        CHECK(training.memory().parameters == 0);
        CHECK(training.memory().gradients == 0);
        std::vector<G> flat(layout.size());
        const auto continues = [&](std::size_t from, std::size_t until) {
          for (std::size_t m = from; m < until; ++m) {
            auto const p = whole();
            for (std::size_t k = 0; k < layout.tensor_count(); ++k)
              std::copy(gradients[k].begin(), gradients[k].end(), flat.begin() + static_cast<std::ptrdiff_t>(layout[k].offset));
            (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), std::span<P const>(p), std::span<G>(flat));
            for (std::size_t k = 0; k < layout.tensor_count(); ++k)
              std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(layout[k].offset), layout[k].size, gradients[k].begin());
            training.accumulated(1);
          }
        };
        continues(0, 13);
        std::vector<P> expected(layout.size()), found(layout.size());
        stable.gather_committed(expected);
        training.gather_committed(found);
        CHECK(found == expected);
        stable.gather_average(expected);
        training.gather_average(found);
        CHECK(found == expected);
        stable.finish();
        training.finish();
        CHECK(whole() == std::vector<P>(stable.parameters().begin(), stable.parameters().end()));
        CHECK(training.state_digest() == stable.state_digest());

        auto const values = problem::converted<P>(std::vector<double>(layout.size(), 0.25));
        training.set_parameters(values);
        stable.set_parameters(values);
        CHECK(whole() == values);
        continues(13, 20);
        micro_batches(stable, world.rank(), 13, 20);
        stable.finish();
        training.finish();
        CHECK(whole() == std::vector<P>(stable.parameters().begin(), stable.parameters().end()));

        auto const last = training.tensor("last");
        CHECK(last.parameters.data() == parameters[2].data());
        CHECK(last.gradients.data() == gradients[2].data());
        CHECK(last.gradients.size() == 141);
        CHECK(training.tensor("stem").gradients.size() == (frozen ? 0U : 53U));
        CHECK(training.tensor("nothing").parameters.empty());
        CHECK_THROWS_WITH_AS((void)training.parameters(), doctest::Contains("parameters(): the tensors were adopted one by one"),
                             acco::usage_error);
        CHECK_THROWS_WITH_AS((void)training.gradients(), doctest::Contains("Ask tensor(name)"), acco::usage_error);
        CHECK_NOTHROW(training.finish());
      });
    });
  }
}

TEST_CASE("a list that does not fit the layout is refused, and the right one taken after it") {
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                           acco::solo_backend{}, layout_of(true)};
  std::vector<float> a(217, 1.0F), b(53, 1.0F), c(141, 1.0F), g(217), h(141);
  using tensors = std::vector<acco::tensor_memory<float>>;
  CHECK_THROWS_WITH_AS(training.adopt(tensors{{a.data(), g.data()}}), doctest::Contains("adopt got 1 tensors, the layout has 3"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS(training.adopt(tensors{{a.data(), g.data()}, {b.data(), nullptr}, {c.data(), nullptr}}),
                       doctest::Contains("adopt got no memory for tensor 'last'"), acco::usage_error);
  CHECK_THROWS_AS(training.adopt(tensors{{a.data(), g.data()}, {nullptr, nullptr}, {c.data(), h.data()}}), acco::usage_error);
  CHECK_NOTHROW(training.adopt(tensors{{a.data(), g.data()}, {b.data(), nullptr}, {c.data(), h.data()}}));
  CHECK_THROWS_WITH_AS(training.adopt(tensors{}), doctest::Contains("adopt was called after initialize"), acco::usage_error);
  CHECK_NOTHROW(training.finish());
}

TEST_CASE_TEMPLATE("adopted 16-bit arrays begin from masters and train to the bits of initialize with masters", P, acco::bfloat16,
                   acco::half) {
  every_schedule([](auto schedule) {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      auto const layout = layout_of(true);
      const auto make = [&] {
        return acco::optimizer{schedule, acco::adamw{.learning_rate = 1e-4}, acco::host_storage<P, float>{}, world,
                               layout,   acco::options{.average_decay = 0.9}};
      };
      auto masters = problem::converted<float>(problem::initial(layout.size()));  // more digits than P has
      if (world.rank() != 0) std::fill(masters.begin(), masters.end(), 7.0F);     // rank 0's reach every rank
      std::vector<float> expected(layout.size()), found(layout.size());
      auto usual = make();
      usual.initialize(masters);
      usual.gather_masters(expected);
      CHECK(expected[300] != static_cast<float>(P(expected[300])));
      auto const began = std::vector<P>(usual.parameters().begin(), usual.parameters().end());
      micro_batches(usual, world.rank(), 0, 13);
      usual.finish();

      std::vector<P> p(layout.size(), P(5.0F));
      std::vector<float> g(layout.size(), 3.0F);
      std::vector<acco::tensor_memory<P, float>> tensors;
      for (std::size_t k = 0; k < layout.tensor_count(); ++k)
        tensors.push_back({p.data() + layout[k].offset, g.data() + layout[k].offset});
      for (const bool apart : {false, true}) {
        auto training = make();
        CHECK_THROWS_AS(training.adopt(p, g, std::span(masters).first(410)), acco::usage_error);  // nothing is claimed
        apart ? training.adopt(tensors, masters) : training.adopt(p, g, masters);
        CHECK(p == began);
        training.gather_masters(found);
        CHECK(found == expected);
        for (std::size_t m = 0; m < 13; ++m) {
          (void)problem::add_sample(problem::sample_id(world.rank(), m, 0), std::span<P const>(p), std::span<float>(g));
          training.accumulated(1);
        }
        training.finish();
        CHECK(std::equal(p.begin(), p.end(), usual.parameters().begin()));
        CHECK(training.state_digest() == usual.state_digest());
      }
    });
  });
}

TEST_CASE("memory that cannot be meant is refused; gradients of frozen tensors in adopted memory are left alone") {
  const auto make = [](acco::parameter_layout const& layout) {
    return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                           acco::solo_backend{}, layout};
  };
  std::vector<float> a(411, 5.0F), b(411, 1.0F);
  auto flat = make(layout_of(true));
  CHECK_THROWS_WITH_AS(flat.adopt(a, a), doctest::Contains("adopt: the two arrays share memory"), acco::usage_error);
  CHECK(a[7] == 5.0F);
  flat.adopt(a, b);
  CHECK(b[0] == 0.0F);
  CHECK(b[217] == 1.0F);  // of the frozen stem
  using tensors = std::vector<acco::tensor_memory<float>>;
  std::vector<float> p(411), g(411);
  auto list = make(layout_of(false));
  CHECK_THROWS_WITH_AS(
      list.adopt(tensors{{p.data(), g.data()}, {p.data() + 216, g.data() + 217}, {p.data() + 270, g.data() + 270}}),
      doctest::Contains("adopt: tensor 'stem' and another share memory"), acco::usage_error);
  CHECK_THROWS_AS(list.adopt(tensors{{p.data(), g.data()}, {p.data() + 217, g.data() + 217}, {p.data() + 270, p.data()}}),
                  acco::usage_error);
  CHECK_NOTHROW(list.adopt(tensors{{p.data(), g.data()}, {p.data() + 217, g.data() + 217}, {p.data() + 270, g.data() + 270}}));
}

TEST_CASE(
    "ranks that are threads cannot adopt one model, nor two optimizers; when the first has ended its memory is free again") {
  std::vector<float> p(40, 1.0F), g(40), free_p(40), free_g(40);
  CHECK_THROWS_WITH_AS(
      acco::threads_backend::run(2,
                                 [&](acco::threads_backend const& world) {
                                   acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{},
                                                            acco::host_storage<float>{}, world, p.size()};
                                   training.adopt(p, g);
                                 }),
      doctest::Contains("adopt: another optimizer of this process works in the memory of the arrays"), acco::usage_error);
  const auto make = [](std::size_t count) {
    return acco::optimizer{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                           acco::solo_backend{}, count};
  };
  using tensors = std::vector<acco::tensor_memory<float>>;
  {
    auto first = make(40);
    first.adopt(p, g);
    auto second = make(40);
    CHECK_THROWS_WITH_AS(second.adopt(free_p, g), doctest::Contains("another optimizer"), acco::usage_error);
    auto third = make(20);
    CHECK_THROWS_WITH_AS(third.adopt(tensors{{p.data() + 20, free_g.data()}}),
                         doctest::Contains("works in the memory of tensor 'parameters'"), acco::usage_error);
    second.adopt(free_p, free_g);  // what was refused has claimed nothing
  }
  auto again = make(40);
  again.adopt(p, g);
  acco::any_optimizer<float> moved = std::move(again);
  auto late = make(40);
  CHECK_THROWS_AS(late.adopt(p, g), acco::usage_error);
  moved.accumulated(1);
  moved.finish();  // gives the arrays back until the next micro-batch
  moved.finish();
  CHECK_NOTHROW(late.adopt(p, g));
  g[3] = 7;
  CHECK_THROWS_WITH_AS(moved.finish(),
                       doctest::Contains("another optimizer of this process has adopted this one's arrays since finish()"),
                       acco::usage_error);
  CHECK(g[3] == 7);  // it would have cleared what the other has accumulated
  CHECK_THROWS_WITH_AS(moved.accumulated(1),
                       doctest::Contains("another optimizer of this process has adopted this one's arrays since finish()"),
                       acco::usage_error);
  late.accumulated(1);
  late.finish();
  auto taking_turns = make(40);
  taking_turns.adopt(p, g);
  g[0] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_AS(({
                    for (int m = 0; m < 4; ++m) taking_turns.accumulated(1);
                  }),
                  acco::non_finite_error);
  auto after_an_error = make(40);
  CHECK_NOTHROW(after_an_error.adopt(p, g));
  after_an_error.finish();
}

TEST_CASE("two heads on one frozen trunk; a forked process adopts its copy") {
  std::vector<float> trunk(30, 2.0F), a(10), ga(10), b(10), gb(10);
  acco::parameter_layout layout;
  layout.add("trunk", {30}, layout.add_group({.frozen = true}));
  layout.add("head", {10});
  const auto make = [&] {
    return acco::optimizer{acco::synchronous{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, layout};
  };
  using tensors = std::vector<acco::tensor_memory<float>>;
  auto one = make(), two = make();
  one.adopt(tensors{{trunk.data(), nullptr}, {a.data(), ga.data()}});
  CHECK_NOTHROW(two.adopt(tensors{{trunk.data(), nullptr}, {b.data(), gb.data()}}));
  ga[0] = gb[0] = 1;
  one.accumulated(1);
  two.accumulated(1);
  CHECK(a[0] == b[0]);
  CHECK(a[0] != 0);
  CHECK(trunk[29] == 2.0F);
#if !defined(ACCO_THREAD_SANITIZER)
  const pid_t child = fork();
  if (child == 0) {
    bool fine = false;
    try {
      auto own = make();
      own.adopt(tensors{{trunk.data(), nullptr}, {a.data(), ga.data()}});
      own.accumulated(1);
      own.finish();
      fine = true;
    } catch (acco::error const&) {
    }
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
#endif
}

TEST_CASE("an empty tensor shares memory with nobody; many tensors are looked at in no time") {
  acco::parameter_layout layout;
  layout.add("w", {8});
  layout.add("nothing", {0, 8});
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{}, acco::host_storage<float>{},
                           acco::solo_backend{}, layout};
  std::vector<float> p(8), g(8);
  using tensors = std::vector<acco::tensor_memory<float>>;
  CHECK_NOTHROW(training.adopt(tensors{{p.data(), g.data()}, {p.data() + 3, p.data() + 3}}));
}

TEST_CASE("an empty tensor at the end, and nothing to learn for long, with checks") {
  acco::parameter_layout layout;
  layout.add("a", {5}).add("empty", {0});
  std::vector<float> p(5, 1.0F), g(5, 0.0F);
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{2}},
                           acco::sgd{},
                           acco::host_storage<float>{},
                           acco::solo_backend{},
                           layout,
                           acco::options{.check_habits = acco::habit_checks::on}};
  training.adopt(std::vector<acco::tensor_memory<float>>{{p.data(), g.data()}, {nullptr, nullptr}});
  for (int m = 0; m < 60; ++m) {
    if (m < 4) g[0] += 1.0F;
    training.accumulated(1);
  }
  CHECK_NOTHROW(training.finish());
}

TEST_CASE_TEMPLATE("weights that are handed over as they are shown keep their masters; one tensor may be handed over alone",
                   Storage, acco::host_storage<acco::bfloat16, float>, acco::host_storage<acco::half, float>) {
  using P = typename Storage::parameter_type;
  constexpr std::size_t n = 300;
  constexpr double rate = 1.0 / 16384;  // 128 steps of it are a last digit of bfloat16
  for (const int way : {0, 1, 2}) {     // nobody edits; the whole array is handed over; one tensor is
    CAPTURE(way);
    acco::parameter_layout layout;
    layout.add("clipped", {n}).add("other", {n});
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}}, acco::sgd{.learning_rate = rate}, Storage{}, world,
                               layout};
      training.initialize(std::vector<P>(2 * n, P(1.0F)));
      for (int step = 0; step < 128; ++step) {
        for (int part = 0; part < 2; ++part) {
          for (float& g : training.gradients()) g += 1;
          training.accumulated(1);
        }
        training.finish();
        std::vector<P> values(training.parameters().begin(), training.parameters().end());
        // the projection
        for (std::size_t i = 0; i < n; ++i) values[i] = P(std::max(static_cast<float>(values[i]), 1.0F));
        if (way == 1) training.set_parameters(values);
        if (way == 2) training.set_parameters("clipped", std::span(values).first(n));
      }
      std::vector<double> masters(2 * n);
      training.gather_masters(std::span(masters));
      for (std::size_t i = n; i < 2 * n; ++i) CHECK(masters[i] == doctest::Approx(1 - 128 * rate).epsilon(1e-9));
      CHECK_THROWS_WITH_AS(training.set_parameters("clipped", std::vector<P>(5)),
                           doctest::Contains("set_parameters got 5 values for tensor 'clipped', which has 300"),
                           acco::usage_error);
      CHECK_THROWS_AS(training.set_parameters("none", std::vector<P>(5)), acco::usage_error);
    });
  }
}
