// SPDX-License-Identifier: Apache-2.0
// Products of thin matrices on device memory: each step against the loops of the host, and trainings against the algorithm.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "cuda/cuda_world.hpp"
#include "support/low_rank_problem.hpp"
#include "support/problem.hpp"

namespace {

void settle() { acco::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); }

template <class T>
using array = worlds::managed_array<T>;
struct flag {
  bool set;
};

/// Three matrices, of which neighbours lie in several pieces, and numbers that travel exactly.
template <class Sum>
struct problem_of {
  static constexpr std::size_t exact = 333;
  array<acco::low_rank_matrix> matrices;
  array<acco::low_rank_piece> pieces;
  array<acco::bfloat16> gradients;
  array<Sum> kept, direction, leaving, left, right, out;
  std::size_t rows = 0, columns = 0;

  problem_of() {
    std::size_t at = 0, of_rows = 0, of_columns = 0;
    const auto add = [&](std::size_t m, std::size_t n, std::size_t rank) {
      matrices.push_back({m, n, rank, at, of_rows, of_columns, static_cast<std::uint32_t>(7 * at)});
      at += m * n, of_rows += rank * m, of_columns += rank * n;
      rows += m, columns += n;
    };
    add(70, 131, 6), add(1, 300, 1), add(400, 9, 4), add(33, 32, 5);
    std::size_t begin = exact;  // in front of the matrices
    pieces.push_back({0, of_rows, exact, acco::low_rank_piece::exact});
    for (std::uint32_t k = 0; k < matrices.size(); ++k) {
      const std::size_t cut = matrices[k].size() / 3;
      pieces.push_back({begin, 0, cut, k});
      pieces.push_back({begin + cut, cut, matrices[k].size() - cut, k});
      begin += matrices[k].size();
    }
    for (std::size_t i = 0; i < begin; ++i) gradients.push_back(acco::bfloat16(static_cast<float>(2 * problem::unit(i) - 1)));
    kept.assign(at, Sum(9));
    direction.assign(of_columns, Sum(9));
    leaving.assign(of_rows + of_columns + exact, Sum(9));
    left.assign(of_rows + exact, Sum(9));
    right.assign(of_columns, Sum(9));
    out.assign(begin + 40, Sum(9));
  }
  acco::low_rank_view<Sum> view() {
    return {matrices.data(), matrices.size(),  kept.data(), direction.data(), leaving.data(), left.data(),
            right.data(),    gradients.size(), rows,        columns};
  }
};
template <class T>
double furthest(array<T> const& a, array<T> const& b) {
  double found = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    found = std::isnan(x) == std::isnan(y) ? std::max(found, std::isnan(x) ? 0 : std::abs(x - y))
                                           : std::numeric_limits<double>::infinity();
  }
  return found;
}
/// What the step of a round read and write.
template <class Sum>
double furthest(problem_of<Sum> const& a, problem_of<Sum> const& b) {
  return std::max({furthest(a.kept, b.kept), furthest(a.direction, b.direction), furthest(a.leaving, b.leaving),
                   furthest(a.left, b.left), furthest(a.right, b.right), furthest(a.out, b.out)});
}

}  // namespace

TEST_CASE_TEMPLATE("every step of a round gives what the host gives, with however few thread blocks", Sum, float, double) {
  using storage = worlds::managed_storage<acco::bfloat16, acco::bfloat16, Sum>;
  constexpr double close = sizeof(Sum) == 4 ? 3e-4 : 1e-11;
  for (const unsigned ctas : {0U, 1U, 3U}) {
    CAPTURE(ctas);
    problem_of<Sum> here, there;
    acco::cuda_queue queue(nullptr, {}, 0, acco::cuda_issue::at_once, ctas);
    const array<double> weights = {3, 4, 0};  // mine, all, of a rank without samples
    const array<flag> skips = {{false}, {true}};
    const auto same = [&] {
      queue.wait();
      settle();
      CHECK(furthest(here, there) < close);
    };
    acco::low_rank::forget(here.view());
    storage::low_rank_forget(queue, there.view());
    same();
    for (std::size_t i = 0; i < here.kept.size(); ++i)
      here.kept[i] = there.kept[i] = static_cast<Sum>(problem::unit(i + 5) - 0.5);
    for (const int round : {0, 1, 2, 3, 4}) {  // usual; nothing of this rank; of nobody; skipped; after that
      CAPTURE(round);
      const bool mine = round != 1 && round != 2, all = round != 2, skip = round == 3;
      const double scale = round == 4 ? 8 : 1;
      const auto other = [&](std::size_t i) {
        return static_cast<Sum>(problem::unit(i + 1000 * static_cast<std::size_t>(round)) - 0.5);
      };
      acco::low_rank::begin(here.view(), here.pieces.data(), here.pieces.size(), here.gradients.data(), scale, mine);
      storage::low_rank_begin(queue, there.view(), there.pieces.data(), there.pieces.size(), there.gradients.data(), scale,
                              &weights[mine ? 0 : 2]);
      same();
      for (std::size_t i = 0; i < here.left.size(); ++i) {  // the sum with another rank's, which stands still in one vector
        here.left[i] = there.left[i] = here.leaving[i] + (i < 70 ? 0 : other(i + 500));
      }
      acco::low_rank::turn(here.view(), mine);
      storage::low_rank_turn(queue, there.view(), &weights[mine ? 0 : 2]);
      same();
      for (std::size_t i = 0; i < here.right.size(); ++i)
        here.right[i] = there.right[i] = i / 131 == 2 ? Sum(0) : here.leaving[i] + other(i);
      here.left = there.left;  // so that differences do not add up
      for (const bool add : {false, true}) {
        acco::low_rank::write(here.view(), here.pieces.data(), here.pieces.size(), here.out.data(), here.out.size(), add);
        storage::low_rank_write(queue, there.view(), there.pieces.data(), there.pieces.size(), there.out.data(), there.out.size(),
                                add);
        same();
      }
      skip ? acco::low_rank::forget(here.view()) : acco::low_rank::end(here.view(), scale, mine ? 3 : 0, all ? 4 : 0);
      storage::low_rank_end(queue, there.view(), scale, &weights[mine ? 0 : 2], &weights[all ? 1 : 2], &skips[skip ? 1 : 0].set);
      same();
      here.kept = there.kept, here.direction = there.direction;
    }
    CHECK(here.kept[5] != Sum(0));
  }
}
TEST_CASE("what lies in the span of others, tiny ones and nothing become orthonormal as on the host; NaN stays") {
  using storage = worlds::managed_storage<float>;
  acco::cuda_queue queue(nullptr, {}, 0, acco::cuda_issue::at_once, 0);
  problem_of<float> p;
  for (std::size_t i = 0; i < p.left.size(); ++i) p.left[i] = static_cast<float>(problem::unit(i) - 0.5);
  constexpr std::size_t rows = 70;  // of the first matrix, six vectors
  for (std::size_t i = 0; i < rows; ++i) {
    p.left[2 * rows + i] = 3 * p.left[i] - p.left[rows + i];
    p.left[3 * rows + i] *= 1e-20F;
    p.left[4 * rows + i] = 0;
  }
  p.left[p.matrices[2].left + 400] = std::numeric_limits<float>::quiet_NaN();  // in the second vector of another one
  const array<double> weight = {1};
  storage::low_rank_turn(queue, p.view(), weight.data());
  queue.wait();
  settle();
  for (std::size_t v = 0; v < 6; ++v) {
    for (std::size_t w = 0; w <= v; ++w) {
      const double right = v == w && v != 4 ? 1 : 0;
      CHECK(std::abs(acco::matrices::inner_product(&p.left[v * rows], &p.left[w * rows], rows) - right) < 1e-6);
    }
  }
  float const* const of_nan = &p.left[p.matrices[2].left];
  CHECK(std::isfinite(of_nan[0]));
  CHECK(std::isnan(of_nan[401]));
  CHECK(std::isnan(of_nan[1203]));
}
TEST_CASE("what finish leaves out is not in what is kept, though a GPU's works cannot end a round") {
  using namespace low_rank_problem;
  const auto train = []<class Commit>(Commit const& commit, bool with_rest) {
    std::vector<double> found;
    worlds::cuda::run(2, [&](auto const& world) {
      acco::optimizer training{acco::synchronous{.commit = commit, .pace = acco::fixed_pace{2}},
                               acco::sgd{.learning_rate = 0.125},
                               worlds::managed_storage<double>{},
                               world,
                               layout(),
                               acco::options{}};
      training.initialize(std::vector<double>(count, 1.0));
      const auto micro_batch = [&](std::size_t step) {
        settle();
        for (std::size_t i = 0; i < count; ++i) training.gradients()[i] += gradient(world.rank(), step, i);
        training.accumulated(static_cast<double>(samples(world.rank(), step)));
      };
      for (std::size_t m = 0; m < 6; ++m) micro_batch(m);
      if (with_rest) micro_batch(77);
      training.finish();
      for (std::size_t m = 6; m < 10; ++m) micro_batch(m);
      training.finish();
      settle();
      if (world.rank() == 0) found.assign(training.parameters().begin(), training.parameters().end());
    });
    return found;
  };
  CHECK(train(of_rank(1), true) == train(of_rank(1), false));
  const acco::coded<acco::with_error_feedback<acco::block_gauss2>, acco::full> feeding{};
  CHECK(train(feeding, true) == train(feeding, false));
  const acco::coded<acco::with_ef21<acco::block_gauss2>, acco::full> tracking{};
  CHECK(train(tracking, true) == train(tracking, false));
}
TEST_CASE("trainings on the device: the algorithm of the paper, late, silent, skipped, in both halves") {
  using namespace low_rank_problem;
  using device = worlds::cuda;
  const auto train = [](auto const& schedule, int ranks, story const& s, unsigned micro_batches = 1) {
    return trained<device, worlds::managed_storage<double>>(schedule, ranks, s, micro_batches);
  };
  const auto close = [](std::vector<double> const& a, std::vector<double> const& b) {
    return low_rank_problem::furthest(a, b) < 1e-11;
  };
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    for (story const& s : {story{}, story{.poisoned = 3}, story{.silent = ranks > 1 ? 3U : 99U},
                           story{.scaling = acco::loss_scaling{.initial = 64, .growth = 2, .interval = 2}}})
      CHECK(close(train(acco::synchronous{.commit = of_rank(s.rank)}, ranks, s), expected(s, ranks)));
  }
  const acco::synchronous late{.commit = wire{{.rank = 1, .exact_steps = 3}}};
  CHECK(train(late, 2, {.steps = 3}) == train(acco::synchronous{}, 2, {.steps = 3}));
  CHECK_FALSE(close(train(late, 2, {.steps = 4}), train(acco::synchronous{}, 2, {.steps = 4})));
  CHECK(close(train(acco::delayed{.commit = of_rank(2)}, 2, {}), expected({}, 2)));
  const acco::two_phase halves{.estimate = acco::block_int4{}, .commit = of_rank(2), .pace = acco::fixed_pace{1, 1}};
  CHECK(close(train(halves, 2, {}, 2), expected({}, 2)));
}
