// SPDX-License-Identifier: Apache-2.0
// Trainings beside the published algorithm (published_galore.hpp), after every round, wherever memory is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>
#include <acco/galore.hpp>

#include "projected/published_galore.hpp"
#include "support/problem.hpp"

namespace beside_published {

using published::matrix;

/// synchronous or two_phase: one engine for both.
struct either {
  bool halves = false;
  acco::fixed_pace pace = {};
  static constexpr char const* name = "either";
  static constexpr std::size_t period = 2;
  [[nodiscard]] constexpr acco::round_plan plan(std::size_t round) const {
    return halves ? acco::two_phase<>{}.plan(round) : acco::synchronous<>{}.plan(round);
  }
};

struct shape {
  std::size_t rows, columns;
};
constexpr shape shapes[] = {{6, 9}, {3, 15}, {1, 7}, {2, 8}, {9, 5}};  // the vector and the small one are not projected
constexpr std::size_t rank_of_bases = 2;

inline acco::parameter_layout layout_of() {
  acco::parameter_layout layout;
  layout.add("wide", {6, 9}).add("solid", {3, 3, 5}).add("vector", {7}).add("small", {2, 8}).add("tall", {9, 5});
  return layout;
}

/// A matrix of singular values 1, 1/2, 1/4 ..., at most so many, whose vectors point anywhere.
inline matrix spectrum(std::uint64_t seed, shape const& s, std::size_t most = 1000) {
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
/// The mean gradient of micro-batch t of tensor k at w: towards a matrix that is another each time. `thin`: of as many directions
/// as bases have, wherever w is.
inline matrix mean_gradient(std::size_t t, std::size_t k, matrix const& w, bool thin = false) {
  if (thin) return spectrum(t * 16 + k, {w.rows, w.columns}, rank_of_bases);
  matrix g = spectrum(t * 16 + k, {w.rows, w.columns});
  for (std::size_t i = 0; i < g.values.size(); ++i) g.values[i] = 0.1 * w.values[i] - g.values[i];
  return g;
}
/// What a rank adds: much, and nothing over all ranks.
inline double noise(std::size_t t, std::size_t k, std::size_t i, int rank, int ranks) {
  if (ranks == 1) return 0;
  const double x = 8 * (problem::unit(t * 977 + k * 31 + i * 7 + static_cast<std::size_t>(rank / 2)) - 0.5);
  return rank % 2 == 0 ? x : -x;
}

struct plan {
  bool halves = false;
  int ranks = 1;
  double decay = 0;
  std::size_t steps = 11, every = 4;
  std::vector<std::size_t> broken = {};  // micro-batches in which one rank brings NaN
  std::size_t bucket_elements = 0;       // as in options
  bool adopts = false;                   // tensors of the trainer's
  bool thin = false;                     // gradients of few directions
  unsigned iterations = 40;
};
inline acco::options options_of(plan const& p) {
  acco::options chosen{.bucket_elements = p.bucket_elements};
  chosen.learning_rate = [](acco::training_position const& at) { return 1 / (1 + 0.05 * at.samples); };
  if (!p.broken.empty()) chosen.on_non_finite = acco::non_finite::skip;
  return chosen;
}
inline const acco::adamw rule{.learning_rate = 0.004, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0};
inline acco::adamw rule_of(plan const& p) {
  acco::adamw found = rule;
  found.weight_decay = p.decay;
  return found;
}
inline std::vector<double> start() {
  std::vector<double> values(layout_of().size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = problem::unit(i + 5) - 0.5;
  return values;
}

/// The parameters after each round that ended.
using shown = std::vector<std::vector<double>>;

/// The library's, of every rank, which are threads. `Where` has a storage of double that the host may read and write once it has
/// settled, an array of the same memory, and `settle()`.
template <class Where>
std::vector<shown> train(plan const& p, std::vector<acco::round_report>* reports = nullptr) {
  std::vector<shown> all(static_cast<std::size_t>(p.ranks));
  acco::threads_backend::run(p.ranks, [&](acco::threads_backend const& world) {
    auto const layout = layout_of();
    std::vector<typename Where::array> own;
    acco::any_optimizer<double> training = acco::optimizer{acco::galore{.inner = either{.halves = p.halves},
                                                                        .rank = rank_of_bases,
                                                                        .every = p.every,
                                                                        .scale = 0.5,
                                                                        .iterations = p.iterations},
                                                           rule_of(p),
                                                           typename Where::storage{},
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
      Where::settle();
      std::vector<double> values;
      for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
        auto const at = training.tensor(layout[k].name).parameters;
        values.insert(values.end(), at.begin(), at.end());
      }
      return values;
    };
    const std::size_t micro_batches = p.halves ? 2 * p.steps : p.steps + p.broken.size();
    for (std::size_t t = 0; t < micro_batches; ++t) {
      Where::settle();
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
    CHECK(see() == gathered);
    all[static_cast<std::size_t>(world.rank())].push_back(gathered);
  });
  return all;
}

/// The oracle's.
inline shown expected(plan const& p) {
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

template <class Where>
void compare(plan const& p) {
  CAPTURE(p.halves);
  CAPTURE(p.ranks);
  CAPTURE(p.decay);
  CAPTURE(p.adopts);
  CAPTURE(p.iterations);
  auto const all = train<Where>(p);
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

}  // namespace beside_published
