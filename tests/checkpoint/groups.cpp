// SPDX-License-Identifier: Apache-2.0
// Tensors in other groups than at the save, and frozen or trained otherwise: what goes on is what the equations say.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/checkpoint.hpp>

#include "checkpoint/scratch.hpp"
#include "support/patience.hpp"

namespace {
constexpr std::size_t parts = 4, part = 140, size = parts * part;
constexpr double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-6, rate = 0.02, smoothing = 0.75;
double target(std::size_t i) { return 0.1 * static_cast<double>(7 * i % 19) - 0.9; }

/// Which group each of the tensors is in.
struct grouping {
  std::vector<acco::update_group> groups;
  std::size_t of[parts];

  [[nodiscard]] acco::parameter_layout layout() const {
    acco::parameter_layout made;
    for (auto const& each : groups) made.add_group(each);
    for (std::size_t k = 0; k < parts; ++k) made.add(std::string(1, static_cast<char>('a' + k)), {part / 7, 7}, of[k]);
    return made;
  }
  [[nodiscard]] acco::update_group of_tensor(std::size_t k) const {
    return of[k] == 0 ? acco::update_group{} : groups[of[k] - 1];
  }
};
/// AdamW in double, one element after the other, with averages.
struct reference {
  std::vector<double> p = std::vector<double>(size, 0.5), m = std::vector<double>(size), v = m, average = p;
  int all = 0, own[parts] = {};  // updates; of each tensor, where it may be left without a gradient
  void steps(int count, grouping const& by) {
    for (int k = 0; k < count; ++k) {
      ++all;
      for (std::size_t each = 0; each < parts; ++each)
        own[each] = by.of_tensor(each).leave_without_gradient ? own[each] + 1 : all;
      for (std::size_t i = 0; i < size; ++i) {
        auto const group = by.of_tensor(i / part);
        if (group.frozen) continue;
        const int t = own[i / part];
        const double g = p[i] - target(i), lr = rate * group.learning_rate_scale;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        p[i] -= lr * (m[i] / (1 - std::pow(beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + epsilon);
        average[i] = smoothing * average[i] + (1 - smoothing) * p[i];
      }
    }
  }
  /// What was frozen begins anew where it is.
  void thaw(grouping const& before) {
    for (std::size_t i = 0; i < size; ++i) {
      if (!before.of_tensor(i / part).frozen) continue;
      m[i] = v[i] = 0;
      average[i] = p[i];
      own[i / part] = 0;
    }
  }
};
struct outcome {
  acco::restored found;
  std::vector<double> p = std::vector<double>(size), average = p;
};
/// Ten steps, and a checkpoint: of their end, or, `early`, of a round that is done and not reported.
template <class Schedule>
outcome live(Schedule schedule, int ranks, grouping const& by, std::string const& run, bool begins, bool early = false) {
  outcome result;
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    acco::optimizer t{schedule,
                      acco::adamw{.learning_rate = rate, .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .weight_decay = 0},
                      acco::host_storage<double, double, double>{},
                      world,
                      by.layout(),
                      acco::options{.deadline = 60 * patience(), .average_decay = smoothing, .bucket_elements = 67}};
    acco::restored found;
    if (begins) {
      t.initialize(std::vector<double>(size, 0.5));
    } else {
      found = t.restore(run, acco::changes::allowed);
    }
    for (int k = 0; k < 10; ++k) {
      if (early && k == 5) t.save(run);
      (void)t.step([](std::span<double const> p, std::span<double> g) {
        for (std::size_t i = 0; i < p.size(); ++i) g[i] += p[i] - target(i);
        return 1;
      });
    }
    t.finish();
    if (!early) t.save(run);
    REQUIRE_MESSAGE(t.saved()->complete(), t.saved()->problem);
    outcome mine{.found = found};
    t.gather_masters(std::span(mine.p));
    t.gather_masters(std::span(mine.average), acco::weights::average);
    if (world.rank() == 0) result = mine;
  });
  return result;
}
double worst(std::vector<double> const& a, std::vector<double> const& b) {
  double found = 0;
  for (std::size_t i = 0; i < size; ++i) found = std::max(found, std::abs(a[i] - b[i]));
  return found;
}
const grouping plain{{}, {0, 0, 0, 0}}, slow{{{.learning_rate_scale = 0.1}}, {0, 1, 0, 1}},
    slower{{{.learning_rate_scale = 0.5}, {.learning_rate_scale = 0.1}}, {2, 1, 0, 2}}, still{{{.frozen = true}}, {0, 1, 0, 1}},
    other{{{.learning_rate_scale = 0.5}, {.frozen = true}}, {2, 2, 1, 0}},
    counting{{{.leave_without_gradient = true}, {.frozen = true}}, {1, 1, 0, 2}};
}  // namespace

TEST_CASE("other groups of the same tensors, and others that are frozen: each tensor goes on with what is its own") {
  std::vector<grouping> const ways{plain, slow, slower, still, other, counting};
  for (std::size_t k = 0; k < 2 * ways.size() * ways.size(); ++k) {
    const std::size_t from = k % ways.size(), to = k / ways.size() % ways.size();
    const bool early = k >= ways.size() * ways.size();
    CAPTURE(from);
    CAPTURE(to);
    CAPTURE(early);
    const scratch folder(in_memory());
    reference expected;
    (void)live(acco::synchronous{}, 2, ways[from], folder.run(), true, early);
    auto const back = live(acco::synchronous{}, from == 3 ? 3 : 2, ways[to], folder.run(), false);
    std::vector<std::string> thawed;
    for (std::size_t t = 0; t < parts; ++t) {
      if (ways[from].of_tensor(t).frozen && !ways[to].of_tensor(t).frozen) thawed.emplace_back(1, static_cast<char>('a' + t));
    }
    CHECK(back.found.thawed == thawed);
    CHECK((early ? back.found.step < 10 : back.found.step == 10));
    if (from != to) CHECK_FALSE(back.found.exact);
    expected.steps(static_cast<int>(back.found.step), ways[from]);
    expected.thaw(ways[from]);
    expected.steps(10, ways[to]);
    CHECK(worst(back.p, expected.p) < 1e-12);
    for (std::size_t i = 0; i < size; ++i) {
      if (ways[to].of_tensor(i / part).frozen) expected.average[i] = expected.p[i];
    }
    CHECK(worst(back.average, expected.average) < 1e-12);
  }
}

TEST_CASE_TEMPLATE("under a schedule that has rounds in flight it begins at rest, and goes on", Schedule, acco::two_phase<>,
                   acco::delayed<>) {
  const scratch folder(in_memory());
  (void)live(Schedule{}, 2, plain, folder.run(), true);
  auto const frozen = live(Schedule{}, 2, still, folder.run(), false);
  CHECK(frozen.found.step >= 10);
  auto const back = live(Schedule{}, 3, slower, folder.run(), false);
  CHECK(back.found.step >= frozen.found.step + 10);
  CHECK(back.found.thawed == std::vector<std::string>{"b", "d"});
}

TEST_CASE("a checkpoint that is damaged is passed over by who freezes otherwise, too") {
  const scratch folder(in_memory());
  (void)live(acco::synchronous{}, 2, still, folder.run(), true);
  (void)live(acco::synchronous{}, 2, still, folder.run(), false);
  auto const paths = acco::checkpoints_in(folder.run());
  REQUIRE(paths.size() == 2);
  std::string bytes = content(paths[0] + "/adamw.1.safetensors");
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
  write(paths[0] + "/adamw.1.safetensors", bytes);
  auto const found = live(acco::synchronous{}, 2, plain, folder.run(), false).found;
  CHECK(found.path == paths[1]);
  REQUIRE(found.skipped.size() == 1);
  CHECK_MESSAGE(found.skipped[0].find("adamw.1.safetensors: chunk 0 is damaged") != std::string::npos, found.skipped[0]);
}

TEST_CASE("16-bit parameters: what is frozen is its master, rounded; what is thawed has what it was as its master") {
  const scratch folder(in_memory());
  acco::parameter_layout both, one;
  both.add("a", {300}).add("b", {500});
  one.add("a", {300}).add("b", {500}, one.add_group({.frozen = true}));
  const auto run = [&](acco::parameter_layout const& layout, bool begins) {
    std::vector<float> masters(800);
    const std::string newest = begins ? "" : acco::checkpoints_in(folder.run()).front();
    acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
      acco::optimizer t{acco::synchronous{}, acco::adamw{}, acco::host_storage<acco::bfloat16, float>{}, world, layout};
      if (begins) {
        t.initialize(std::vector<acco::bfloat16>(800, acco::bfloat16(1.0F)));
      } else {
        (void)t.restore(newest, acco::changes::allowed);
      }
      std::vector<float> mine(800);
      t.gather_masters(std::span(mine));
      if (world.rank() == 0) masters = mine;
      for (int k = 0; begins && k < 3; ++k) {
        (void)t.step([](auto, std::span<float> g) {
          for (float& each : g) each += 1;
          return 1;
        });
      }
      t.finish();
      t.save(folder.run());
      REQUIRE(t.saved()->complete());
      t.gather_masters(std::span(mine));
      if (begins && world.rank() == 0) masters = mine;
    });
    return masters;
  };
  auto const trained = run(both, true), frozen = run(one, false), thawed = run(both, false);
  for (std::size_t i = 0; i < 800; ++i) {
    if (i < 300) CHECK(frozen[i] == trained[i]);
    if (i >= 300) CHECK(frozen[i] == static_cast<float>(acco::bfloat16(trained[i])));
    CHECK(thawed[i] == frozen[i]);
  }
}

TEST_CASE("a tensor that another of several rules is to update is refused: its slots are of another meaning") {
  const scratch folder;
  const auto run = [&](std::size_t rule, bool begins) {
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      acco::parameter_layout layout;
      layout.add("a", {30, 10}).add("b", {20, 10}, layout.add_group({.rule = rule}));
      acco::optimizer t{acco::synchronous{}, acco::rules{acco::adamw{}, acco::sgd{.momentum = 0.9}}, acco::host_storage<float>{},
                        world, layout};
      if (!begins) return static_cast<void>(t.restore(folder.run(), acco::changes::allowed));
      t.initialize(std::vector<float>(500, 1.0F));
      t.save(folder.run());
      t.finish();
      REQUIRE(t.saved()->complete());
    });
  };
  run(0, true);
  run(0, false);
  CHECK_THROWS_WITH_AS(run(1, false),
                       doctest::Contains("the checkpoint has the tensor 'b' under rule 0, this training has it under"),
                       acco::checkpoint_error);
}
