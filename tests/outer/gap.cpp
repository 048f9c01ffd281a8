// SPDX-License-Identifier: Apache-2.0
// CO2's gap is one number over all parameters, whoever owns them and whoever has finished: against the equations, in
// double precision, where workers end at different steps, come and go.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/outer.hpp>

#include "support/patience.hpp"
#include "support/thorough.hpp"

namespace {

using vector = std::vector<double>;

double norm(vector const& a) {
  double squares = 0;
  for (const double x : a) squares += x * x;
  return std::sqrt(squares);
}

struct part {
  std::vector<std::size_t> workers;          // who is there, in the order of their ranks
  std::vector<std::vector<double>> weights;  // by worker, of its micro-batches: one that weighs nothing is no step
};
struct story {
  unsigned steps = 2;
  double rate = 0.7, momentum = 0.2, limit = 1, keep_local = 0, inner_rate = 0.3;
  bool by_samples = false, delayed = false;
  std::size_t size = 200;
  std::vector<part> parts;
};
/// Of one sample.
double gradient(std::size_t worker, std::size_t i, double at) {
  return (0.2 + 0.05 * static_cast<double>(i % 13)) * (at - std::sin(static_cast<double>(i + 17 * worker)));
}

/// The anchor after each part.
std::vector<vector> expected(story const& what) {
  vector x(what.size, 1.0), momentum(what.size, 0.0);
  std::vector<vector> found;
  for (part const& now : what.parts) {
    struct worker {
      vector w, late;
      std::vector<double> weights;  // of micro-batches that are still to come
      bool has_late = false;
      double late_weight = 0;
    };
    std::vector<worker> workers;
    for (auto const& weights : now.weights) workers.push_back({x, {}, {weights.rbegin(), weights.rend()}});
    struct exchange {
      vector mean;
      double moved;
    };
    std::optional<exchange> under_way;
    const auto land = [&] {
      if (!under_way) return 0.0;
      const double size = norm(under_way->mean), gap = size > 0 ? 1 + under_way->moved / size : 1;
      const vector before = x;
      vector step(what.size);
      for (std::size_t i = 0; i < what.size; ++i) {
        momentum[i] = std::clamp(what.momentum * momentum[i] + under_way->mean[i] / gap, -what.limit, what.limit);
        x[i] -= what.rate * momentum[i];
        step[i] = x[i] - before[i];
      }
      under_way.reset();
      return norm(step);
    };
    /// Its next steps, at most a round of them: how many, and their samples.
    const auto round = [&](worker& me, std::size_t id, double& samples) {
      unsigned made = 0;
      const auto step = [&](vector const& mean, double weight) {
        if (weight == 0) return;
        for (std::size_t i = 0; i < what.size; ++i) me.w[i] -= what.inner_rate * mean[i];
        ++made;
        samples += weight;
      };
      while (made < what.steps && (!me.weights.empty() || me.has_late)) {
        if (me.weights.empty()) {  // finish
          me.has_late = false;
          step(me.late, me.late_weight);
          continue;
        }
        vector g(what.size);
        for (std::size_t i = 0; i < what.size; ++i) g[i] = gradient(id, i, me.w[i]);
        const double weight = me.weights.back();
        me.weights.pop_back();
        if (!what.delayed) {
          step(g, weight);
          continue;
        }
        if (me.has_late) step(me.late, me.late_weight);
        me.late = g;
        me.late_weight = weight;
        me.has_late = true;
      }
      return made;
    };
    for (;;) {
      vector sum(what.size, 0.0);
      double total = 0;
      for (std::size_t m = 0; m < workers.size(); ++m) {
        double samples = 0;
        if (round(workers[m], now.workers[m], samples) == 0) continue;
        const double weight = what.by_samples ? samples : 1;
        total += weight;
        for (std::size_t i = 0; i < what.size; ++i) sum[i] += weight * (x[i] - workers[m].w[i]);
      }
      const double moved = land();
      if (total == 0) break;
      for (double& each : sum) each /= total;
      under_way = exchange{sum, moved};
      for (worker& me : workers) {
        for (std::size_t i = 0; i < what.size; ++i) me.w[i] = what.keep_local * me.w[i] + (1 - what.keep_local) * x[i];
      }
    }
    found.push_back(x);
  }
  return found;
}

/// The same by the library, on every worker.
std::vector<vector> trained(story const& what) {
  std::vector<vector> found(what.parts.size());
  std::mutex mutex;
  std::size_t people = 0;
  for (part const& each : what.parts) people = std::max(people, 1 + *std::max_element(each.workers.begin(), each.workers.end()));
  acco::threads_backend::run(static_cast<int>(people), [&](acco::threads_backend const& lobby) {
    const auto me = static_cast<std::size_t>(lobby.rank());
    const auto place_in = [&](part const& each) {
      return static_cast<std::size_t>(std::find(each.workers.begin(), each.workers.end(), me) - each.workers.begin());
    };
    std::vector<acco::threads_backend> worlds;
    for (part const& each : what.parts) {
      const std::size_t place = place_in(each);
      worlds.push_back(lobby.split(place < each.workers.size() ? 0 : 1, static_cast<int>(place), 60 * patience()));
    }
    const auto made = [&](acco::threads_backend const& world) -> acco::any_optimizer<double> {
      const auto with = [&](auto inner) -> acco::any_optimizer<double> {
        const acco::restarting method{
            .rule = acco::clipped_momentum{.learning_rate = what.rate, .momentum = what.momentum, .limit = what.limit},
            .keep_local = what.keep_local,
            .weights = what.by_samples ? acco::worker_weights::samples : acco::worker_weights::equal,
            .by_gap = true};
        const acco::local_updates level{.method = method, .inner = inner, .steps = what.steps};
        return acco::optimizer{level,
                               acco::sgd{.learning_rate = what.inner_rate},
                               acco::host_storage<double>{},
                               world,
                               what.size,
                               acco::options{.deadline = 60 * patience(), .check_habits = acco::habit_checks::off}};
      };
      return what.delayed ? with(acco::delayed{}) : with(acco::synchronous{});
    };
    acco::any_optimizer<double> training;
    for (std::size_t p = 0; p < what.parts.size(); ++p) {
      const std::size_t place = place_in(what.parts[p]);
      if (place == what.parts[p].workers.size()) continue;
      if (training) {
        training.regroup(worlds[p]);
      } else {
        training = made(worlds[p]);
        p == 0 ? training.initialize(vector(what.size, 1.0)) : training.join();
      }
      for (const double weight : what.parts[p].weights[place]) {
        auto const at = training.parameters();
        auto const g = training.gradients();
        for (std::size_t i = 0; i < what.size; ++i) g[i] += weight * gradient(me, i, at[i]);
        (void)training.accumulated(weight);
      }
      training.finish();
      {
        const std::lock_guard lock(mutex);
        vector const now(training.parameters().begin(), training.parameters().end());
        if (found[p].empty()) found[p] = now;
        CHECK(found[p] == now);
      }
      if (p + 1 == what.parts.size() || place_in(what.parts[p + 1]) < what.parts[p + 1].workers.size()) continue;
      training.depart();
      training = {};
    }
  });
  return found;
}

void check(story const& what) {
  auto const found = trained(what), wanted = expected(what);
  for (std::size_t p = 0; p < wanted.size(); ++p) {
    double most = 0;
    for (std::size_t i = 0; i < what.size; ++i)
      most = std::max(most, std::abs(found[p][i] - wanted[p][i]) / (1 + std::abs(wanted[p][i])));
    CAPTURE(p);
    CHECK(most < 1e-12);
  }
}

story draw(std::uint64_t seed, bool even) {
  std::mt19937_64 random(seed);
  const auto of = [&](auto const& list) { return list[random() % std::size(list)]; };
  story what;
  what.steps = of(std::to_array({1U, 2U, 3U}));
  what.rate = of(std::to_array({0.7, 0.3}));
  what.momentum = of(std::to_array({0.0, 0.2, 0.5}));
  what.limit = of(std::to_array({0.1, 1.0}));
  what.keep_local = of(std::to_array({0.0, 0.0, 0.4}));
  what.by_samples = random() % 2 == 0;
  what.delayed = random() % 2 == 0;
  what.size = of(std::to_array<std::size_t>({1, 65, 200}));
  std::vector<std::size_t> here{0, 1, 2};
  for (std::size_t p = 0; p < 3; ++p) {
    part& now = what.parts.emplace_back();
    std::shuffle(here.begin(), here.end(), random);
    now.workers = here;
    const std::size_t most = 1 + random() % (4 * what.steps);
    for (std::size_t m = 0; m < here.size(); ++m) {
      vector& weights = now.weights.emplace_back(even ? most : 1 + random() % (4 * what.steps));
      for (double& each : weights) each = 1 + static_cast<double>(random() % 3);
      if (random() % 3 == 0) weights.back() = 0;
    }
    if (p == 0) here.erase(here.begin() + static_cast<std::ptrdiff_t>(random() % here.size()));
    if (p == 1) here.insert(here.end(), {3, 4});
  }
  return what;
}

}  // namespace

TEST_CASE("CO2 where one worker finishes after 4 steps, and the other after 9") {
  story what;
  what.parts = {{{0, 1}, {vector(4, 1.0), vector(9, 1.0)}}};
  check(what);
}

TEST_CASE("CO2 where workers end at different steps, come and go, and the last micro-batch of some weighs nothing") {
  for (std::uint64_t seed = 1; seed <= (thorough() ? 400 : 30); ++seed) {
    CAPTURE(seed);
    check(draw(seed, seed % 2 == 0));
  }
}
