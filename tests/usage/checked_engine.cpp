// SPDX-License-Identifier: Apache-2.0
// What trainers do by habit and what the library says to it; and that it says nothing to those who do it right.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/captured_stderr.hpp"
#include "support/every_schedule.hpp"
#include "support/problem.hpp"
#include "support/thorough.hpp"

namespace {

constexpr std::size_t count = 1500;
const acco::options checked{.check_habits = acco::habit_checks::on};
const acco::options unchecked{.check_habits = acco::habit_checks::off};

enum class habit { none, clears, keeps_both, keeps_parameters, keeps_gradients, clips_weights, detaches, detaches_later };

struct ending {
  std::string error;              // empty: none
  std::string said;               // on stderr, by any rank
  std::size_t micro_batches = 0;  // until then
  std::vector<double> parameters;
};

/// Trains for up to 400 micro-batches a rank, with a habit of rank 1.
template <class Storage = acco::host_storage<float>, class Schedule>
ending trained(Schedule schedule, habit which, acco::options const& chosen = checked) {
  ending found;
  captured_stderr const said;
  try {
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      using P = typename Storage::parameter_type;
      using G = typename Storage::gradient_type;
      const bool bad = world.rank() == 1, everybody = which == habit::detaches || which == habit::detaches_later;
      acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, Storage{}, world, count, chosen};
      training.initialize(std::vector<P>(count, P(0.5F)));
      auto p = training.parameters();
      auto g = training.gradients();
      std::vector<G> elsewhere(count, G(0.0F));
      for (std::size_t m = 0; m < 400; ++m) {
        if (bad) found.micro_batches = m;
        const habit now = bad || everybody ? which : habit::none;
        if (now != habit::keeps_both && now != habit::keeps_parameters) p = training.parameters();
        if (now != habit::keeps_both && now != habit::keeps_gradients) g = training.gradients();
        const bool away = now == habit::detaches || (now == habit::detaches_later && m >= 100);
        const std::span<G> to = away ? std::span<G>(elsewhere) : g;
        if (now == habit::clears) std::fill(to.begin(), to.end(), G(0.0F));
        problem::add_sample(m * 2 + static_cast<std::size_t>(world.rank()), p, to);
        if (now == habit::clips_weights && m == 10) const_cast<P&>(p[77]) = P(std::min(0.4F, static_cast<float>(p[77]) / 2));
        training.accumulated(1);
      }
      training.finish();
      if (!bad) {
        for (P const& each : training.parameters()) found.parameters.push_back(static_cast<double>(each));
      }
    });
  } catch (acco::error const& e) {
    found.error = e.what();
  }
  found.said = said.text();
  return found;
}

/// Schedules whose steps add micro-batches up in one accumulator.
template <class Visitor>
void schedules_that_add_up(Visitor&& visit) {
  visit(acco::synchronous{.pace = acco::fixed_pace{2}});
  visit(acco::delayed{.pace = acco::fixed_pace{4}});
  visit(acco::two_phase{.pace = acco::fixed_pace{3}});
  visit(acco::two_phase{.estimate = acco::block_int4{}, .pace = acco::fixed_pace{2}});
}

bool contains(std::string const& words, char const* part) {
  if (words.find(part) != std::string::npos) return true;
  MESSAGE(words);
  return false;
}

}  // namespace

TEST_CASE("gradients that the trainer clears where they are to be added up: it is said, once, and changes nothing") {
  schedules_that_add_up([&](auto schedule) {
    auto const found = trained(schedule, habit::clears);
    CHECK(found.error.empty());
    CHECK(
        found.said.starts_with("acco: rank 1: gradients() look as if they were cleared, or written over, between micro-batches"));
    CHECK(std::count(found.said.begin(), found.said.end(), '\n') == 1);
    CHECK(found.parameters == trained(schedule, habit::clears, unchecked).parameters);
    CHECK(contains(trained<acco::host_storage<acco::bfloat16>>(schedule, habit::clears).said, "look as if they were cleared"));
  });
}

TEST_CASE_TEMPLATE("clearing before each step changes no bit, in any schedule, however arrays are given; in place it is said",
                   Gradient, float, acco::bfloat16) {
  enum class way { spans, adopted, apart };
  const auto train = [](auto schedule, way how, bool clears, acco::options const& chosen) {
    std::vector<float> result;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      std::vector<float> p(count, 0.5F);
      std::vector<Gradient> g(count, Gradient(0.0F));
      acco::parameter_layout layout;
      layout.add("a", {count / 3}).add("b", {count - count / 3});
      acco::optimizer training{schedule, acco::adamw{.learning_rate = 0.01}, acco::host_storage<float, Gradient>{}, world, layout,
                               chosen};
      const std::vector<acco::tensor_memory<float, Gradient>> tensors{{p.data(), g.data()},
                                                                      {p.data() + count / 3, g.data() + count / 3}};
      if (how == way::spans) training.initialize(p);
      if (how == way::adopted) training.adopt(p, g);
      if (how == way::apart) training.adopt(tensors);
      const auto gradients = [&] { return how == way::spans ? training.gradients() : std::span(g); };
      std::size_t m = static_cast<std::size_t>(world.rank());
      for (int step = 0; step < 60; ++step) {
        auto const now = gradients();
        if (clears) std::fill(now.begin(), now.end(), Gradient(0.0F));
        do {
          problem::add_sample<float, Gradient>(m += 2, how == way::spans ? training.parameters() : std::span<float const>(p),
                                               gradients());
        } while (!training.accumulated(1));
      }
      training.finish();
      auto const end = how == way::spans ? training.parameters() : std::span<float const>(p);
      if (world.rank() == 0) result.assign(end.begin(), end.end());
    });
    return result;
  };
  const acco::two_phase coarse{.estimate = acco::block_int4{}};
  for (const way how : {way::spans, way::adopted, way::apart}) {
    CAPTURE(static_cast<int>(how));
    const auto compare = [&](auto schedule) {
      CHECK(train(schedule, how, true, checked) == train(schedule, how, false, unchecked));
    };
    if constexpr (std::is_same_v<Gradient, float>) every_schedule(compare);
    compare(coarse);
    for (const bool clears : {true, false}) {
      captured_stderr const said;
      acco::options in_place = checked;
      in_place.in_place = true;
      (void)train(coarse, how, clears, in_place);
      CHECK((said.text().find("look as if they were cleared") != std::string::npos) == clears);
    }
  }
}

TEST_CASE("spans of before a report are found, in every schedule and mode in which they move") {
  const auto expect = [](auto const& found, habit which) {
    CHECK(found.micro_batches < 40);
    CHECK(contains(found.error, which == habit::keeps_parameters
                                    ? "gradients were computed from parameters of before the last report"
                                    : "gradients were added to a span of before the last report"));
    CHECK(contains(found.error, "ask again after each report"));
  };
  acco::options stable = checked, skipping = checked;
  stable.stable_addresses = true;
  skipping.on_non_finite = acco::non_finite::skip;
  for (const habit which : {habit::keeps_both, habit::keeps_parameters, habit::keeps_gradients}) {
    CAPTURE(static_cast<int>(which));
    every_schedule([&](auto schedule) {
      expect(trained(schedule, which), which);
      if (which == habit::keeps_parameters) expect(trained(schedule, which, skipping), which);
      CHECK(trained(schedule, which, stable).error.empty());
    });
    expect(trained<acco::host_storage<acco::bfloat16, float>>(acco::two_phase{.pace = acco::fixed_pace{1}}, which), which);
    expect(trained<acco::host_storage<acco::bfloat16>>(acco::two_phase{.pace = acco::fixed_pace{1}}, which), which);
    expect(trained<acco::host_storage<double>>(acco::two_phase{.estimate = acco::block_int4{}}, which), which);
  }
}

TEST_CASE("one parameter that the trainer writes to is found in the same micro-batch, with the tensor and what to do") {
  every_schedule([](auto schedule) {
    auto const found = trained(schedule, habit::clips_weights);
    CHECK(contains(found.error, "the parameters were written to since they came into use, tensor 'parameters' at element 77 "));
    CHECK(contains(found.error, "set_parameters"));
    CHECK(found.micro_batches == 10);
  });
}

TEST_CASE("weights that are written between the last report and finish are found there; who rests may write and hand them over") {
  every_schedule([](auto schedule) {
    for (const bool writes : {true, false}) {
      std::vector<float> p(count, 0.5F), g(count, 0.0F);
      acco::optimizer training{
          schedule, acco::adamw{.learning_rate = 0.01}, acco::host_storage<float>{}, acco::solo_backend{}, count, checked};
      training.adopt(p, g);
      const auto train = [&] {
        for (std::size_t m = 0; m < 6; ++m) {
          problem::add_sample<float, float>(m, p, g);
          training.accumulated(1);
        }
      };
      train();
      if (writes) {
        p[count - 1] = 9;
        CHECK_THROWS_WITH_AS(training.finish(), doctest::Contains("the parameters were written to since they came into use"),
                             acco::usage_error);
        continue;
      }
      training.finish();
      training.finish();
      std::fill(p.begin(), p.end(), 0.25F);
      training.finish();  // at rest: nothing of it would be undone
      training.set_parameters(p);
      train();
      training.finish();
      CHECK(p[0] != 0.25F);
      CHECK(std::abs(p[0] - 0.25F) < 0.2F);
    }
  });
}

TEST_CASE("a learning rate that stays 0 is found, by each rank, and also where only one rank looks") {
  for (const bool both : {true, false}) {
    std::vector<std::string> found(2);
    const auto run = [&](acco::threads_backend const& world) {
      acco::options chosen = both || world.rank() == 0 ? checked : unchecked;
      chosen.empty_limit = 12;
      chosen.learning_rate = acco::warmup_linear{.warmup = 5, .total = 200};  // meant in steps
      acco::optimizer training{
          acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, count, chosen};
      training.initialize(std::vector<float>(count, 0.5F));
      try {
        for (int step = 0; step < 30; ++step) {
          training.step([](auto, auto g) {
            for (float& each : g) each += 1;
            return 8192;
          });
        }
        training.finish();
      } catch (acco::error const& e) {
        found[static_cast<std::size_t>(world.rank())] = e.what();
        throw;
      }
    };
    CHECK_THROWS_AS(acco::threads_backend::run(2, run), acco::error);
    for (std::string const& each : found) CHECK(contains(each, "the learning rate has been 0 in 13 steps in a row"));
    CHECK(contains(found[0], "acco::in_steps"));
  }
}

TEST_CASE("gradients that stay zero on all ranks are found, from the start and later; not those that one rank lacks") {
  acco::options chosen = checked;
  chosen.empty_limit = 20;
  every_schedule([&](auto schedule) {
    for (const habit which : {habit::detaches, habit::detaches_later}) {
      auto const found = trained(schedule, which, chosen);
      CHECK(contains(found.error, "gradients() stayed zero on all ranks, in "));
      CHECK(found.micro_batches < (which == habit::detaches ? 50U : 200U));
    }
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer training{schedule, acco::adamw{}, acco::host_storage<float>{}, world, 8, chosen};
      training.initialize(std::vector<float>(8, 1.0F));
      for (int m = 0; m < 120; ++m) {
        if (world.rank() == 0) training.gradients()[3] += 1.0F;
        training.accumulated(1);
      }
      CHECK_NOTHROW(training.finish());
    });
  });
}

TEST_CASE("what is right raises nothing, and has the bits that it has without checks") {
  std::size_t at = 0;
  every_schedule([&](auto schedule) {
    auto const with = trained(schedule, habit::none);
    CHECK(with.error.empty());
    CHECK(with.said.empty());
    CHECK(with.parameters == trained(schedule, habit::none, unchecked).parameters);
    const std::size_t which = at++ % 3;  // each type with some schedules, each schedule in some type
    if (thorough() || which == 0) CHECK(trained<acco::host_storage<acco::bfloat16>>(schedule, habit::none).error.empty());
    if (thorough() || which == 1) CHECK(trained<acco::host_storage<acco::bfloat16, float>>(schedule, habit::none).error.empty());
    if (thorough() || which == 2) CHECK(trained<acco::host_storage<float, acco::half>>(schedule, habit::none).error.empty());
  });
}

TEST_CASE("gradients that are no numbers, and are skipped, are no old parameters") {
  acco::options chosen = checked;
  chosen.on_non_finite = acco::non_finite::skip;
  acco::optimizer training{acco::delayed{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, count, chosen};
  training.initialize(std::vector<float>(count, 1.0F));
  for (int m = 0; m < 20; ++m) {
    training.gradients()[7] += m % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
    CHECK_NOTHROW(training.accumulated(1));
  }
  training.finish();
}

TEST_CASE("a buffer that a trainer keeps in a frozen tensor may be written to") {
  acco::parameter_layout layout;
  layout.add("weight", {100}).add("running mean", {50}, layout.add_group({.frozen = true}));
  acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                           acco::adamw{},
                           acco::host_storage<float>{},
                           acco::solo_backend{},
                           layout,
                           checked};
  training.initialize(std::vector<float>(150, 1.0F));
  for (int m = 0; m < 50; ++m) {
    for (float const& each : training.tensor("running mean").parameters) const_cast<float&>(each) = static_cast<float>(m);
    for (float& each : training.gradients().first(100)) each += 0.1F;
    training.accumulated(1);
  }
  training.finish();
  CHECK(training.tensor("running mean").parameters[7] == 49.0F);
}

TEST_CASE("who leaves without finish is told") {
  for (const bool finishes : {true, false}) {
    captured_stderr const said;
    {
      acco::optimizer training{acco::delayed{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, count, checked};
      training.initialize(std::vector<float>(count, 1.0F));
      training.accumulated(1);
      if (finishes) training.finish();
    }
    CHECK(said.text().starts_with(finishes ? "" : "acco: rank 0: an optimizer was destroyed without finish()"));
    CHECK(said.text().empty() == finishes);
  }
}

TEST_CASE("debug builds check, others do not, unless they are told to") {
  CHECK(acco::checks_habits(acco::habit_checks::on));
  CHECK_FALSE(acco::checks_habits(acco::habit_checks::off));
#if defined(NDEBUG)
  CHECK_FALSE(acco::checks_habits(acco::habit_checks::in_debug_builds));
#else
  CHECK(acco::checks_habits(acco::habit_checks::in_debug_builds));
#endif
}
