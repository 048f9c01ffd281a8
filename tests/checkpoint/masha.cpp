// The reference point of a game is part of the state: each rank's own gradients there, their mean, and the coin. A
// training that was killed goes on as if it had not been, and among other ranks the mean stays what it was.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"

namespace {
constexpr std::size_t pairs = 300, elements = 2 * pairs, evaluations = 24;
constexpr int parts_of_data = 6;

/// Rank r of N has the parts r, r + N, ... of the data: a bilinear game, each part with another tilt.
double add_gradients(acco::any_optimizer<float>& t, int rank, int ranks) {
  double weight = 0;
  for (int part = rank; part < parts_of_data; part += ranks, ++weight) {
    for (std::size_t k = 0; k < pairs; ++k) {
      const float a = 1 + 0.3F * std::sin(static_cast<float>(k + 7 * static_cast<std::size_t>(part)));
      t.gradients()[k] += a * t.parameters()[pairs + k] + 0.1F * static_cast<float>(part);
      t.gradients()[pairs + k] -= a * t.parameters()[k] - 0.2F * static_cast<float>(part);
    }
  }
  return weight;
}
template <class Schedule>
acco::any_optimizer<float> make(Schedule const& schedule, acco::threads_backend const& world) {
  return acco::optimizer{schedule,
                         acco::sgd{.learning_rate = 0.2, .momentum = 0.3},
                         acco::host_storage<float>{},
                         world,
                         elements,
                         acco::options{.check_habits = acco::habit_checks::off, .bucket_elements = 300}};
}
struct history {
  std::vector<std::vector<float>> parameters = std::vector<std::vector<float>>(evaluations);
  std::vector<bool> commits = std::vector<bool>(evaluations);
  std::uint64_t end = 0;
};
template <class Schedule>
std::size_t train(Schedule const& schedule, int ranks, history& h, std::string const& from, std::string const& to = "",
                  std::size_t save_at = evaluations) {
  std::size_t first = 0;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    auto t = make(schedule, world);
    std::size_t begin = 0;
    if (from.empty()) {
      t.initialize(std::vector<float>(elements, 1.0F));
    } else {
      begin = t.restore(from).template position<std::size_t>(0) + 1;
    }
    for (std::size_t m = begin; m < evaluations; ++m) {
      if (m == save_at) t.save(to, [&m] { return m; });
      auto const report = t.accumulated(add_gradients(t, world.rank(), ranks));
      REQUIRE(report);
      if (world.rank() != 0) continue;
      first = begin;
      h.parameters[m].assign(t.parameters().begin(), t.parameters().end());
      h.commits[m] = acco::commits(report->plan);
    }
    t.finish();
    const std::uint64_t digest = t.world_digest();
    if (world.rank() == 0) h.end = digest;
  });
  return first;
}
template <class Schedule>
void compare(Schedule const& schedule) {
  const scratch folder(in_memory());
  history whole;
  (void)train(schedule, 3, whole, "");
  for (const std::size_t save_at : {std::size_t{2}, std::size_t{5}, std::size_t{6}, std::size_t{9}}) {
    CAPTURE(save_at);
    const std::string run = folder.run("at " + std::to_string(save_at));
    history ignored, resumed;
    (void)train(schedule, 3, ignored, "", run, save_at);
    const std::size_t first = train(schedule, 3, resumed, run);
    CHECK(first > save_at);
    CHECK(first < save_at + 4);
    for (std::size_t m = first; m < evaluations; ++m) {
      CHECK((resumed.parameters[m] == whole.parameters[m]));
      CHECK(resumed.commits[m] == whole.commits[m]);
    }
    CHECK(resumed.end == whole.end);
  }
}
}  // namespace

TEST_CASE("a game, killed at a cut, goes on as if it had not been") {
  compare(acco::masha{acco::block_int4{}, acco::block_int8{}, 0.7});
  compare(acco::masha2<acco::loosely<acco::block_top<32>>>{.tau = 0.7});
}

TEST_CASE("among other ranks a game goes on from the same reference point") {
  const scratch folder(in_memory());
  history whole, ignored;
  (void)train(acco::masha{.tau = 0.9}, 3, whole, "", folder.run(), 7);
  for (const int ranks : {2, 1, 6}) {
    CAPTURE(ranks);
    history moved;
    const std::size_t first = train(acco::masha{.tau = 0.9}, ranks, moved, folder.run());
    REQUIRE(first < 12);
    for (std::size_t m = first; m < evaluations; ++m) {
      float most = 0;
      for (std::size_t k = 0; k < elements; ++k) most = std::max(most, std::abs(moved.parameters[m][k] - whole.parameters[m][k]));
      CHECK(most < 1e-4F);
    }
  }
}
