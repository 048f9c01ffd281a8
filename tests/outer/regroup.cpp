// SPDX-License-Identifier: Apache-2.0
// Workers that come and go, against the recurrence; what is handed over; what is refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "any_recurrence.hpp"
#include "recurrence.hpp"
#include "support/thorough.hpp"

namespace {

namespace rc = recurrence;
using world_type = acco::threads_backend;
using optimizer = acco::any_optimizer<double>;
using workers = std::vector<int>;  // those that are there, in the order of their ranks

/// A number from 0 to below 1 for each of these.
double drawn(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::mt19937_64 random(a * 1000003 + b * 1009 + c);
  random.discard(2);
  return static_cast<double>(random() >> 11U) * 0x1p-53;
}
double weight_of(int person, std::size_t t) { return 1 + std::floor(3 * drawn(7, static_cast<std::uint64_t>(person), t)); }
/// Of one sample: every person has a quadratic of its own.
double gradient_of(int person, std::size_t i, double at) {
  return (0.2 + 0.7 * drawn(1, i, 2)) * (at - drawn(3, static_cast<std::uint64_t>(person), i));
}

/// What happens: who is there in each part of the training, and the micro-batches of each.
struct story {
  rc::settings s;
  int ranks_a_group = 1;
  unsigned fragments = 1;
  bool coded = false;  // exchanges travel as bfloat16
  std::size_t size = 150;
  double deadline = 20;
  std::vector<workers> parts;
  std::vector<std::size_t> micro_batches;
};
std::size_t index_in(workers const& who, int worker) {
  return static_cast<std::size_t>(std::find(who.begin(), who.end(), worker) - who.begin());
}
bool is_in(workers const& who, int worker) { return index_in(who, worker) < who.size(); }

/// By part and micro-batch, by worker: where it stands then. The last of a part is the anchor.
using path = std::vector<std::vector<std::vector<rc::vector>>>;

/// Of the fragment that exchanges first after `first` steps of a part.
path expected(story const& what, unsigned first, double& samples) {
  rc::settings s = what.s;
  s.workers = what.parts.front().size();
  s.first = first;
  const auto gradient = [&](std::size_t worker, std::size_t t, rc::vector const& at) {
    std::pair<rc::vector, double> sum{rc::vector(at.size(), 0.0), 0.0};
    for (int place = 0; place < what.ranks_a_group; ++place) {
      const int person = static_cast<int>(worker) * what.ranks_a_group + place;
      sum.second += weight_of(person, t);
      for (std::size_t i = 0; i < at.size(); ++i) sum.first[i] += weight_of(person, t) * gradient_of(person, i, at[i]);
    }
    for (double& each : sum.first) each /= sum.second;
    return sum;
  };
  rc::training oracle(s, rc::vector(what.size, 1.0), gradient);
  path found(what.parts.size());
  for (std::size_t part = 0; part < what.parts.size(); ++part) {
    if (part != 0) {
      const auto only_in = [](workers const& these, workers const& others) {
        std::vector<std::size_t> found_there;
        for (const int m : these)
          if (!is_in(others, m)) found_there.push_back(static_cast<std::size_t>(m));
        return found_there;
      };
      oracle.change(only_in(what.parts[part - 1], what.parts[part]), only_in(what.parts[part], what.parts[part - 1]));
    }
    const auto look = [&] {
      auto& now = found[part].emplace_back();
      for (const int m : what.parts[part]) now.push_back(oracle.of(static_cast<std::size_t>(m)).shown);
    };
    for (std::size_t t = 0; t < what.micro_batches[part]; ++t) {
      oracle.micro_batch();
      look();
    }
    oracle.finish();
    look();
  }
  samples = oracle.samples();
  return found;
}

/// Runs function(worker, place in it, its worlds by part) on a thread for every rank that is ever there; the worlds are
/// parts of one.
template <class Function>
void run(std::vector<workers> const& parts, int ranks_a_group, Function&& function) {
  int most = 0;
  for (workers const& who : parts) most = std::max(most, *std::max_element(who.begin(), who.end()));
  world_type::run((most + 1) * ranks_a_group, [&](world_type const& lobby) {
    const int worker = lobby.rank() / ranks_a_group, place = lobby.rank() % ranks_a_group;
    std::vector<world_type> worlds;
    for (workers const& who : parts) {
      const int key = static_cast<int>(index_in(who, worker)) * ranks_a_group + place;
      worlds.push_back(lobby.split(is_in(who, worker) ? 0 : 1, key, 20));
    }
    function(worker, place, worlds);
  });
}
/// The way of a worker through all parts: train(part, training) on those where it is.
template <class Make, class Train>
void come_and_go(std::vector<workers> const& parts, int worker, std::vector<world_type> const& worlds, Make&& make,
                 double initial, std::size_t size, Train&& train) {
  optimizer training;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (!is_in(parts[part], worker)) continue;
    if (!training) {
      training = make(worlds[part]);
      part == 0 ? training.initialize(std::vector<double>(size, initial)) : training.join();
    } else {
      training.regroup(worlds[part]);
    }
    train(part, training);
    if (part + 1 < parts.size() && !is_in(parts[part + 1], worker)) {
      training.depart();
      training = {};
    }
  }
}

template <class Rule, class Exchange = acco::full>
acco::local_updates<any_recurrence<Rule>, acco::synchronous<>, Exchange> level_of(story const& what, Rule rule, Exchange = {}) {
  return {.method = {.rule = rule,
                     .delay = what.s.delay,
                     .work = what.s.work == rc::form::eager     ? acco::work_meanwhile::eager
                             : what.s.work == rc::form::restart ? acco::work_meanwhile::restart
                             : what.s.work == rc::form::pull    ? acco::work_meanwhile::pull
                                                                : acco::work_meanwhile::keep,
                     .keep_local = what.s.keep_local,
                     .weights = what.s.by_samples ? acco::worker_weights::samples : acco::worker_weights::equal},
          .ranks_a_group = what.ranks_a_group,
          .steps = what.s.steps,
          .fragments = what.fragments};
}
optimizer made(story const& what, world_type const& world, acco::parameter_layout const& layout, acco::options options = {}) {
  options.deadline = what.deadline;
  const auto with = [&](auto const& level) {
    return acco::optimizer{level,
                           acco::sgd{.learning_rate = what.s.inner_rate, .momentum = what.s.inner_momentum},
                           acco::host_storage<double>{},
                           world,
                           layout,
                           options};
  };
  if (what.s.outer == rc::rule::averaging) return with(level_of(what, acco::averaging{}));
  const acco::sgd rule{.learning_rate = what.s.rate, .momentum = what.s.momentum, .nesterov = what.s.outer == rc::rule::nesterov};
  return what.coded ? optimizer(with(level_of(what, rule, acco::bfloat16_wire{}))) : optimizer(with(level_of(what, rule)));
}

optimizer made(story const& what, world_type const& world) { return made(what, world, acco::parameter_layout(what.size)); }

story draw(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto of = [&](auto const& list) { return list[random() % std::size(list)]; };
  story what;
  what.ranks_a_group = of(std::to_array({1, 1, 2}));
  what.fragments = of(std::to_array({1U, 2U}));
  what.size = of(std::to_array<std::size_t>({100, 150, 333}));
  what.s.steps = of(std::to_array({2U, 4U}));
  what.s.work = of(std::to_array({rc::form::blocking, rc::form::keep, rc::form::restart, rc::form::eager, rc::form::pull}));
  what.s.outer = of(std::to_array({rc::rule::averaging, rc::rule::heavy_ball, rc::rule::nesterov}));
  if (what.s.work == rc::form::pull) what.s.outer = rc::rule::averaging;
  what.s.delay = what.s.work == rc::form::blocking ? 0 : what.s.steps;
  if ((what.s.work == rc::form::keep || what.s.work == rc::form::restart) && random() % 2 == 0)
    what.s.delay = 1 + static_cast<unsigned>(random() % what.s.steps);
  if (what.s.outer != rc::rule::averaging) {
    what.s.rate = of(std::to_array({0.4, 0.7}));
    what.s.momentum = of(std::to_array({0.2, 0.5}));
  }
  if (what.s.work == rc::form::blocking || what.s.work == rc::form::restart || what.s.work == rc::form::pull)
    what.s.keep_local = of(std::to_array({0.0, 0.25, 1.0}));
  what.s.by_samples = what.s.work != rc::form::eager && random() % 2 == 0;
  if (what.s.outer != rc::rule::averaging && random() % 3 == 0) {
    what.coded = true;
    what.s.code_change = what.s.code_anchor = [](rc::vector& values) {
      for (double& each : values) each = static_cast<double>(static_cast<float>(acco::bfloat16(static_cast<float>(each))));
    };
  }
  what.s.inner_rate = 0.3;
  what.s.inner_momentum = of(std::to_array({0.0, 0.5}));
  const workers three{0, 1, 2};
  workers two = three;
  two.erase(two.begin() + static_cast<std::ptrdiff_t>(random() % 3));
  workers four = two;
  four.insert(four.end(), {3, 4});
  std::shuffle(two.begin(), two.end(), random);
  std::shuffle(four.begin(), four.end(), random);
  what.parts = {three, two, four};
  for (std::size_t part = 0; part < 3; ++part) what.micro_batches.push_back(1 + random() % (3 * what.s.steps));
  return what;
}

/// The fragment of an element of a rank's slice.
unsigned fragment_of(story const& what, std::size_t i) {
  const auto ranks = static_cast<std::size_t>(what.ranks_a_group);
  const std::size_t slice = ((what.size + ranks - 1) / ranks + 63) / 64 * 64;
  return i % slice < slice / what.fragments ? 0 : what.fragments - 1;
}

void check(story const& what) {
  std::array<double, 2> samples{};
  std::vector<path> wanted;
  for (unsigned p = 0; p < what.fragments; ++p)
    wanted.push_back(expected(what, (p + 1) * what.s.steps / what.fragments % what.s.steps, samples[p]));
  std::mutex mutex;
  std::vector<std::vector<double>> ends(what.parts.size());
  run(what.parts, what.ranks_a_group, [&](int worker, int place, std::vector<world_type> const& worlds) {
    const int person = worker * what.ranks_a_group + place;
    std::size_t t = 0;
    const auto train = [&](std::size_t part, optimizer& training) {
      const auto same = [&](std::size_t at) {
        double most = 0;
        auto const now = training.parameters();
        for (std::size_t i = 0; i < what.size; ++i) {
          const double there = wanted[fragment_of(what, i)][part][at][index_in(what.parts[part], worker)][i];
          most = std::max(most, std::abs(now[i] - there) / (1 + std::abs(there)));
        }
        CAPTURE(part);
        CAPTURE(at);
        CAPTURE(worker);
        REQUIRE(most < 1e-12);
      };
      const auto all_alike = [&](std::size_t of) {  // in every bit
        const std::lock_guard lock(mutex);
        std::vector<double> const now(training.parameters().begin(), training.parameters().end());
        if (ends[of].empty()) ends[of] = now;
        CHECK(ends[of] == now);
      };
      if (part != 0) all_alike(part - 1);  // as the others left it
      for (std::size_t k = 0; k < what.micro_batches[part]; ++k) {
        auto const at = training.parameters();
        auto const g = training.gradients();
        const double weight = weight_of(person, t);
        for (std::size_t i = 0; i < at.size(); ++i) g[i] += weight * gradient_of(person, i, at[i]);
        (void)training.accumulated(weight);
        ++t;
        same(k);
      }
      training.finish();
      same(what.micro_batches[part]);
      all_alike(part);
      std::size_t steps = 0;
      for (std::size_t k = 0; k <= part; ++k) steps += what.micro_batches[k];
      CHECK(training.steps() == steps);
      if (part + 1 == what.parts.size()) CHECK(training.samples() == samples[0]);
    };
    come_and_go(
        what.parts, worker, worlds, [&](world_type const& world) { return made(what, world); }, place == 0 ? 1.0 : 7.0, what.size,
        train);
  });
}

/// DiLoCo after every second step, without encodings.
story plain(double deadline = 20) {
  story what;
  what.s.steps = 2;
  what.s.outer = rc::rule::nesterov;
  what.s.rate = 0.7;
  what.s.momentum = 0.5;
  what.s.inner_rate = 0.3;
  what.deadline = deadline;
  return what;
}
void micro_batch(optimizer& training, int person) {
  auto const at = training.parameters();
  auto const g = training.gradients();
  for (std::size_t i = 0; i < at.size(); ++i) g[i] += gradient_of(person, i, at[i]);
  (void)training.accumulated(1);
}
void train(optimizer& training, int person, int micro_batches) {
  for (int t = 0; t < micro_batches; ++t) micro_batch(training, person);
  training.finish();
}
optimizer begun(story const& what, world_type const& world) {
  optimizer training = made(what, world);
  training.initialize(std::vector<double>(what.size, 1.0));
  train(training, world.rank(), 2);
  return training;
}

/// How everybody has ended, each on a thread of its own: what was thrown, or nothing.
std::vector<std::string> ends(int people, std::function<void(std::size_t person)> const& function) {
  std::vector<std::string> found(static_cast<std::size_t>(people));
  {
    std::vector<std::jthread> threads;
    for (std::size_t person = 0; person < found.size(); ++person) {
      threads.emplace_back([&, person] {
        try {
          function(person);
        } catch (std::exception const& e) {
          found[person] = e.what();
        }
      });
    }
  }
  return found;
}
bool says(std::string const& what, char const* words) { return what.find(words) != std::string::npos; }
void check_says(std::string const& what, char const* words) {
  CAPTURE(what);
  CAPTURE(std::string(words));
  CHECK(says(what, words));
}

}  // namespace

TEST_CASE("three workers, then two, then four are the recurrence, with the mean over who is there") {
  for (std::uint64_t seed = 0; seed < (thorough() ? 40 : 8); ++seed) {
    const story what = draw(seed);
    CAPTURE(seed);
    CAPTURE(static_cast<int>(what.s.work));
    CAPTURE(static_cast<int>(what.s.outer));
    CAPTURE(what.s.steps);
    CAPTURE(what.s.delay);
    CAPTURE(what.ranks_a_group);
    CAPTURE(what.fragments);
    CAPTURE(what.coded);
    check(what);
  }
}

TEST_CASE(
    "regrouped among the same workers, a training is what it would have been, in every bit: rules that count steps, averages, "
    "rates") {
  std::array<std::vector<double>, 2> found, averages;
  std::array<std::vector<double>, 2> asked;
  for (const bool changes : {false, true}) {
    auto worlds = world_type::world(2), next = world_type::world(2);
    auto const said = ends(2, [&](std::size_t person) {
      acco::options options{.average_decay = 0.5};
      options.deadline = 20;
      if (person == 0) {
        options.learning_rate = [&](acco::training_position const& at) {
          asked[changes].push_back(at.samples + 1000 * static_cast<double>(at.steps));
          return 1 / (1 + at.samples);
        };
      } else {
        options.learning_rate = [](double samples) { return 1 / (1 + samples); };
      }
      const acco::local_updates level{
          .method = acco::keeping{.rule = acco::adamw{.learning_rate = 0.1}, .delay = 1}, .inner = acco::two_phase{}, .steps = 2};
      optimizer training =
          acco::optimizer{level, acco::adamw{.learning_rate = 0.1}, acco::host_storage<double>{}, worlds[person], 90, options};
      training.initialize(std::vector<double>(90, 1.0));
      train(training, static_cast<int>(person), 10);
      const std::uint64_t sent = training.totals().bytes_sent;
      if (changes) training.regroup(next[person]);
      CHECK(training.totals().bytes_sent == sent);
      train(training, static_cast<int>(person), 10);
      std::vector<double> average(90);
      training.gather_average(average);
      if (person != 0) return;
      found[changes].assign(training.parameters().begin(), training.parameters().end());
      averages[changes] = average;
    });
    for (auto const& each : said) CHECK(each == "");
  }
  CHECK(found[0] == found[1]);
  CHECK(averages[0] == averages[1]);
  CHECK(found[0] != averages[0]);
  CHECK(asked[0] == asked[1]);
}

TEST_CASE(
    "who joins gets frozen tensors and averages; samples, steps and the learning rate are where the others are; the rest leave "
    "in peace") {
  auto first = world_type::world(3), second = world_type::world(2), third = world_type::world(1);
  std::array<std::vector<double>, 4> asked;
  auto const said = ends(4, [&](std::size_t person) {
    acco::parameter_layout layout;
    layout.add("a", {50});
    layout.add("still", {20}, layout.add_group({.frozen = true}));
    layout.add("b", {30});
    acco::options options{.average_decay = 0.5};
    options.learning_rate = [&](acco::training_position const& at) {
      asked[person].push_back(at.samples + 1000 * static_cast<double>(at.steps));
      return 1 / (1 + at.samples);
    };
    const bool joins = person == 3;
    optimizer training = made(plain(), joins ? second[0] : first[person], layout, options);
    std::vector<double> initial(100);
    for (std::size_t i = 0; i < initial.size(); ++i) initial[i] = static_cast<double>(i + 1);
    if (joins) {
      training.join();
      asked[3].clear();
      CHECK(training.steps() == 4);
      CHECK(training.samples() == 12);
      CHECK(training.parameters()[60] == 61);
      train(training, 3, 2);
      training.regroup(third[0]);
    } else {
      training.initialize(initial);
      train(training, static_cast<int>(person), 4);
      if (person != 1) {
        const std::vector<double> before(training.parameters().begin(), training.parameters().end());
        training.depart();
        CHECK(std::vector<double>(training.parameters().begin(), training.parameters().end()) == before);
        CHECK_THROWS_WITH_AS(training.finish(), doctest::Contains("this worker has departed from its training"),
                             acco::usage_error);
        CHECK_THROWS_WITH_AS(training.depart(), doctest::Contains("this worker has departed"), acco::usage_error);
        CHECK_THROWS_AS((void)training.accumulated(1), acco::usage_error);
        return;
      }
      training.regroup(second[1]);
      asked[1].clear();
      train(training, 1, 2);
      training.depart();
      return;
    }
    CHECK(training.steps() == 6);
    CHECK(training.samples() == 16);
    train(training, 3, 2);  // alone
    std::vector<double> average(100), anchor(100);
    training.gather_average(average);
    training.gather_committed(anchor);
    CHECK(average[60] == 61);
    CHECK(std::abs(average[0] - anchor[0]) < std::abs(1 - anchor[0]));  // not from the beginning
    CHECK(training.samples() == 18);
  });
  for (auto const& each : said) CHECK(each == "");
  CHECK(asked[1] == std::vector<double>{4012, 5014, 6016});
  CHECK(asked[3] == std::vector<double>{4012, 5014, 6016, 6016, 7017, 8018});
}

TEST_CASE("called at the wrong time, or on what has no workers") {
  auto worlds = world_type::world(2), next = world_type::world(2);
  auto const said = ends(2, [&](std::size_t person) {
    optimizer training = made(plain(), worlds[person]);
    CHECK_THROWS_WITH_AS(training.regroup(next[person]), doctest::Contains("regroup() was called before initialize"),
                         acco::usage_error);
    CHECK_THROWS_WITH_AS(training.depart(), doctest::Contains("depart() was called before initialize"), acco::usage_error);
    training.initialize(std::vector<double>(150, 1.0));
    CHECK_THROWS_WITH_AS(training.join(), doctest::Contains("join was called after initialize"), acco::usage_error);
    micro_batch(training, 0);
    CHECK_THROWS_WITH_AS(training.regroup(next[person]),
                         doctest::Contains("regroup was called while a step is under way. Call finish"), acco::usage_error);
    CHECK_THROWS_WITH_AS(training.depart(), doctest::Contains("depart was called while a step is under way"), acco::usage_error);
    train(training, 0, 1);  // and it goes on
    CHECK_THROWS_WITH_AS(training.regroup(acco::solo_backend{}), doctest::Contains("a world of another type"), acco::usage_error);
    training.regroup(next[person]);
    training.regroup(worlds[person]);  // nothing between, and into a world that was there before
    train(training, 0, 2);
    CHECK(training.steps() == 4);
  });
  for (auto const& each : said) CHECK(each == "");

  acco::any_optimizer<double> alone =
      acco::optimizer{acco::synchronous{}, acco::sgd{}, acco::host_storage<double>{}, acco::solo_backend{}, 10};
  CHECK_THROWS_WITH_AS(alone.join(), doctest::Contains("join is for local updates"), acco::usage_error);
  alone.initialize(std::vector<double>(10, 1.0));
  CHECK_THROWS_WITH_AS(alone.depart(), doctest::Contains("depart is for local updates"), acco::usage_error);
  CHECK_THROWS_WITH_AS(alone.regroup(acco::solo_backend{}), doctest::Contains("it makes no local updates"), acco::usage_error);
  alone.finish();
}

TEST_CASE("worlds and workers that do not fit are one error on all that stay or leave, and those that would join hear of it") {
  auto const with = [](int ranks_a_group, std::function<void(std::size_t, optimizer&, std::vector<world_type> const&,
                                                             std::vector<world_type> const&)> const& change) {
    story what = plain();
    what.ranks_a_group = ranks_a_group;
    auto old = world_type::world(4), next = world_type::world(6), small = world_type::world(2);
    return ends(6, [&](std::size_t person) {
      if (person < 4) {
        optimizer training = begun(what, old[person]);
        change(person, training, next, small);
      } else if (ranks_a_group == 2) {
        made(what, next[person]).join();
      }
    });
  };
  const auto check_all = [](std::vector<std::string> const& said, char const* words, bool joining) {
    for (std::size_t person = 0; person < 4; ++person) check_says(said[person], words);
    for (std::size_t person = 4; person < 6; ++person) {
      if (!joining) CHECK(said[person].empty());
      if (joining) check_says(said[person], words);
      if (joining) check_says(said[person], "is impossible because rank");
    }
  };
  check_all(with(2, [](std::size_t person, optimizer& t, auto const& next,
                       auto const&) { person == 3 ? t.depart() : t.regroup(next[person]); }),
            "ranks 2 and 3 are one worker, and only rank 2 stays. A worker leaves or stays as a whole", true);
  check_all(with(2, [](std::size_t person, optimizer& t, auto const& next, auto const&) { t.regroup(next[3 - person]); }),
            "rank 0 is place 0 in its worker, whose first rank would be rank 3 of the new world", true);
  check_all(with(1, [](std::size_t person, optimizer& t, auto const& next,
                       auto const& small) { t.regroup(person < 2 ? small[person] : next[person]); }),
            "rank 2 regroups in a world of 6 ranks, and rank 0 in one of 2", false);
  check_all(with(1, [](std::size_t person, optimizer& t, auto const& next, auto const&) { t.regroup(next[person % 3]); }),
            "ranks 0 and 3 would both be rank 0 of the new world", false);
}

TEST_CASE("a new world in which somebody else than expected comes, or nobody, ends within the deadline, with names") {
  const story what = plain(1.5);
  SUBCASE("nobody brings an anchor") {
    auto worlds = world_type::world(2);
    for (auto const& said : ends(2, [&](std::size_t person) { made(what, worlds[person]).join(); }))
      check_says(said, "every rank of this world joins, and none brings");
  }
  SUBCASE("one initializes where it should join") {
    auto old = world_type::world(1), next = world_type::world(2);
    for (auto const& said : ends(2, [&](std::size_t person) {
           if (person == 0) return begun(what, old[0]).regroup(next[0]);
           made(what, next[1]).initialize(std::vector<double>(what.size, 1.0));
         }))
      check_says(said, "'local_updates begin by = initialize'");
  }
  SUBCASE("one was constructed otherwise") {
    auto old = world_type::world(1), next = world_type::world(2);
    story other = what;
    other.s.momentum = 0.4;
    for (auto const& said : ends(2, [&](std::size_t person) {
           if (person == 0) return begun(what, old[0]).regroup(next[0]);
           made(other, next[1]).join();
         }))
      check_says(said,
                 "the ranks were constructed differently: rank 0 has 'rule.momentum = 0.5', rank 1 has 'rule.momentum = 0.4'");
  }
  SUBCASE("two trainings meet") {
    auto one = world_type::world(1), other = world_type::world(1), next = world_type::world(2);
    for (auto const& said :
         ends(2, [&](std::size_t person) { begun(what, person == 0 ? one[0] : other[0]).regroup(next[person]); }))
      check_says(said, "rank 0 knows of 1 workers that stay, and 2 have come to this world");
  }
  SUBCASE("one never comes") {
    auto old = world_type::world(1), next = world_type::world(3);
    auto const said = ends(3, [&](std::size_t person) {
      if (person == 0) return begun(what, old[0]).regroup(next[0]);
      if (person == 1) return made(what, next[1]).join();
    });
    CHECK((says(said[0], "rank 2 did not come to") || says(said[1], "rank 2 did not come to")));
    for (std::size_t person = 0; person < 2; ++person) check_says(said[person], "rank 2");
  }
  SUBCASE("one that stays finishes instead") {
    auto old = world_type::world(3), next = world_type::world(3);
    auto const said = ends(3, [&](std::size_t person) {
      optimizer training = begun(what, old[person]);
      person == 1 ? training.finish() : training.regroup(next[person]);
    });
    for (std::size_t person = 0; person < 3; ++person) CHECK_FALSE(said[person].empty());
  }
  SUBCASE("one dies instead of leaving") {
    auto old = world_type::world(3), next = world_type::world(2);
    auto const said = ends(3, [&](std::size_t person) {
      optimizer training = begun(what, old[person]);
      if (person == 2) {
        micro_batch(training, 2);
        throw std::runtime_error("out of memory");
      }
      training.regroup(next[person]);
    });
    check_says(said[0], "rank 2");
    check_says(said[1], "rank 2");
  }
}

TEST_CASE("what ranks tell of a new world is checked by all alike") {
  const auto read = [](std::vector<std::int64_t> const& told, int group) {
    return acco::bringing_workers::read(told, group, {});
  };
  CHECK((read({1}, 1).first == 0 && !read({1}, 1).joins));
  auto const found = read({0, 0, 2, 2, 0, 0, 2, 2}, 2);
  CHECK((found.first == 1 && found.joins));
  CHECK_THROWS_WITH_AS((void)read({0, 0, 1, 0}, 2), doctest::Contains("ranks 2 and 3 are one worker, and only rank 3 joins"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS((void)read({0, 1}, 2), doctest::Contains("ranks 0 and 1 are one worker, and only rank 0 joins"),
                       acco::usage_error);
  CHECK_THROWS_WITH_AS((void)read({0, 0}, 1), doctest::Contains("every rank of this world joins"), acco::usage_error);
  CHECK_THROWS_WITH_AS((void)read({2, 0, 0}, 1), doctest::Contains("rank 0 knows of 2 workers that stay, and 1 have come"),
                       acco::usage_error);
}
