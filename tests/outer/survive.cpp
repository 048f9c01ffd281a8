// SPDX-License-Identifier: Apache-2.0
// Workers that are lost: those that are left go on, beside the recurrence in double.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "outer/by_hand.hpp"

namespace {

using namespace by_hand;
using storage = acco::host_storage<double>;

}  // namespace

TEST_CASE("a worker is lost between two exchanges: the others bring what nobody has landed, the outer rule begins anew") {
  constexpr unsigned steps = 4;
  for (const bool by_samples : {false, true}) {
    for (const unsigned lost_at : {5U, 7U}) {
      acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
        const int mine = lobby.rank();
        const acco::threads_backend all = lobby.split(0, mine), left = lobby.split(mine == 1 ? 1 : 0, mine);
        acco::optimizer training{
            acco::local_updates{.method = acco::waiting<acco::sgd>{.rule = acco::diloco.rule,
                                                                   .weights = by_samples ? acco::worker_weights::samples
                                                                                         : acco::worker_weights::equal},
                                .steps = steps},
            acco::sgd{.learning_rate = rate}, storage{}, all, count};
        training.initialize(numbers(count, 1));
        // what should be
        anchor right;
        std::array<numbers, 3> w;
        w.fill(right.x);
        const auto all_step = [&] {
          for (int k = 0; k < 3; ++k) local_step(w[static_cast<std::size_t>(k)], k);
        };
        for (unsigned t = 1; t <= steps; ++t) {
          take_step(training, mine);
          all_step();
        }
        right.exchange({&w[0], &w[1], &w[2]}, by_samples ? std::vector<double>{4, 8, 12} : std::vector<double>{1, 1, 1});
        REQUIRE(furthest(training.parameters(), right.x) < 1e-12);
        for (unsigned t = steps + 1; t <= 2 * steps; ++t) {
          if (mine == 1 && t == lost_at) return;  // its optimizer ends, without finish()
          all_step();
          if (t < 2 * steps) {
            take_step(training, mine);
          } else {
            CHECK_THROWS_AS(take_step(training, mine), acco::peer_error);
          }
        }
        CHECK_THROWS_AS(take_step(training, mine), acco::peer_error);  // as before
        training.regroup(left);
        CHECK(training.steps() == steps);
        CHECK(training.samples() == (1 + 2 + 3) * steps);
        auto& own = w[static_cast<std::size_t>(mine)];
        CHECK(furthest(training.parameters(), own) < 1e-12);
        std::fill(right.u.begin(), right.u.end(), 0.0);
        for (int round = 0; round < 3; ++round) {
          for (unsigned t = 1; t <= steps; ++t) {
            take_step(training, mine);
            all_step();
          }
          const double twice = round == 0 ? 2 : 1;  // the first brings two rounds' steps
          right.exchange({&w[0], &w[2]}, by_samples ? std::vector<double>{4 * twice, 12 * twice} : std::vector<double>{1, 1});
          REQUIRE(furthest(training.parameters(), right.x) < 1e-12);
        }
        CHECK(training.samples() == (1 + 2 + 3) * steps + 4 * (1 + 3) * steps);
        CHECK(training.steps() == 4 * steps);
        training.finish();
      });
    }
  }
}

TEST_CASE("an exchange that was under way, and that nobody has landed: what is kept meanwhile is brought again") {
  // Worker 1 is lost before the first exchange. By samples: what a worker brings counts by all that it is made of.
  constexpr unsigned steps = 4;
  for (const unsigned delay : {1U, 4U}) {
    CAPTURE(delay);
    acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
      const int mine = lobby.rank();
      const acco::threads_backend all = lobby.split(0, mine), left = lobby.split(mine == 1 ? 1 : 0, mine);
      const acco::keeping<acco::sgd> method{.rule = acco::diloco.rule, .delay = delay, .weights = acco::worker_weights::samples};
      acco::optimizer training{acco::local_updates{.method = method, .steps = steps}, acco::sgd{.learning_rate = rate}, storage{},
                               all, count};
      training.initialize(numbers(count, 1));
      if (mine == 1) return;
      std::array<numbers, 3> w;
      w.fill(numbers(count, 1));
      const auto all_step = [&] {
        for (int k = 0; k < 3; ++k) local_step(w[static_cast<std::size_t>(k)], k);
      };
      for (unsigned t = 1; t <= steps + delay; ++t) {
        all_step();
        if (t < steps + delay) {
          take_step(training, mine);
        } else {
          CHECK_THROWS_AS(take_step(training, mine), acco::peer_error);
        }
      }
      training.regroup(left);
      auto& own = w[static_cast<std::size_t>(mine)];
      CHECK(furthest(training.parameters(), own) < 1e-12);
      CHECK(training.samples() == 0);
      for (unsigned t = 1; t <= steps; ++t) {
        take_step(training, mine);
        all_step();
      }
      anchor right;
      numbers first = w[0], third = w[2];
      const double made = 2 * steps + delay;
      right.exchange({&first, &third}, {made, 3 * made});
      std::array<numbers, 3> const noted = w;
      for (unsigned t = 1; t <= delay; ++t) {
        take_step(training, mine);
        all_step();
      }
      for (std::size_t i = 0; i < count; ++i) own[i] = right.x[i] + (own[i] - noted[static_cast<std::size_t>(mine)][i]);
      CHECK(furthest(training.parameters(), own) < 1e-12);
      CHECK(training.samples() == made * 4);
      training.finish();
    });
  }
}

TEST_CASE("an exchange that one worker has landed, and another one not yet, is landed by both") {
  constexpr unsigned steps = 4;
  acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
    const int mine = lobby.rank();
    const acco::threads_backend all = lobby.split(0, mine), left = lobby.split(mine == 2 ? 1 : 0, mine);
    const acco::keeping<acco::sgd> method{.rule = acco::diloco.rule, .delay = 2, .weights = acco::worker_weights::samples};
    acco::optimizer training{acco::local_updates{.method = method, .steps = steps}, acco::sgd{.learning_rate = rate}, storage{},
                             all, count};
    training.initialize(numbers(count, 1));
    anchor right;
    std::array<numbers, 3> w;
    w.fill(right.x);
    const auto step = [&](std::size_t k, unsigned times) {
      for (unsigned t = 0; t < times; ++t) local_step(w[k], static_cast<int>(k));
    };
    for (std::size_t k = 0; k < 3; ++k) step(k, steps);
    std::array<numbers, 3> noted = w, sent = w;
    right.exchange({&sent[0], &sent[1], &sent[2]}, {4, 8, 12});
    std::fill(right.u.begin(), right.u.end(), 0.0);  // which begins anew
    const auto land = [&](std::size_t k) {
      for (std::size_t i = 0; i < count; ++i) w[k][i] = right.x[i] + (w[k][i] - noted[k][i]);
    };
    for (unsigned t = 0; t < 5; ++t) take_step(training, mine);
    if (mine != 1) take_step(training, mine);  // it lands
    if (mine == 2) return;
    if (mine == 1) {
      double one[1] = {1};
      CHECK_THROWS_AS(training.sum_over_ranks(one), acco::peer_error);
      CHECK(training.steps() == 0);
    } else {
      CHECK(training.steps() == steps);
      for (int t = 0; t < 3; ++t) take_step(training, mine);  // the next exchange is under way
      CHECK_THROWS_AS(take_step(training, mine), acco::peer_error);
    }
    training.regroup(left);
    CHECK(training.steps() == steps);
    CHECK(training.samples() == 24);
    step(0, 2);
    land(0);
    step(0, 4);  // behind what it has landed
    step(1, 1);
    land(1);
    auto& own = w[static_cast<std::size_t>(mine)];
    CHECK(furthest(training.parameters(), own) < 1e-12);
    for (unsigned t = 0; t < steps; ++t) take_step(training, mine);
    for (std::size_t k = 0; k < 2; ++k) step(k, steps);
    noted = sent = w;
    right.exchange({&sent[0], &sent[1]}, {10, 10});
    for (unsigned t = 0; t < 2; ++t) take_step(training, mine);
    step(static_cast<std::size_t>(mine), 2);
    land(static_cast<std::size_t>(mine));
    CHECK(furthest(training.parameters(), own) < 1e-12);
    CHECK(training.steps() == 2 * steps);
    CHECK(training.samples() == 24 + 20);
    training.finish();
  });
}

TEST_CASE("where what is done meanwhile is thrown away, workers begin anew at the anchor that has landed") {
  constexpr unsigned steps = 3;
  const auto check = [&](auto const& method) {
    acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
      const int mine = lobby.rank();
      const acco::threads_backend all = lobby.split(0, mine), left = lobby.split(mine == 2 ? 1 : 0, mine),
                                  fresh = lobby.split(mine == 2 ? 1 : 0, mine);
      const auto over = [&](acco::threads_backend const& world) {
        return acco::optimizer{acco::local_updates{.method = method, .steps = steps, .exchange = acco::block_int8<>{}},
                               acco::sgd{.learning_rate = rate},
                               storage{},
                               world,
                               count,
                               acco::options{.average_decay = 0.5}};
      };
      auto training = over(all);
      training.initialize(numbers(count, 1));
      for (unsigned t = 0; t < 2 * steps; ++t) take_step(training, mine);  // one has landed
      if (mine == 2) return;
      for (unsigned t = 1; t < steps; ++t) take_step(training, mine);
      // the second one lands all the same, and the third is not begun by all
      numbers landed(count);
      bool lost = false;
      for (unsigned t = 0; !lost && t < 2 * steps; ++t) {
        try {
          take_step(training, mine);
        } catch (acco::peer_error const&) {
          lost = true;
        }
      }
      REQUIRE(lost);
      training.regroup(left);
      landed.assign(training.parameters().begin(), training.parameters().end());
      auto again = over(fresh);
      again.initialize(landed);
      for (unsigned t = 0; t < 4 * steps; ++t) {
        take_step(training, mine);
        take_step(again, mine);
        REQUIRE(numbers(training.parameters().begin(), training.parameters().end()) ==
                numbers(again.parameters().begin(), again.parameters().end()));
      }
      numbers average(count), average_of_fresh(count);
      training.gather_average(average);
      again.gather_average(average_of_fresh);
      CHECK(average == average_of_fresh);
      training.finish();
      again.finish();
    });
  };
  check(acco::delayed_diloco);
  check(acco::eager_diloco);
  check(acco::overlap_local_sgd);
}

TEST_CASE("one has landed what the others have not: they take its anchor, and do not bring again what is in it") {
  using exchange = acco::anchor_exchange<double>;
  const auto settings = [](int workers, unsigned delay) {
    return acco::exchange_settings{.workers = workers, .steps = 4, .delay = delay, .weights = acco::worker_weights::samples};
  };
  for (const unsigned delay : {0U, 2U}) {
    CAPTURE(delay);
    acco::threads_backend::run(2, [&](acco::threads_backend const& lobby) {
      const auto over = [&](acco::threads_backend const& world, int workers) {
        auto shared = std::make_shared<acco::threads_backend>(world);
        return std::make_unique<exchange>(settings(workers, delay), acco::full{}, acco::sgd{.learning_rate = 0.5}, storage{},
                                          acco::split_backend<acco::threads_backend>(shared, {workers, 1}, 20), count,
                                          acco::options{});
      };
      // each of its own world so far, of one worker
      auto lost = over(lobby.split(lobby.rank(), 0), 1);
      numbers w(count, 2);
      lost->begin(w);
      for (double& each : w) each += 1;
      if (lobby.rank() == 1 || delay != 0) (void)lost->exchange(w, 3);
      if (lobby.rank() == 1 && delay != 0) (void)lost->arrive(w);
      for (double& each : w) each += lobby.rank() == 0 ? 0.25 : 0.125;
      acco::workers_world<acco::threads_backend> to(lobby.split(0, lobby.rank()), 1, 20, false);
      to.join("", "regroup", "test");
      auto next = over(lobby.split(0, lobby.rank()), 2);
      const bool behind = next->survive(to, *lost, w);
      CHECK(behind == (lobby.rank() == 0));
      CHECK(next->exchanges() == 1);
      CHECK(next->samples() == 3);
      CHECK(next->anchor()[0] == 2.5);
      if (delay == 0) {
        CHECK(w[7] == (lobby.rank() == 0 ? 2.5 : 2.625));  // what a worker that waits had brought is in there
      } else {
        CHECK(w[7] == (lobby.rank() == 0 ? 2.75 : 2.625));  // what was done since it was brought stays on top
      }
      next->level().mark_finished();
      lost->level().mark_finished();
      to.finish();
    });
  }
}

TEST_CASE("two are lost, the second while the others regroup: they regroup again") {
  constexpr unsigned steps = 2;
  acco::threads_backend::run(4, [&](acco::threads_backend const& lobby) {
    const int mine = lobby.rank();
    const acco::threads_backend all = lobby.split(0, mine), three = lobby.split(mine == 3 ? 1 : 0, mine),
                                two = lobby.split(mine >= 2 ? 1 : 0, mine);
    acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = steps}, acco::sgd{.learning_rate = rate},
                             storage{}, all, count};
    training.initialize(numbers(count, 1));
    for (unsigned t = 0; t < steps; ++t) take_step(training, mine);
    if (mine == 3) return;
    take_step(training, mine);
    CHECK_THROWS_AS(take_step(training, mine), acco::peer_error);
    if (mine == 2) {
      three.duplicate().abort("it has died");
      return;
    }
    const numbers own(training.parameters().begin(), training.parameters().end());
    CHECK_THROWS_AS(training.regroup(three), acco::peer_error);
    training.regroup(two);
    CHECK(numbers(training.parameters().begin(), training.parameters().end()) == own);
    for (unsigned t = 0; t < steps; ++t) take_step(training, mine);
    CHECK(training.steps() == 2 * steps);
    training.finish();
  });
}

TEST_CASE("who cannot go on is told why") {
  SUBCASE("a worker of several ranks") {
    acco::threads_backend::run(4, [&](acco::threads_backend const& lobby) {
      const acco::threads_backend all = lobby.split(0), left = lobby.split(lobby.rank() < 2 ? 0 : 1);
      acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .ranks_a_group = 2, .steps = 1},
                               acco::sgd{.learning_rate = rate}, storage{}, all, count};
      training.initialize(numbers(count, 1));
      if (lobby.rank() >= 2) return;
      CHECK_THROWS_AS(take_step(training, 0), acco::peer_error);
      CHECK_THROWS_AS(training.regroup(left), acco::peer_error);
    });
  }
  SUBCASE("one that has failed itself, and one that has departed") {
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = 1},
                               acco::sgd{.learning_rate = rate},
                               storage{},
                               world,
                               count,
                               acco::options{.learning_rate = [](auto const&) { return -1.0; }}};
      training.initialize(numbers(count, 1));
      CHECK_THROWS_AS(take_step(training, 0), acco::usage_error);
      CHECK_THROWS_AS(training.regroup(world), acco::usage_error);
    });
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = 1}, acco::sgd{.learning_rate = rate},
                               storage{}, world, count};
      training.initialize(numbers(count, 1));
      training.finish();
      training.depart();
      CHECK_THROWS_AS(training.regroup(world), acco::usage_error);
    });
  }
  SUBCASE("one joins where others regroup after a loss") {
    acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
      const int mine = lobby.rank();
      const acco::threads_backend first = lobby.split(mine == 2 ? 1 : 0), next = lobby.split(mine == 1 ? 1 : 0);
      acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = 1}, acco::sgd{.learning_rate = rate},
                               storage{}, mine == 2 ? next : first, count};
      if (mine == 2) {
        CHECK_THROWS_AS(training.join(), acco::mismatch_error);
        return;
      }
      training.initialize(numbers(count, 1));
      if (mine == 1) return;
      CHECK_THROWS_AS(take_step(training, 0), acco::peer_error);
      CHECK_THROWS_AS(training.regroup(next), acco::mismatch_error);
    });
  }
}

TEST_CASE("one that hangs is left behind at the deadline; what it finds when it wakes, and its way back") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& lobby) {
    const int mine = lobby.rank();
    const acco::threads_backend all = lobby.split(0, mine), alone = lobby.split(mine, 0), again = lobby.split(0, mine),
                                meet = lobby.split(0, mine);
    const auto over = [&](acco::threads_backend const& world) {
      return acco::optimizer{
          acco::local_updates{.method = acco::local_sgd, .steps = 1}, acco::sgd{.learning_rate = rate}, storage{}, world, count,
          acco::options{.deadline = mine == 0 ? 1.0 : 60.0}};
    };
    auto training = over(all);
    training.initialize(numbers(count, 1));
    auto queue = acco::make_queue<acco::host_queue>(meet);
    const auto together = [&] {
      const double one[1] = {1};
      double all_ones[1];
      auto channel = meet.duplicate();
      channel.all_reduce(queue, acco::partial<double const>(one), acco::replicated<double>(all_ones));
      queue.wait();
    };
    if (mine == 0) {
      CHECK_THROWS_AS(take_step(training, mine), acco::deadline_error);
      training.regroup(alone);
      for (int t = 0; t < 3; ++t) take_step(training, mine);
      CHECK(training.steps() == 3);
      together();
      training.finish();
      CHECK(training.steps() == 4);  // that of before the loss, too
      training.regroup(again);
      training.finish();
    } else {
      together();
      CHECK_THROWS_AS(take_step(training, mine), acco::error);
      training = over(again);
      training.join();
      CHECK(training.steps() == 4);
      training.finish();
    }
  });
}

TEST_CASE("a loss beside a save that was granted, in finish, with fragments; the learning rate goes on") {
  const auto lost_in = [](auto const& function) {
    acco::threads_backend::run(3, [&](acco::threads_backend const& lobby) {
      const int mine = lobby.rank();
      const acco::threads_backend all = lobby.split(0, mine), left = lobby.split(mine == 2 ? 1 : 0, mine);
      function(mine, all, left);
    });
  };
  const auto add_one = [](auto& training) {  // sgd at a rate of 1 adds 1
    for (double& each : training.gradients()) each -= 1;
    (void)training.accumulated(1);
  };
  const auto plain = [](unsigned steps, unsigned fragments, acco::threads_backend const& world, acco::options chosen = {}) {
    return acco::optimizer{acco::local_updates{.method = acco::local_sgd, .steps = steps, .fragments = fragments},
                           acco::sgd{.learning_rate = 1},
                           storage{},
                           world,
                           count,
                           std::move(chosen)};
  };
  const auto lose = [](auto& training) {
    double one[1] = {1};
    CHECK_THROWS_AS(training.sum_over_ranks(one), acco::peer_error);
  };
  SUBCASE("one in finish has the anchor that it took part in") {
    lost_in([&](int mine, acco::threads_backend const& all, acco::threads_backend const& left) {
      auto training = plain(4, 1, all);
      training.initialize(numbers(count, 0));
      for (int t = 0; t < 4; ++t) add_one(training);
      if (mine != 0) {
        for (int t = 0; t < 4; ++t) add_one(training);
        if (mine == 2) return;
        lose(training);
      } else {
        CHECK_THROWS_AS(training.finish(), acco::peer_error);
      }
      training.regroup(left);
      CHECK(training.parameters()[3] == 8);
      for (int t = 0; t < 4; ++t) add_one(training);
      CHECK(training.parameters()[3] == 12);
      training.finish();
    });
  }
  SUBCASE("all fragments are finished") {
    lost_in([&](int mine, acco::threads_backend const& all, acco::threads_backend const& left) {
      auto training = plain(4, 2, all);
      training.initialize(numbers(count, 0));
      for (int t = 0; t < 5; ++t) add_one(training);
      if (mine == 2) {
        add_one(training);  // an exchange of the first fragment, as the others' finish makes
        return;
      }
      CHECK_THROWS_AS(training.finish(), acco::peer_error);
      training.regroup(left);
      training.finish();
      CHECK(training.parameters()[count - 1] == 5);
      CHECK(training.samples() == 3 * 4 + 2);
    });
  }
  SUBCASE("memory of the trainer's, which another optimizer may have meanwhile; slots that are exchanged") {
    lost_in([&](int mine, acco::threads_backend const& all, acco::threads_backend const& left) {
      numbers parameters(count, 0), gradients(count, 0);
      const auto over = [&](acco::threads_backend const& world) {
        acco::optimizer training{acco::local_updates{.method = acco::local_sgd, .steps = 2, .slots_every = {1}},
                                 acco::sgd{.learning_rate = 1, .momentum = 0.5}, storage{}, world, count};
        training.adopt(parameters, gradients);
        return training;
      };
      auto training = over(all);
      const auto step = [&](double gradient) {
        for (double& each : gradients) each += gradient;
        (void)training.accumulated(1);
      };
      step(-1), step(-1);  // slots are 1.5
      if (mine == 2) return;
      lose(training);
      const numbers at = parameters;
      {
        auto another = over(acco::threads_backend::world(1)[0]);  // its memory is free
        another.finish();
      }
      parameters = at;
      training.regroup(left);
      CHECK(parameters == at);
      step(mine == 0 ? -1 : -3);  // 1.75 and 3.75
      step(mine == 0 ? -1 : -3);  // 1.875 and 4.875, whose mean is 3.375
      CHECK(parameters[3] == 2.5 + (1.75 + 1.875 + 3.75 + 4.875) / 2);
      step(0), step(0);
      CHECK(parameters[3] == 2.5 + (1.75 + 1.875 + 3.75 + 4.875) / 2 + 3.375 * (0.5 + 0.25));
      training.finish();
    });
  }
  SUBCASE("positions of the learning rate") {
    lost_in([&](int mine, acco::threads_backend const& all, acco::threads_backend const& left) {
      double asked = 0;
      auto training = plain(8, 1, all, {.learning_rate = [&](acco::training_position const& at) {
                              asked = at.samples;
                              return 1.0;
                            }});
      training.initialize(numbers(count, 0));
      for (int t = 0; t < 8; ++t) add_one(training);
      if (mine == 2) return;
      for (int t = 0; t < 7; ++t) add_one(training);
      CHECK(asked == 3 * 14);
      lose(training);
      training.regroup(left);
      add_one(training);
      CHECK(asked == 3 * 15);  // of three workers; then of two
      add_one(training);
      CHECK(asked == 3 * 15 + 2);
      training.finish();
    });
  }
}
