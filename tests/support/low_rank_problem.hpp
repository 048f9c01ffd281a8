// SPDX-License-Identifier: Apache-2.0
// A layout with matrices that travel as products and tensors that do not, gradients for it, and the algorithm, written down
// plainly in fp64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include <acco/acco.hpp>

#include "support/problem.hpp"
#include "support/worlds.hpp"

namespace low_rank_problem {

using storage = acco::host_storage<double>;
using wire = acco::loosely<acco::power_sgd>;

/// Matrices that pay at rank 1 and 2, one of three dimensions, one that does not pay, a vector.
struct shape {
  std::size_t rows, columns, begin;
};
inline constexpr shape matrices[] = {{12, 9, 0}, {8, 18, 120}};
inline acco::parameter_layout layout() {
  acco::parameter_layout found;
  return found.add("tall", {12, 9}), found.add("small", {4, 3}), found.add("deep", {8, 6, 3}), found.add("vector", {70}), found;
}
inline constexpr std::size_t count = 12 * 9 + 4 * 3 + 8 * 18 + 70;

inline std::size_t samples(int rank, std::size_t step) { return 1 + (static_cast<std::size_t>(rank) + step) % 3; }
/// The sum over a rank's samples: known beforehand, whatever the parameters are.
inline double gradient(int rank, std::size_t step, std::size_t i) {
  return static_cast<double>(samples(rank, step)) *
         (std::sin(static_cast<double>(i * i + i * 7 + step * 31) + 2 * rank) + 0.25 * problem::unit(i + 1000 * step));
}
inline wire of_rank(unsigned rank) { return {{.rank = rank}}; }

struct story {
  unsigned rank = 2;
  std::size_t steps = 7;
  double rate = 0.125;
  std::optional<std::size_t> poisoned = {};  ///< a gradient of this step is not finite: the step is left out
  std::optional<std::size_t> silent = {};    ///< rank 0 brings nothing to this step
  std::optional<acco::loss_scaling> scaling = {};
};

/// The directions that matrix k, which is tensor `tensor`, begins with.
inline std::vector<std::vector<double>> first_directions(std::size_t tensor, std::size_t columns, std::size_t rank) {
  const acco::low_rank_matrix m{0, columns, rank, 0, 0, 0, acco::mix_bits(1U) + static_cast<std::uint32_t>(tensor)};
  std::vector<std::vector<double>> found(rank, std::vector<double>(columns));
  for (std::size_t v = 0; v < rank; ++v) acco::low_rank::point_anywhere(m, v, found[v].data());
  return found;
}

/// The algorithm: p_i = G_i + e_i, P = orth(sum p_i Q), Q = sum p_i' P, M = P Q', e_i = p_i - (w_i / W) M.
inline std::vector<double> expected(story const& s, int ranks) {
  std::vector<double> theta(count, 1.0);
  std::vector<std::vector<double>> e(static_cast<std::size_t>(ranks), std::vector<double>(count, 0.0));
  std::vector<std::vector<std::vector<double>>> q;
  const auto forget = [&] {
    for (auto& each : e) each.assign(count, 0.0);
    q = {first_directions(0, 9, std::min(9U, s.rank)), first_directions(2, 18, std::min(8U, s.rank))};
  };
  forget();
  for (std::size_t step = 0; step < s.steps; ++step) {
    if (s.poisoned == step) {
      forget();
      continue;
    }
    const int first = s.silent == step ? 1 : 0;
    double weight = 0;
    std::vector<double> sum(count, 0.0);
    for (int r = first; r < ranks; ++r) {
      weight += static_cast<double>(samples(r, step));
      for (std::size_t i = 0; i < count; ++i) sum[i] += gradient(r, step, i);  // of what travels exactly
    }
    for (std::size_t k = 0; k < 2; ++k) {
      const auto [m, n, begin] = matrices[k];
      const auto addend = [&](int r, std::size_t i) { return e[static_cast<std::size_t>(r)][i] + gradient(r, step, i); };
      std::vector<double> all(m * n, 0.0);
      for (std::size_t i = 0; i < m * n; ++i) {
        for (int r = first; r < ranks; ++r) all[i] += addend(r, begin + i);
      }
      std::vector<std::vector<double>> p;
      for (auto const& direction : q[k]) {
        std::vector<double> x(m, 0.0);
        for (std::size_t i = 0; i < m * n; ++i) x[i / n] += all[i] * direction[i % n];
        const auto dot = [&](auto const& y) {
          double found = 0;
          for (std::size_t i = 0; i < m; ++i) found += x[i] * y[i];
          return found;
        };
        for (int time = 0; time < 2; ++time) {
          for (auto const& y : p) {
            const double share = dot(y);
            for (std::size_t i = 0; i < m; ++i) x[i] -= share * y[i];
          }
        }
        const double norm = std::sqrt(dot(x));
        for (double& each : x) each /= norm;
        p.push_back(x);
      }
      std::vector<double> product(m * n, 0.0);
      for (std::size_t v = 0; v < p.size(); ++v) {
        q[k][v].assign(n, 0.0);
        for (std::size_t i = 0; i < m * n; ++i) q[k][v][i % n] += all[i] * p[v][i / n];
        for (std::size_t i = 0; i < m * n; ++i) product[i] += p[v][i / n] * q[k][v][i % n];
      }
      for (std::size_t i = 0; i < m * n; ++i) {
        for (int r = first; r < ranks; ++r)
          e[static_cast<std::size_t>(r)][begin + i] =
              addend(r, begin + i) - static_cast<double>(samples(r, step)) / weight * product[i];
        sum[begin + i] = product[i];
      }
    }
    for (std::size_t i = 0; i < count; ++i) theta[i] -= s.rate * sum[i] / weight;
  }
  return theta;
}

/// The same by the library, on every rank alike; `schedule` has `micro_batches` a step, of equal parts.
template <class World = worlds::threads, class Storage = storage, class Schedule>
std::vector<double> trained(Schedule const& schedule, int ranks, story const& s, unsigned micro_batches = 1) {
  std::vector<std::vector<double>> found(static_cast<std::size_t>(ranks));
  World::run(ranks, [&](auto const& world) {
    acco::options chosen;
    chosen.on_non_finite = acco::non_finite::skip;
    chosen.bucket_elements = 64 * static_cast<std::size_t>(ranks);
    chosen.loss_scale = s.scaling;
    chosen.compare_every = 1;
    acco::optimizer training{schedule, acco::sgd{.learning_rate = s.rate}, Storage{}, world, layout(), chosen};
    training.initialize(std::vector<double>(count, 1.0));
    for (std::size_t step = 0; step < s.steps; ++step) {
      for (unsigned m = 0; m < micro_batches; ++m) {
        worlds::settle<World>();
        const bool brings = s.silent != step || world.rank() != 0;
        for (std::size_t i = 0; i < count && brings; ++i)
          training.gradients()[i] += training.loss_scale() * gradient(world.rank(), step, i) / micro_batches;
        if (s.poisoned == step && world.rank() == ranks - 1) training.gradients()[50] = std::numeric_limits<double>::quiet_NaN();
        training.accumulated(brings ? static_cast<double>(samples(world.rank(), step)) / micro_batches : 0);
      }
    }
    training.finish();
    worlds::settle<World>();
    found[static_cast<std::size_t>(world.rank())].assign(training.parameters().begin(), training.parameters().end());
  });
  for (auto const& each : found) CHECK(each == found[0]);
  return found[0];
}
inline double furthest(std::vector<double> const& a, std::vector<double> const& b) {
  double found = 0;
  for (std::size_t i = 0; i < count; ++i) found = std::max(found, std::abs(a[i] - b[i]));
  return found;
}

}  // namespace low_rank_problem
