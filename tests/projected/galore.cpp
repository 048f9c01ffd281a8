// SPDX-License-Identifier: Apache-2.0
// galore beside the published algorithm (published_galore.hpp), after every round; what it sends and keeps; where it is
// no projection at all.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/galore.hpp>

#include "projected/published_galore.hpp"
#include "support/problem.hpp"

namespace {

using published::matrix;

/// synchronous, two_phase or weight_prediction: one type for all.
struct either {
  bool halves = false;
  acco::fixed_pace pace = {};
  bool predicts = false;
  static constexpr char const* name = "either";
  static constexpr std::size_t period = 2;
  [[nodiscard]] constexpr acco::round_plan plan(std::size_t round) const {
    if (predicts) return acco::weight_prediction<>{}.plan(round);
    return halves ? acco::two_phase<>{}.plan(round) : acco::synchronous<>{}.plan(round);
  }
};

struct shape {
  std::size_t rows, columns;
};
constexpr shape shapes[] = {{6, 9}, {3, 15}, {1, 7}, {2, 8}, {9, 5}};  // the vector and the small one are not projected
constexpr std::size_t rank_of_bases = 2;

acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  layout.add("wide", {6, 9}).add("solid", {3, 3, 5}).add("vector", {7}).add("small", {2, 8}).add("tall", {9, 5});
  return layout;
}

/// A matrix of singular values 1, 1/2, 1/4 ..., at most so many, whose vectors point anywhere.
matrix spectrum(std::uint64_t seed, shape const& s, std::size_t most = 1000) {
  const auto anywhere = [](std::uint64_t of, std::size_t n, std::size_t count) {
    std::vector<std::vector<double>> v(count, std::vector<double>(n));
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t i = 0; i < n; ++i) v[k][i] = problem::unit(of * 7919 + k * 131 + i) - 0.5;
      for (int time = 0; time < 2; ++time) {
        for (std::size_t l = 0; l < k; ++l) {
          double along = 0;
          for (std::size_t i = 0; i < n; ++i) along += v[k][i] * v[l][i];
          for (std::size_t i = 0; i < n; ++i) v[k][i] -= along * v[l][i];
        }
      }
      double squares = 0;
      for (const double x : v[k]) squares += x * x;
      for (double& x : v[k]) x /= std::sqrt(squares);
    }
    return v;
  };
  const std::size_t r = std::min({s.rows, s.columns, most});
  auto const left = anywhere(seed * 2 + 1, s.rows, r), right = anywhere(seed * 2 + 2, s.columns, r);
  matrix a(s.rows, s.columns);
  for (std::size_t k = 0; k < r; ++k) {
    for (std::size_t i = 0; i < s.rows; ++i) {
      for (std::size_t j = 0; j < s.columns; ++j) a(i, j) += std::pow(0.5, static_cast<double>(k)) * left[k][i] * right[k][j];
    }
  }
  return a;
}
/// The mean gradient of micro-batch t of tensor k at w: towards a matrix that is another each time. `thin`: of as many
/// directions as bases have, wherever w is.
matrix mean_gradient(std::size_t t, std::size_t k, matrix const& w, bool thin = false) {
  if (thin) return spectrum(t * 16 + k, {w.rows, w.columns}, rank_of_bases);
  matrix g = spectrum(t * 16 + k, {w.rows, w.columns});
  for (std::size_t i = 0; i < g.values.size(); ++i) g.values[i] = 0.1 * w.values[i] - g.values[i];
  return g;
}
/// What a rank adds: much, and nothing over all ranks.
double noise(std::size_t t, std::size_t k, std::size_t i, int rank, int ranks) {
  const auto of = [&](int each) { return 8 * (problem::unit(t * 977 + k * 31 + i * 7 + static_cast<std::size_t>(each)) - 0.5); };
  double last = 0;
  for (int each = 0; each + 1 < ranks; ++each) last -= of(each);
  return rank + 1 < ranks ? of(rank) : last;
}

struct plan {
  bool halves = false;
  int ranks = 1;
  double decay = 0;
  std::size_t steps = 11, every = 4;
  std::vector<std::size_t> broken = {};  // micro-batches in which one rank brings NaN
  std::size_t bucket_elements = 0;       // as in options
  bool adopts = false;                   // tensors of the trainer's
  bool thin = false;                     // gradients of few directions, wherever the parameters are
  bool predicts = false;                 // under weight_prediction
  unsigned iterations = 40;
};
acco::options options_of(plan const& p) {
  acco::options chosen{.bucket_elements = p.bucket_elements};
  chosen.learning_rate = [](acco::training_position const& at) { return 1 / (1 + 0.05 * at.samples); };
  if (!p.broken.empty()) chosen.on_non_finite = acco::non_finite::skip;
  return chosen;
}
const acco::adamw rule{.learning_rate = 0.004, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0};
acco::adamw rule_of(plan const& p) {
  acco::adamw found = rule;
  found.weight_decay = p.decay;
  return found;
}
std::vector<double> start() {
  std::vector<double> values(layout_of().size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = problem::unit(i + 5) - 0.5;
  return values;
}

/// The parameters after each round that ended.
using shown = std::vector<std::vector<double>>;

/// The library's, of every rank, which are threads.
std::vector<shown> train(plan const& p, std::vector<acco::round_report>* reports = nullptr) {
  std::vector<shown> all(static_cast<std::size_t>(p.ranks));
  acco::threads_backend::run(p.ranks, [&](acco::threads_backend const& world) {
    auto const layout = layout_of();
    std::vector<std::vector<double>> own;
    acco::any_optimizer<double> training =
        acco::optimizer{acco::galore{.inner = either{.halves = p.halves, .predicts = p.predicts},
                                     .rank = rank_of_bases,
                                     .every = p.every,
                                     .scale = 0.5,
                                     .iterations = p.iterations},
                        rule_of(p),
                        acco::host_storage<double>{},
                        world,
                        layout,
                        options_of(p)};
    std::vector<double> const begin = world.rank() == 0 ? start() : std::vector<double>(layout.size(), -7.0);
    if (p.adopts) {
      std::vector<acco::tensor_memory<double>> tensors;
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        auto const first = begin.begin() + static_cast<std::ptrdiff_t>(layout[k].offset);
        own.emplace_back(first, first + static_cast<std::ptrdiff_t>(layout[k].size));
        double* const parameters = own.back().data();
        own.emplace_back(layout[k].size, 3.0);
        tensors.push_back({parameters, own.back().data()});
      }
      training.adopt(tensors);
    } else {
      training.initialize(begin);
    }
    const auto see = [&] {
      std::vector<double> values;
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        auto const at = training.tensor(layout[k].name).parameters;
        values.insert(values.end(), at.begin(), at.end());
      }
      return values;
    };
    const std::size_t micro_batches = p.halves ? 2 * p.steps : p.steps + p.broken.size();
    for (std::size_t t = 0; t < micro_batches; ++t) {
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        auto const [at, to] = training.tensor(layout[k].name);
        matrix w(shapes[k].rows, shapes[k].columns);
        w.values.assign(at.begin(), at.end());
        matrix const g = mean_gradient(t, k, w, p.thin);
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += g.values[i] + noise(t, k, i, world.rank(), p.ranks);
        for (const std::size_t each : p.broken) {
          if (each == t && world.rank() == p.ranks - 1 && k == 1) to[4] = std::numeric_limits<double>::quiet_NaN();
        }
      }
      if (auto const report = training.accumulated(1)) {
        all[static_cast<std::size_t>(world.rank())].push_back(see());
        if (world.rank() == 0 && reports != nullptr) reports->push_back(*report);
      }
    }
    std::vector<double> gathered(layout.size());
    training.gather_committed(gathered);  // under two_phase a commit is in flight
    training.finish();
    if (!p.predicts) CHECK(see() == gathered);  // a prediction is taken back by another way
    all[static_cast<std::size_t>(world.rank())].push_back(gathered);
  });
  return all;
}

/// The oracle's.
shown expected(plan const& p) {
  const published::settings s{.rate = rule.learning_rate,
                              .beta1 = rule.beta1,
                              .beta2 = rule.beta2,
                              .epsilon = rule.epsilon,
                              .decay = p.decay,
                              .scale = 0.5,
                              .rank = rank_of_bases,
                              .every = p.every};
  auto const layout = layout_of();
  auto const values = start();
  std::vector<published::training> tensors;
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    matrix w(shapes[k].rows, shapes[k].columns);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(layout[k].offset), w.values.size(), w.values.begin());
    tensors.emplace_back(w, s);
  }
  shown all;
  const auto show = [&](std::vector<matrix> const& of) {
    all.emplace_back();
    for (matrix const& each : of) all.back().insert(all.back().end(), each.values.begin(), each.values.end());
  };
  std::vector<matrix> in_use(tensors.size());
  for (std::size_t k = 0; k < tensors.size(); ++k) in_use[k] = tensors[k].w;
  std::size_t t = 0;
  double samples = 0;
  for (std::size_t step = 0; step < p.steps; ++step) {
    const double factor = 1 / (1 + 0.05 * samples);
    while (std::find(p.broken.begin(), p.broken.end(), t) != p.broken.end()) {
      show(in_use);
      ++t;
    }
    std::vector<matrix> first, committed, estimates;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      first.push_back(mean_gradient(t, k, in_use[k], p.thin));
      committed.push_back(tensors[k].w);
    }
    if (p.halves && step > 0) show(committed);  // the step before has landed
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      tensors[k].begin_step(first[k]);
      if (p.halves) {
        matrix both = mean_gradient(t + 1, k, committed[k], p.thin);
        for (std::size_t i = 0; i < both.values.size(); ++i) both.values[i] = 0.5 * (both.values[i] + first[k].values[i]);
        estimates.push_back(tensors[k].estimate(first[k], factor));
        first[k] = both;
      }
      tensors[k].commit(first[k], factor);
      in_use[k] = p.halves ? estimates[k] : tensors[k].w;
    }
    show(in_use);
    t += p.halves ? 2 : 1;
    samples += (p.halves ? 2.0 : 1.0) * p.ranks;
  }
  std::vector<matrix> last;
  for (auto const& each : tensors) last.push_back(each.w);
  show(last);
  return all;
}

void compare(plan const& p) {
  CAPTURE(p.halves);
  CAPTURE(p.ranks);
  CAPTURE(p.decay);
  CAPTURE(p.adopts);
  CAPTURE(p.iterations);
  auto const all = train(p);
  auto const oracle = expected(p);
  REQUIRE(all[0].size() == oracle.size());
  double worst = 0;
  for (std::size_t r = 0; r < oracle.size(); ++r) {
    REQUIRE(all[0][r].size() == oracle[r].size());
    for (std::size_t i = 0; i < oracle[r].size(); ++i) {
      const double difference = std::abs(all[0][r][i] - oracle[r][i]);
      worst = difference <= worst ? worst : difference;
    }
  }
  CHECK(worst < 1e-10);
  for (auto const& rank : all) CHECK(rank == all[0]);  // in every bit, after every round
}

/// Of one tensor, at one rate, by the plain rule or in bases.
template <class Schedule, class Rule>
std::vector<double> trained_thin(Schedule schedule, Rule by) {
  std::vector<double> found;
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    acco::any_optimizer<double> training = acco::optimizer{schedule, by, acco::host_storage<double>{}, world, layout_of()};
    training.initialize(start());
    for (std::size_t t = 0; t < 6; ++t) {
      auto const layout = layout_of();
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        matrix const g = mean_gradient(t, k, matrix(shapes[k].rows, shapes[k].columns), true);
        auto const to = training.tensor(layout[k].name).gradients;
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += g.values[i] + noise(t, k, i, world.rank(), 3);
      }
      REQUIRE(training.accumulated(1));
    }
    training.finish();
    if (world.rank() == 0) found.assign(training.parameters().begin(), training.parameters().end());
  });
  return found;
}

/// Counts what is out.
struct counting_resource final : std::pmr::memory_resource {
  std::size_t bytes = 0;
  void* do_allocate(std::size_t count, std::size_t alignment) override {
    bytes += count;
    return std::pmr::new_delete_resource()->allocate(count, alignment);
  }
  void do_deallocate(void* memory, std::size_t count, std::size_t alignment) override {
    bytes -= count;
    std::pmr::new_delete_resource()->deallocate(memory, count, alignment);
  }
  [[nodiscard]] bool do_is_equal(memory_resource const& other) const noexcept override { return this == &other; }
};

}  // namespace

TEST_CASE("galore is the published algorithm, on one rank, two and three, with decay and without, after every round") {
  for (const int ranks : {1, 2, 3}) compare({.ranks = ranks, .decay = ranks == 2 ? 0.0 : 2.0});
}

TEST_CASE("under two_phase estimates and commits are those of the published update, in the bases of a step's first half") {
  for (const int ranks : {1, 3}) compare({.halves = true, .ranks = ranks, .decay = 2});
}

TEST_CASE("in many buckets, and in tensors of the trainer's own, it is the same") {
  compare({.halves = true, .ranks = 2, .decay = 2, .bucket_elements = 64, .adopts = true});
}

TEST_CASE("of gradients of no more directions than a basis has, one iteration finds the singular vectors") {
  compare({.ranks = 2, .thin = true, .iterations = 1});
}

TEST_CASE("a prediction is taken back in the basis in which it was made: what is committed is what it is without") {
  const plan p{.ranks = 2, .decay = 2, .every = 2, .thin = true};
  plan predicts = p;
  predicts.predicts = true;
  auto const there = train(p)[0].back(), here = train(predicts)[0].back();
  for (std::size_t i = 0; i < there.size(); ++i) CHECK(std::abs(there[i] - here[i]) < 1e-12);
}

TEST_CASE("a gradient that is not finite leaves matrices, state and bases as they are, also where bases were due") {
  // due at the first step, and at the fifth, whose first two tries are micro-batches 5 and 6
  const plan p{.ranks = 2, .broken = {0, 5, 6}};
  compare(p);
  shown const all = train(p)[0];
  CHECK(all[0] == start());  // in every bit
  CHECK(all[5] == all[4]);
  CHECK(all[6] == all[4]);
}

TEST_CASE("a matrix whose gradient begins at zero gets its basis in the step that brings one, though none is due") {
  std::vector<double> const begin = start();
  acco::threads_backend::run(3, [&](acco::threads_backend const& world) {
    auto const layout = layout_of();
    acco::any_optimizer<double> training =
        acco::optimizer{acco::galore{.inner = either{}, .rank = rank_of_bases, .every = 100, .scale = 0.5},
                        acco::sgd{.learning_rate = 0.02}, acco::host_storage<double>{}, world, layout_of()};
    training.initialize(begin);
    std::vector<std::uint64_t> bytes;
    for (std::size_t t = 0; t < 4; ++t) {
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        if (k == 0 && t < 2) continue;
        matrix const g = mean_gradient(t, k, matrix(shapes[k].rows, shapes[k].columns), true);
        auto const to = training.tensor(layout[k].name).gradients;
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += g.values[i] + noise(t, k, i, world.rank(), 3);
      }
      auto const report = training.accumulated(1);
      REQUIRE(report);
      bytes.push_back(report->bytes_sent);
      matrix const g = mean_gradient(t, 0, matrix(shapes[0].rows, shapes[0].columns), true);
      for (std::size_t i = 0; t < 3 && i < layout[0].size; ++i)
        CHECK(std::abs(training.parameters()[i] - (begin[i] - (t < 2 ? 0 : 0.01 * g.values[i]))) < 1e-12);
    }
    CHECK(bytes[0] > bytes[2]);  // those of the others, and then its own
    CHECK(bytes[2] > bytes[1]);
    CHECK(bytes[1] - bytes[3] <= 3 * 2 * sizeof(double));  // nothing but the question
    training.finish();
  });
}

TEST_CASE("who does not come to new bases is missed in the round that they are for") {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    acco::any_optimizer<double> training =
        acco::optimizer{acco::galore{.inner = either{}, .rank = rank_of_bases, .every = 2, .scale = 0.5},
                        acco::sgd{.learning_rate = 0.02}, acco::host_storage<double>{}, world, layout_of()};
    training.initialize(start());
    const auto micro_batch = [&] {
      for (double& each : training.gradients()) each += 1;
      (void)training.accumulated(1);
    };
    micro_batch();
    micro_batch();
    if (world.rank() == 0) CHECK_THROWS_WITH_AS(micro_batch(), doctest::Contains("round 2, new bases"), acco::peer_error);
  });
}

TEST_CASE("a vector, and a matrix whose smaller side is no longer than the rank, are the plain optimizer's in every bit") {
  const plan p{.ranks = 2, .decay = 0.3};
  auto const galore = train(p);
  auto const layout = layout_of();
  acco::threads_backend::run(p.ranks, [&](acco::threads_backend const& world) {
    acco::options chosen = options_of(p);
    chosen.check_habits = acco::habit_checks::off;  // the other tensors have no gradients
    acco::any_optimizer<double> plain =
        acco::optimizer{either{}, rule_of(p), acco::host_storage<double>{}, world, layout_of(), chosen};
    plain.initialize(start());
    for (std::size_t t = 0; t < p.steps; ++t) {
      for (std::size_t k = 2; k < 4; ++k) {
        auto const [at, to] = plain.tensor(layout[k].name);
        matrix w(shapes[k].rows, shapes[k].columns);
        w.values.assign(at.begin(), at.end());
        matrix const g = mean_gradient(t, k, w);
        for (std::size_t i = 0; i < to.size(); ++i) to[i] += g.values[i] + noise(t, k, i, world.rank(), p.ranks);
      }
      REQUIRE(plain.accumulated(1));
      for (std::size_t i = layout[2].offset; i < layout[4].offset; ++i)
        CHECK(plain.parameters()[i] == galore[static_cast<std::size_t>(world.rank())][t][i]);
    }
    plain.finish();
  });
}

TEST_CASE("where gradients have no more directions than bases that are always new, sgd is the plain sgd at rate times scale") {
  auto const bases = trained_thin(acco::galore{.inner = either{}, .rank = rank_of_bases, .every = 1, .scale = 0.5},
                                  acco::sgd{.learning_rate = 0.02});
  auto const plain = trained_thin(either{}, acco::sgd{.learning_rate = 0.01});
  auto const layout = layout_of();
  for (const std::size_t k : {0U, 1U, 4U}) {
    for (std::size_t i = layout[k].offset; i < layout[k].offset + layout[k].size; ++i)
      CHECK(std::abs(bases[i] - plain[i]) < 1e-12);
  }
}

TEST_CASE("what travels and what the rule keeps are those of coordinates; new bases cost a round of whole gradients") {
  // 64 x 96 becomes 8 x 96: of 6272 trainable numbers 896 are left
  acco::parameter_layout layout;
  layout.add("matrix", {64, 96}).add("vector", {128});
  const auto bytes_of = [&](auto schedule, int of, std::size_t& slots, double of_vector) {
    std::vector<std::uint64_t> bytes;
    acco::mock_world(2).run([&](acco::mock_backend const& world) {
      acco::optimizer training{schedule, acco::adamw{}, acco::host_storage<double>{},
                               world,    layout,        acco::options{.on_non_finite = acco::non_finite::skip}};
      training.initialize(std::vector<double>(layout.size(), 1.0));
      for (std::size_t t = 0; t < 3; ++t) {
        for (std::size_t i = 0; i < layout.size(); ++i) training.gradients()[i] += problem::unit(i + t);
        training.gradients()[6200] += t == 0 ? of_vector : 0.0;
        auto const report = training.accumulated(1);
        if (world.rank() == of) bytes.push_back(report->bytes_sent);
      }
      training.finish();
      if (world.rank() == of) slots = training.memory().slots;
    });
    return bytes;
  };
  const acco::galore method{.inner = either{}, .rank = 8, .every = 2};
  std::size_t slots = 0, slots_in_bases = 0;
  auto const plain = bytes_of(either{}, 0, slots, 0), first = bytes_of(method, 0, slots_in_bases, 0),
             second = bytes_of(method, 1, slots_in_bases, 0);
  CHECK(slots - slots_in_bases == 2 * sizeof(double) * (6272 - 896) / 2);
  CHECK(plain[1] - first[1] == 2 * sizeof(double) * (6272 - 896) / 2);  // half of it down, half of it up, to one other rank
  const std::uint64_t agreed = 3 * sizeof(double), whole = 2 * sizeof(double) * 6144 / 2, basis = sizeof(double) * 8 * 64,
                      masters = sizeof(double) * 896 / 2;
  CHECK(first[0] == first[1] + agreed + whole + masters + basis);  // rank 0 has found it
  CHECK(second[0] == second[1] + agreed + whole + masters);
  CHECK(first[2] == first[0]);
  // no new bases of a step that will be skipped, whichever tensor is not finite
  auto const broken = bytes_of(method, 0, slots_in_bases, std::numeric_limits<double>::infinity());
  CHECK(broken[0] == first[1] + agreed);
  CHECK(broken[1] == first[0]);
}

TEST_CASE("memory() tells what is allocated, in arrays of the trainer's, too") {
  for (const bool adopts : {false, true}) {
    acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
      counting_resource memory;
      auto const layout = layout_of();
      acco::optimizer training{acco::galore{.inner = either{}, .rank = 2},
                               acco::adamw{},
                               acco::host_storage<double>{&memory},
                               world,
                               layout,
                               acco::options{.check_habits = acco::habit_checks::off}};
      std::vector<double> parameters = start(), gradients(layout.size());
      adopts ? training.adopt(parameters, gradients) : training.initialize(parameters);
      CHECK(training.memory().total() == memory.bytes);
    });
  }
}

TEST_CASE("settings that mean nothing, and what does not go together, are refused with a sentence") {
  acco::threads_backend::run(1, [&](acco::threads_backend const& world) {
    const auto refused = [&](acco::galore<either> method, auto by, acco::parameter_layout layout, acco::options chosen = {}) {
      try {
        acco::optimizer training{method, by, acco::host_storage<double>{}, world, std::move(layout), std::move(chosen)};
      } catch (acco::usage_error const& e) {
        return std::string(e.what());
      }
      return std::string();
    };
    const auto has = [](std::string const& all, char const* words) { return all.find(words) != std::string::npos; };
    const acco::adamw adamw;
    CHECK(has(refused({.rank = 0}, adamw, layout_of()), "galore::rank is 0"));
    CHECK(has(refused({.rank = 2, .every = 0}, adamw, layout_of()), "galore::every is 0"));
    CHECK(has(refused({.rank = 2, .scale = 0}, adamw, layout_of()), "galore::scale is 0"));
    CHECK(has(refused({.rank = 2, .iterations = 0}, adamw, layout_of()), "galore::iterations is 0"));
    CHECK(has(refused({.rank = 6}, adamw, layout_of()),
              "no trainable tensor is a matrix whose smaller side is longer than the rank"));
    CHECK(has(refused({.rank = 2}, acco::sgd{.weight_decay = 0.1, .weight_decay_kind = acco::decay::classic}, layout_of()),
              "depends on the parameter otherwise"));
    CHECK(has(refused({.rank = 2}, adamw, layout_of(), {.average_decay = 0.9}), "average_decay is not there for galore"));
    acco::parameter_layout named_alike;
    named_alike.add("a", {6, 6}).add("a.coordinates", {3});
    CHECK(has(refused({.rank = 2}, adamw, named_alike), "'a' cannot have 'a.coordinates' beside it"));
    acco::parameter_layout long_name;
    long_name.add(std::string(120, 'n'), {6, 6});
    CHECK(has(refused({.rank = 2}, adamw, long_name), "the name is too long, or taken"));
    acco::parameter_layout left;
    left.add("matrix", {6, 6}, left.add_group({.leave_without_gradient = true}));
    CHECK(has(refused({.rank = 2}, acco::adamw{.weight_decay = 0.1}, left), "is left alone without a gradient"));
    acco::optimizer decays{acco::galore<either>{.rank = 2}, acco::adamw{.learning_rate = 0.5, .weight_decay = 2},
                           acco::host_storage<double>{}, world, layout_of()};
    decays.initialize(std::vector<double>(layout_of().size(), 1.0));
    const auto steps = [&] {
      for (int k = 0; k < 4; ++k) (void)decays.accumulated(1);
    };
    CHECK_THROWS_WITH_AS(steps(), doctest::Contains("weight decay leaves 0 of a parameter in one update"), acco::usage_error);
  });
}
