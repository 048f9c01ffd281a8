// SPDX-License-Identifier: Apache-2.0
// What trainers do by habit and what the library says to it; and that it says nothing to those who do it right.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
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

enum class habit {
  none,
  clears,
  overwrites,
  keeps_both,
  keeps_parameters,
  keeps_gradients,
  clips_weights,
  detaches,
  detaches_later
};

/// Some habits are races by their nature: trainer and engine in the same memory.
bool skipped_as_race() {
#if defined(ACCO_THREAD_SANITIZER)
  MESSAGE("skipped: the habit itself is a data race, which ThreadSanitizer reports");
  return true;
#else
  return false;
#endif
}

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
        if (now == habit::clears || now == habit::overwrites) std::fill(to.begin(), to.end(), G(0.0F));
        problem::add_sample(m * 2 + static_cast<std::size_t>(world.rank()), p, to);
        if (now == habit::clips_weights && m >= 10) {
          for (P const& each : p) const_cast<P&>(each) = P(std::min(0.4F, static_cast<float>(each)));
        }
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

}  // namespace

TEST_CASE("gradients that the trainer clears, or writes over, where they are to be added up: it is said, once") {
  const std::string sentence = "acco: rank 1: gradients() look as if they were cleared, or written over, between micro-batches";
  schedules_that_add_up([&](auto schedule) {
    for (const habit which : {habit::clears, habit::overwrites}) {
      for (auto const& found : {trained(schedule, which), trained<acco::host_storage<double>>(schedule, which),
                                trained<acco::host_storage<acco::bfloat16>>(schedule, which)}) {
        CHECK(found.error.empty());
        CHECK(found.said.starts_with(sentence));
        CHECK(std::count(found.said.begin(), found.said.end(), '\n') == 1);
      }
    }
    CHECK(trained(schedule, habit::none).said.empty());
  });
}

TEST_CASE("nothing is written into gradients, whatever a trainer does to them") {
  for (const habit which : {habit::none, habit::clears, habit::overwrites}) {
    schedules_that_add_up([&](auto schedule) {
      CHECK(trained(schedule, which).parameters ==
            trained(schedule, which, acco::options{.check_habits = acco::habit_checks::off}).parameters);
    });
  }
}

TEST_CASE("clearing before the only micro-batch of a part changes nothing") {
  for (const habit which : {habit::clears, habit::overwrites}) {
    CHECK(trained(acco::two_phase{.pace = acco::fixed_pace{1}}, which).parameters ==
          trained(acco::two_phase{.pace = acco::fixed_pace{1}}, habit::none).parameters);
    CHECK(trained(acco::synchronous{}, which).parameters == trained(acco::synchronous{}, habit::none).parameters);
  }
}

TEST_CASE("zero_grad before each step changes no bit, in any schedule and build; in place it is found in every build") {
  enum class way { spans, adopted, apart };
  const auto train = [](auto schedule, way how, bool clears, bool in_place = false) {
    std::vector<float> result;
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      std::vector<float> p(count, 0.5F), g(count, 0.0F);
      acco::parameter_layout layout;
      layout.add("a", {count / 3}).add("b", {count - count / 3});
      acco::optimizer training{schedule,
                               acco::adamw{.learning_rate = 0.01},
                               acco::host_storage<float>{},
                               world,
                               layout,
                               acco::options{.in_place = in_place, .check_habits = acco::habit_checks::off}};
      const std::vector<acco::tensor_memory<float, float>> tensors{{p.data(), g.data()},
                                                                   {p.data() + count / 3, g.data() + count / 3}};
      if (how == way::spans) training.initialize(p);
      if (how == way::adopted) training.adopt(p, g);
      if (how == way::apart) training.adopt(tensors);
      const auto gradients = [&] { return how == way::spans ? training.gradients() : std::span(g); };
      std::size_t m = static_cast<std::size_t>(world.rank());
      for (int step = 0; step < 60; ++step) {
        if (clears) {
          auto const now = gradients();
          std::fill(now.begin(), now.end(), 0.0F);
        }
        do {
          problem::add_sample<float, float>(m += 2, how == way::spans ? training.parameters() : std::span<float const>(p),
                                            gradients());
        } while (!training.accumulated(1));
      }
      training.finish();
      auto const end = how == way::spans ? training.parameters() : std::span<float const>(p);
      if (world.rank() == 0) result.assign(end.begin(), end.end());
    });
    return result;
  };
  const auto compare = [&](auto schedule) {
    for (const way how : {way::spans, way::adopted, way::apart}) {
      CAPTURE(static_cast<int>(how));
      CHECK(train(schedule, how, true) == train(schedule, how, false));
    }
  };
  every_schedule(compare);
  compare(acco::two_phase{.estimate = acco::block_int4{}});
  for (const way how : {way::spans, way::adopted}) {
    CHECK_THROWS_WITH_AS(train(acco::two_phase{.estimate = acco::block_int4{}}, how, true, true),
                         doctest::Contains("gradients() were cleared, or written over, between micro-batches"),
                         acco::usage_error);
    CHECK_NOTHROW(train(acco::two_phase{.estimate = acco::block_int4{}}, how, false, true));
  }
}

TEST_CASE("in place, clearing is found where one gradient in a thousand is not 0, too") {
  constexpr std::size_t size = 20000;
  for (const bool clears : {true, false}) {
    const auto train = [&] {
      acco::optimizer training{acco::two_phase{.estimate = acco::block_int8{}},
                               acco::sgd{.learning_rate = 1e-3},
                               acco::host_storage<float>{},
                               acco::solo_backend{},
                               size,
                               acco::options{.in_place = true, .check_habits = acco::habit_checks::off}};
      training.initialize(std::vector<float>(size, 0.0F));
      for (std::size_t step = 0, m = 0; step < 200; ++step) {
        auto const now = training.gradients();
        if (clears) std::fill(now.begin(), now.end(), 0.0F);
        do {
          auto const g = training.gradients();
          for (std::size_t i = m++ % 7; i < size; i += 1000) g[i] += static_cast<float>(0.5 + problem::unit(i + m));
        } while (!training.accumulated(1));
      }
    };
    if (clears) {
      CHECK_THROWS_WITH_AS(train(), doctest::Contains("gradients() were cleared"), acco::usage_error);
    } else {
      CHECK_NOTHROW(train());
    }
  }
}

TEST_CASE("in place is refused where nobody could see that kept gradients were cleared") {
  const auto make = [](auto storage, auto schedule) {
    (void)acco::optimizer{schedule, acco::sgd{}, storage, acco::solo_backend{}, count, acco::options{.in_place = true}};
  };
  using small = acco::host_storage<float, acco::bfloat16>;
  CHECK_THROWS_WITH_AS(make(small{}, acco::two_phase{.estimate = acco::own_slice{}}), doctest::Contains("options::in_place"),
                       acco::usage_error);
  CHECK_NOTHROW(make(small{}, acco::two_phase{}));  // keeps nothing
}

TEST_CASE("spans of before a report are found, in every schedule and mode in which they move") {
  if (skipped_as_race()) return;
  const auto expect = [](auto const& found) {
    CAPTURE(found.error);
    CHECK_FALSE(found.error.empty());
    CHECK(found.micro_batches < 40);
    const bool says = found.error.find("ask again after each report") != std::string::npos ||
                      found.error.find("ask for the spans again after each report") != std::string::npos ||
                      found.error.find("not to one of before the last report") != std::string::npos;
    CHECK(says);
  };
  every_schedule([&](auto schedule) {
    for (const habit which : {habit::keeps_both, habit::keeps_parameters, habit::keeps_gradients}) {
      CAPTURE(static_cast<int>(which));
      expect(trained(schedule, which));
      acco::options stable = checked;
      stable.stable_addresses = true;
      CHECK(trained(schedule, which, stable).error.empty());
    }
  });
  for (const habit which : {habit::keeps_both, habit::keeps_parameters, habit::keeps_gradients}) {
    expect(trained<acco::host_storage<acco::bfloat16, float>>(acco::two_phase{.pace = acco::fixed_pace{1}}, which));
    expect(trained<acco::host_storage<acco::bfloat16>>(acco::two_phase{.pace = acco::fixed_pace{1}}, which));
    expect(trained<acco::host_storage<double>>(acco::two_phase{.pace = acco::fixed_pace{1}}, which));
  }
}

TEST_CASE("parameters that the trainer writes to are found, with the tensor and what to do") {
  if (skipped_as_race()) return;
  every_schedule([](auto schedule) {
    for (const bool stable : {false, true}) {
      acco::options chosen = checked;
      chosen.stable_addresses = stable;
      auto const found = trained(schedule, habit::clips_weights, chosen);
      CHECK(found.error.find("the parameters were written to since they came into use, tensor 'parameters' at element ") !=
            std::string::npos);
      CHECK(found.error.find("set_parameters") != std::string::npos);
      CHECK(found.micro_batches <= 12);
    }
  });
}

TEST_CASE("a learning rate that stays 0 is found, on every rank alike") {
  acco::options chosen = checked;
  chosen.empty_limit = 12;
  chosen.learning_rate = acco::warmup_linear{.warmup = 5, .total = 200};  // meant in steps
  std::vector<std::string> found(2);
  CHECK_THROWS_AS(
      acco::threads_backend::run(
          2,
          [&](acco::threads_backend const& world) {
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
            } catch (acco::usage_error const& e) {
              found[static_cast<std::size_t>(world.rank())] = e.what();
              throw;
            }
          }),
      acco::usage_error);
  for (std::string const& each : found) {
    CHECK(each.find("the learning rate has been 0 in 13 steps in a row") != std::string::npos);
    CHECK(each.find("acco::in_steps") != std::string::npos);
  }
}

TEST_CASE("weights that are written between the last report and finish are found there; who rests may write and hand them over") {
  if (skipped_as_race()) return;
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
        std::fill(p.begin(), p.end(), 9.0F);
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

TEST_CASE("gradients that stay zero on all ranks are found, from the start and later") {
  acco::options chosen = checked;
  chosen.empty_limit = 20;
  every_schedule([&](auto schedule) {
    for (const habit which : {habit::detaches, habit::detaches_later}) {
      auto const found = trained(schedule, which, chosen);
      CHECK(found.error.find("gradients() stayed zero on all ranks, in ") != std::string::npos);
      CHECK(found.micro_batches < (which == habit::detaches ? 50U : 200U));
    }
  });
}

TEST_CASE("a tensor that never gets a gradient is named; not one that is frozen or may lack it") {
  const auto run = [](acco::update_group const& group) {
    acco::parameter_layout layout;
    layout.add("used", {40}).add("forgotten", {30}, layout.add_group(group)).add("late", {20});
    acco::optimizer training{acco::two_phase{.pace = acco::fixed_pace{1}},
                             acco::adamw{},
                             acco::host_storage<float>{},
                             acco::solo_backend{},
                             layout,
                             checked};
    training.initialize(std::vector<float>(90, 1.0F));
    for (int m = 0; m < 60; ++m) {
      training.gradients()[3] += 1.0F;
      if (m > 5) training.tensor("late").gradients[7] += 1.0F;
      training.accumulated(1);
    }
    training.finish();
  };
  CHECK_THROWS_WITH_AS(run({}), doctest::Contains("tensor 'forgotten' has had no gradient in 11 parts of steps, on any rank"),
                       acco::usage_error);
  CHECK_NOTHROW(run({.frozen = true}));
  CHECK_NOTHROW(run({.leave_without_gradient = true}));
}

TEST_CASE("what is right raises nothing, and has the bits that it has without checks") {
  const acco::options unchecked{.check_habits = acco::habit_checks::off};
  std::size_t at = 0;
  every_schedule([&](auto schedule) {
    auto const with = trained(schedule, habit::none);
    CHECK(with.error.empty());
    CHECK(with.parameters == trained(schedule, habit::none, unchecked).parameters);
    const std::size_t which = at++ % 3;  // each type with some schedules, each schedule in some type
    if (thorough() || which == 0) CHECK(trained<acco::host_storage<acco::bfloat16>>(schedule, habit::none).error.empty());
    if (thorough() || which == 1) CHECK(trained<acco::host_storage<acco::bfloat16, float>>(schedule, habit::none).error.empty());
    if (thorough() || which == 2) CHECK(trained<acco::host_storage<float, acco::half>>(schedule, habit::none).error.empty());
  });
}

TEST_CASE("gradients that flip their sign, vanish for a while, or are sparse raise nothing") {
  const auto run = [](auto schedule, auto add) {
    acco::optimizer training{schedule, acco::sgd{.learning_rate = 2}, acco::host_storage<double>{}, acco::solo_backend{}, count,
                             checked};
    training.initialize(std::vector<double>(count, 1.0));
    std::size_t m = 0;
    for (; m < (thorough() ? 600U : 240U); ++m) {
      add(m, training.parameters(), training.gradients());
      training.accumulated(1);
    }
    training.finish();
    return std::vector<double>(training.parameters().begin(), training.parameters().end());
  };
  using in = std::span<double const>;
  using out = std::span<double>;
  every_schedule([&](auto schedule) {
    CHECK_NOTHROW(run(schedule, [](std::size_t, in p, out g) {  // on the edge of divergence: each step's gradient undoes the last
      for (std::size_t i = 0; i < count; ++i) g[i] += std::clamp(p[i], -1.0, 1.0);
    }));
    CHECK_NOTHROW(run(schedule, [](std::size_t m, in, out g) {  // one micro-batch takes back what the other gave
      for (std::size_t i = 0; i < count; ++i) g[i] += (m % 2 == 0 ? 1 : -0.999) * (1.0 + static_cast<double>(i % 5));
    }));
    CHECK_NOTHROW(run(schedule, [](std::size_t m, in, out g) {  // one element in a thousand, and every element now and then
      for (std::size_t i = m % 7; i < count; i += m % 10 == 0 ? 7 : 1000) g[i] += 0.001 * std::sin(static_cast<double>(i + m));
      if (m == 0) {
        for (double& each : g) each += 1e-3;
      }
    }));
    CHECK_NOTHROW(run(schedule, [](std::size_t m, in, out g) {  // nothing to learn from nine of ten micro-batches
      for (std::size_t i = 0; i < count && m % 10 == 0; ++i) g[i] += 0.001;
    }));
    CHECK_NOTHROW(run(schedule, [](std::size_t m, in, out g) {  // sudden growth by ten powers of ten
      for (std::size_t i = 0; i < count; ++i) g[i] += (m == 120 ? 1e10 : 1e-3) * std::sin(static_cast<double>(i * m));
    }));
  });
}

TEST_CASE("a rank may lack gradients that others have: heads of its own, nothing to learn for long") {
  acco::threads_backend::run(2, [](acco::threads_backend const& world) {
    acco::parameter_layout layout;
    layout.add("trunk", {30}).add("head0", {20}).add("head1", {20});
    acco::optimizer training{
        acco::two_phase{.pace = acco::fixed_pace{1}}, acco::adamw{}, acco::host_storage<float>{}, world, layout, checked};
    training.initialize(std::vector<float>(70, 1.0F));
    for (int m = 0; m < 80; ++m) {
      if (world.rank() == 0 || m >= 60) {
        training.gradients()[3] += 1.0F;
        training.tensor(world.rank() == 0 ? "head0" : "head1").gradients[2] += 1.0F;
      }
      training.accumulated(1);
    }
    CHECK_NOTHROW(training.finish());
  });
}

TEST_CASE("micro-batches that nearly undo each other are no clearing, whatever their size") {
  for (const double factor : {-1.001, -3.0, -9.0, -12.0, -30.0}) {
    every_schedule([&](auto schedule) {
      acco::optimizer training{
          schedule, acco::sgd{.learning_rate = 1e-3}, acco::host_storage<float>{}, acco::solo_backend{}, count, checked};
      training.initialize(std::vector<float>(count, 1.0F));
      for (std::size_t m = 0; m < 400; ++m) {
        auto const g = training.gradients();
        for (std::size_t i = 0; i < count; ++i)
          g[i] += static_cast<float>((m % 2 == 0 ? 1 : factor) * (1.0 + static_cast<double>((i * 7 + m / 2) % 13)));
        training.accumulated(m % 2 == 0 ? 1 : std::abs(factor));
      }
      CHECK_NOTHROW(training.finish());
    });
  }
}

TEST_CASE("clearing is said of noise, of sparse and of unequal gradients, and where it happens now and then; no other thing is") {
  enum class kind { noise, sparse, louder, uneven, agree, half, heads, rows, brings_nothing, opposes };
  enum class clearing { none, each, every_second, every_fourth };
  const auto run = [](auto schedule, kind which, clearing when) {
    captured_stderr const said;
    acco::optimizer training{schedule, acco::sgd{.learning_rate = 1e-3}, acco::host_storage<float>{}, acco::solo_backend{}, count,
                             checked};
    training.initialize(std::vector<float>(count, 1.0F));
    bool first = true;
    for (std::size_t m = 0; m < 1200; ++m) {
      auto const g = training.gradients();
      const bool clears = when == clearing::each || (when == clearing::every_second && m % 2 == 0) ||
                          (when == clearing::every_fourth && m % 4 == 0);
      if (clears) std::fill(g.begin(), g.end(), 0.0F);
      for (std::size_t i = 0; i < count; ++i) {
        const double noise = 2 * problem::unit(m * 3571 + i) - 1, all = 1 + static_cast<double>(i % 3) + noise;
        double own = noise;
        if (which == kind::sparse) own = (i + m) % 10 == 0 ? noise : 0;
        if (which == kind::louder && !first) own = 1.5 * noise;
        if (which == kind::uneven) own = noise * std::exp(2 * problem::unit(m) - 1);
        if (which == kind::agree) own = all;
        if (which == kind::half && !first) own = noise / 2;
        if (which == kind::heads) own = first == (i % 2 == 0) ? noise : noise / 4;
        if (which == kind::rows) own = first ? (i % 10 < 6 ? noise : 0) : (i % 10 < 2 ? noise : 0);
        if (which == kind::brings_nothing && !first) own = 0;
        if (which == kind::opposes) own = first ? all : -1.9 * (1 + static_cast<double>(i % 3));
        g[i] += static_cast<float>(own);
      }
      first = training.accumulated(1).has_value();
    }
    training.finish();
    return said.text().find("look as if they were cleared") != std::string::npos;
  };
  schedules_that_add_up([&](auto schedule) {
    for (const kind which : {kind::noise, kind::sparse, kind::louder, kind::uneven}) {
      CAPTURE(static_cast<int>(which));
      CHECK(run(schedule, which, clearing::each));
    }
    for (int which = 0; which <= static_cast<int>(kind::opposes); ++which) {
      CAPTURE(which);
      CHECK_FALSE(run(schedule, static_cast<kind>(which), clearing::none));
    }
  });
  CHECK(run(acco::synchronous{.pace = acco::fixed_pace{8}}, kind::noise, clearing::every_second));
  CHECK(run(acco::delayed{.pace = acco::fixed_pace{6}}, kind::noise, clearing::every_fourth));  // the trainer's step is another
}

TEST_CASE("old parameters are found where what is not finite is skipped, too") {
  if (skipped_as_race()) return;
  acco::options chosen = checked;
  chosen.on_non_finite = acco::non_finite::skip;
  every_schedule([&](auto schedule) {
    CHECK(trained(schedule, habit::keeps_parameters, chosen).error.find("parameters of before the last report") !=
          std::string::npos);
  });
  acco::parameter_layout layout;  // a small tensor between others that are read as they should be
  layout.add("before", {75}).add("bias", {10}).add("behind", {300});
  acco::optimizer training{acco::delayed{}, acco::sgd{}, acco::host_storage<float>{}, acco::solo_backend{}, layout, checked};
  training.initialize(std::vector<float>(385, 1.0F));
  auto const old = training.tensor("bias").parameters;
  const auto run = [&] {
    for (int m = 0; m < 20; ++m) {
      for (float& g : training.gradients()) g += 0.01F + 0.0F * old[0];
      training.accumulated(1);
    }
  };
  CHECK_THROWS_AS(run(), acco::error);
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

TEST_CASE("debug builds check, others do not, unless they are told to") {
  CHECK(acco::checks_habits(acco::habit_checks::on));
  CHECK_FALSE(acco::checks_habits(acco::habit_checks::off));
#if defined(NDEBUG)
  CHECK_FALSE(acco::checks_habits(acco::habit_checks::in_debug_builds));
#else
  CHECK(acco::checks_habits(acco::habit_checks::in_debug_builds));
#endif
}
