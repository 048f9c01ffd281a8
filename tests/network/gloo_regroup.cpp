// SPDX-License-Identifier: Apache-2.0
// Workers of local updates come and go over Gloo: every world is one of connections of its own, which its members meet
// in by files.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "network/gloo_world.hpp"
#include "outer/by_hand.hpp"
#include "support/patience.hpp"
#include "support/thorough.hpp"

namespace {

constexpr std::size_t count = 300;
using workers = std::vector<int>;  // those that are there, in the order of their ranks

auto level_of(int ranks_a_group) {
  return acco::local_updates{
      .method = acco::delayed_diloco, .ranks_a_group = ranks_a_group, .steps = 2, .exchange = acco::block_int8<>{}};
}
template <class Backend>
acco::any_optimizer<float> made(Backend const& world, int ranks_a_group, double deadline) {
  return acco::optimizer{level_of(ranks_a_group),
                         acco::adamw{.learning_rate = 0.05},
                         acco::host_storage<float>{},
                         world,
                         count,
                         acco::options{.deadline = deadline}};
}
void train(acco::any_optimizer<float>& training, int person) {
  for (int t = 0; t < 11; ++t) {
    auto const at = training.parameters();
    auto const g = training.gradients();
    for (std::size_t i = 0; i < count; ++i) g[i] += at[i] - static_cast<float>(person) - 0.01F * static_cast<float>(i);
    (void)training.accumulated(1);
  }
  training.finish();
}
/// The way of one rank; world(part) is what it is in then.
template <class World>
std::vector<float> come_and_go(std::vector<workers> const& parts, int ranks_a_group, int person, World&& world) {
  const auto rank_in = [&](std::size_t part) {
    for (std::size_t m = 0; m < parts[part].size(); ++m) {
      if (parts[part][m] == person / ranks_a_group) return static_cast<int>(m) * ranks_a_group + person % ranks_a_group;
    }
    return -1;
  };
  acco::any_optimizer<float> training;
  std::vector<float> end;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const int rank = rank_in(part), ranks = static_cast<int>(parts[part].size()) * ranks_a_group;
    if (rank < 0) continue;
    const auto mine = world(part, rank, ranks);
    if (training) {
      training.regroup(mine);
    } else {
      training = made(mine, ranks_a_group, 60 * patience());
      part == 0 ? training.initialize(std::vector<float>(count, 1.0F)) : training.join();
    }
    train(training, person);
    end.assign(training.parameters().begin(), training.parameters().end());
    if (part + 1 == parts.size() || rank_in(part + 1) >= 0) continue;
    training.depart();
    training = {};
  }
  return end;
}

struct files {
  std::filesystem::path directory;
  files() : directory(std::filesystem::temp_directory_path() / ("acco_regroup_" + std::to_string(getpid()))) {
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  }
  files(files const&) = delete;
  files& operator=(files const&) = delete;
  ~files() {
    unsetenv("GLOO_SOCKET_IFNAME");
    std::filesystem::remove_all(directory);
  }
};

}  // namespace

TEST_CASE("workers come and go over Gloo as over threads, in every bit") {
  const files meeting;
  const std::vector<workers> parts{{0, 1, 2}, {2, 0}, {3, 2, 0, 4}};
  for (const int ranks_a_group : {1, 2}) {
    const int people = 5 * ranks_a_group;
    std::vector<std::vector<float>> found(static_cast<std::size_t>(people)), wanted = found;
    acco::threads_backend::run(people, [&](acco::threads_backend const& thread) {
      found[static_cast<std::size_t>(thread.rank())] =
          come_and_go(parts, ranks_a_group, thread.rank(), [&](std::size_t part, int rank, int ranks) {
            const std::string run = std::to_string(ranks_a_group) + " ranks, part " + std::to_string(part);
            return acco::gloo_backend::from_files({rank, ranks}, meeting.directory, run, {.deadline = 60 * patience()});
          });
    });
    std::vector<std::vector<acco::threads_backend>> worlds;
    for (workers const& who : parts) worlds.push_back(acco::threads_backend::world(static_cast<int>(who.size()) * ranks_a_group));
    acco::threads_backend::run(people, [&](acco::threads_backend const& thread) {
      wanted[static_cast<std::size_t>(thread.rank())] =
          come_and_go(parts, ranks_a_group, thread.rank(),
                      [&](std::size_t part, int rank, int) { return worlds[part][static_cast<std::size_t>(rank)]; });
    });
    CHECK(found == wanted);
    CHECK(found.front() == found.back());
    CHECK(found.front() != std::vector<float>(count, 1.0F));
  }
}

TEST_CASE("over Gloo, a worker that dies beside a change is named, and who waits to join is told at once") {
  const files meeting;
  std::array<std::string, 3> said;
  acco::threads_backend::run(3, [&](acco::threads_backend const& thread) {
    const int person = thread.rank();
    try {
      const auto join = [&](int rank) {
        return acco::gloo_backend::from_files({rank, 2}, meeting.directory, "second", {.deadline = 60 * patience()});
      };
      if (person == 2) {
        made(join(1), 1, 60 * patience()).join();
        return;
      }
      auto training = made(acco::gloo_backend::from_files({person, 2}, meeting.directory, "first", {.deadline = 60 * patience()}),
                           1, 60 * patience());
      training.initialize(std::vector<float>(count, 1.0F));
      train(training, person);
      if (person == 1) throw std::runtime_error("out of memory");
      training.regroup(join(0));
    } catch (std::exception const& e) {
      said[static_cast<std::size_t>(person)] = e.what();
    }
  });
  CAPTURE(said[0]);
  CAPTURE(said[2]);
  CHECK(said[0].find("rank 1") != std::string::npos);
  CHECK(said[2].find("rank 0 failed: ") != std::string::npos);
  CHECK(said[2].find(said[0].substr(0, 100)) != std::string::npos);  // the words of the one that stays
}

namespace {
/// Each message has two sums, the sender's and the receiver's. One of them is wrong, `right_sums` after they were counted.
std::atomic<int> right_sums = -1;
std::uint64_t sum_of(void const* from, std::size_t bytes) noexcept {
  std::uint64_t sum = bytes;
  for (std::size_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<unsigned char const*>(from)[i]) * 0x9e3779b97f4a7c15U;
  return right_sums-- == 0 ? sum ^ 1U : sum;
}

/// Three workers exchange, once as ever and once with a wrong sum, and regroup, all three: beside the equations.
void exchange_damaged(files const& where, std::string const& run, int wrong) {
  constexpr unsigned steps = 3;
  std::array<std::atomic<bool>, 3> failed{};
  right_sums = -1;
  acco::threads_backend::run(3, [&](acco::threads_backend const& person) {
    const auto mine = static_cast<std::size_t>(person.rank());
    const auto meet = [&] { (void)person.split(0, 0, 60 * patience()); };
    const auto all =
        acco::gloo_backend::from_files({person.rank(), 3}, where.directory, run,
                                       {.deadline = 60 * patience(), .checksums = acco::checksums::always, .sum = sum_of});
    const auto next = all.split(0);
    acco::optimizer training{acco::local_updates{.method = acco::waiting<acco::sgd>{.rule = acco::diloco.rule}, .steps = steps},
                             acco::sgd{.learning_rate = by_hand::rate},
                             acco::host_storage<double>{},
                             all,
                             by_hand::count,
                             acco::options{.deadline = 60 * patience()}};
    by_hand::anchor right;
    training.initialize(right.x);
    std::array<by_hand::numbers, 3> w{right.x, right.x, right.x};
    const auto local_steps = [&](std::size_t worker) {
      for (unsigned t = 0; t < steps; ++t) by_hand::local_step(w[worker], static_cast<int>(worker));
    };
    const auto train = [&] {
      for (unsigned t = 0; t < steps; ++t) by_hand::take_step(training, person.rank());
    };
    const auto exchange = [&] {
      for (std::size_t k = 0; k < 3; ++k) local_steps(k);
      right.exchange({&w[0], &w[1], &w[2]}, {1, 1, 1});
    };
    train();
    exchange();
    meet();
    if (mine == 0) right_sums = wrong;
    meet();
    try {
      train();
    } catch (acco::peer_error const&) {
      failed[mine] = true;
    }
    meet();
    REQUIRE((failed[0] || failed[1] || failed[2]));
    const bool landed = !(failed[0] && failed[1] && failed[2]);
    if (landed) exchange();  // what some have landed, all land
    if (!failed[mine]) CHECK_THROWS_AS(train(), acco::peer_error);
    for (std::size_t k = 0; k < 3; ++k) {
      if (!landed || !failed[k]) local_steps(k);
    }
    training.regroup(next);
    CHECK(by_hand::furthest(training.parameters(), w[mine]) < 1e-12);
    std::fill(right.u.begin(), right.u.end(), 0.0);
    train();
    exchange();
    CHECK(by_hand::furthest(training.parameters(), right.x) < 1e-12);
    training.finish();
  });
}
}  // namespace

TEST_CASE("an exchange with a damaged message: nobody uses it, and workers that regroup go on as the equations do") {
  const files where;
  constexpr int sums = 48;  // of an exchange
  for (int wrong = 0; wrong < sums; wrong += thorough() ? 1 : 8) {
    CAPTURE(wrong);
    exchange_damaged(where, "damaged " + std::to_string(wrong), wrong);
  }
}

TEST_CASE("who comes is lost while the others regroup: behind that error they go on where they were, in every bit alike") {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / ("acco_came_" + std::to_string(getpid()));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  std::array<std::vector<float>, 2> ends;
  acco::threads_backend::run(3, [&](acco::threads_backend const& thread) {
    const int person = thread.rank();
    const auto world = [&](int size, char const* name) {
      return acco::gloo_backend::from_files({person, size}, directory, name, {.deadline = 60 * patience()});
    };
    if (person == 2) {  // it ends as soon as it is there
      (void)made(world(3, "with it"), 1, 60 * patience());
      return;
    }
    auto training = made(world(2, "before"), 1, 60 * patience());
    training.initialize(std::vector<float>(count, 1.0F));
    train(training, person);
    const std::vector<float> before(training.parameters().begin(), training.parameters().end());
    const auto steps = training.steps();
    const double samples = training.samples();
    try {
      training.regroup(world(3, "with it"));
      FAIL_CHECK("nobody was lost");
    } catch (acco::peer_error const& e) {
      CHECK((e.peer() == 2 || e.peer() == 1 - person));  // or the other one, which has noticed first, and says so
    }
    training.regroup(world(2, "without it"));
    CHECK(std::equal(before.begin(), before.end(), training.parameters().begin()));
    CHECK(training.steps() == steps);
    CHECK(training.samples() == samples);
    train(training, person);
    ends[static_cast<std::size_t>(person)].assign(training.parameters().begin(), training.parameters().end());
    CHECK(ends[static_cast<std::size_t>(person)] != before);
  });
  CHECK(ends[0] == ends[1]);
  unsetenv("GLOO_SOCKET_IFNAME");
  std::filesystem::remove_all(directory);
}
