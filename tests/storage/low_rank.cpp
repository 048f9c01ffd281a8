// SPDX-License-Identifier: Apache-2.0
// Products of thin matrices against loops in fp64, for shapes that fit no pack; and what ranks keep, together.
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <acco/bfloat16.hpp>
#include <acco/storage/low_rank.hpp>

#include "support/problem.hpp"

namespace {

template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t from) {
  std::vector<T> found(count);
  for (std::size_t i = 0; i < count; ++i) found[i] = static_cast<T>(static_cast<float>(2 * problem::unit(from + i) - 1));
  return found;
}

/// One matrix on one rank, and a vector of `exact` numbers behind it.
struct rank_state {
  acco::low_rank_matrix m;
  std::vector<acco::low_rank_piece> pieces;
  std::vector<float> kept, direction, leaving, left, right;

  rank_state(std::size_t rows, std::size_t columns, std::size_t rank, std::size_t exact = 0)
      : m{rows, columns, rank, 0, 0, 0, 7},
        kept(rows * columns, 9),
        direction(rank * columns),
        leaving(rank * (rows + columns) + exact),
        left(leaving.size()),
        right(rank * columns) {
    const std::size_t half = m.size() / 2;  // in two pieces, as where shares end
    pieces = {{0, 0, half, 0}, {half, half, m.size() - half, 0}, {m.size(), rank * rows, exact, acco::low_rank_piece::exact}};
    acco::low_rank::forget(view());
  }
  acco::low_rank_view<float> view() { return {&m, 1, kept.data(), direction.data(), leaving.data(), left.data(), right.data()}; }
};

/// A round of several ranks, of weights that differ. Returns the sum that everybody has then.
template <class Gradient>
std::vector<float> round_of(std::vector<rank_state>& ranks, std::vector<std::vector<Gradient>> const& g,
                            std::vector<double> const& weights, double scale = 1) {
  const auto sum_into = [&](auto member) {
    for (rank_state& to : ranks) {
      for (std::size_t i = 0; i < (to.*member).size(); ++i) {
        (to.*member)[i] = 0;
        for (rank_state& from : ranks) (to.*member)[i] += from.leaving[i];
      }
    }
  };
  for (std::size_t r = 0; r < ranks.size(); ++r)
    acco::low_rank::begin(ranks[r].view(), ranks[r].pieces.data(), 3, g[r].data(), scale, weights[r] > 0);
  sum_into(&rank_state::left);
  for (std::size_t r = 0; r < ranks.size(); ++r) acco::low_rank::turn(ranks[r].view(), weights[r] > 0);
  sum_into(&rank_state::right);
  std::vector<float> out(g[0].size() + 3, -1.0F);
  acco::low_rank::write(ranks[0].view(), ranks[0].pieces.data(), 3, out.data(), out.size(), false);
  double all = 0;
  for (const double w : weights) all += w;
  for (std::size_t r = 0; r < ranks.size(); ++r) acco::low_rank::end(ranks[r].view(), scale, weights[r], all);
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("products of thin matrices are those of loops, whatever the shape", T, float, double) {
  constexpr double close = sizeof(T) == 4 ? 2e-5 : 1e-13;
  for (const std::size_t rows : std::initializer_list<std::size_t>{1, 2, 5, 34}) {
    for (const std::size_t columns : std::initializer_list<std::size_t>{1, 3, 16, 37}) {
      for (const std::size_t rank : std::initializer_list<std::size_t>{1, 4, 6}) {
        const auto a = numbers<T>(rows * columns, 1), right = numbers<T>(rank * columns, 5000);
        std::vector<T> left(rank * rows), back(rank * columns);
        acco::matrices::project(a.data(), rows, columns, right.data(), rank, left.data());
        acco::matrices::project_back(a.data(), rows, columns, left.data(), rank, back.data());
        auto product = a;
        const std::size_t first = columns / 2;
        acco::matrices::add_product(left.data(), right.data(), rows, columns, rank, first, rows * columns - first, 0.5, -2.0,
                                    product.data());
        double worst = 0;
        for (std::size_t v = 0; v < rank; ++v) {
          for (std::size_t i = 0; i < rows; ++i) {
            double sum = 0;
            for (std::size_t k = 0; k < columns; ++k)
              sum += static_cast<double>(a[i * columns + k]) * static_cast<double>(right[v * columns + k]);
            worst = std::max(worst, std::abs(sum - static_cast<double>(left[v * rows + i])));
          }
          for (std::size_t k = 0; k < columns; ++k) {
            double sum = 0;
            for (std::size_t i = 0; i < rows; ++i)
              sum += static_cast<double>(a[i * columns + k]) * static_cast<double>(left[v * rows + i]);
            worst = std::max(worst, std::abs(sum - static_cast<double>(back[v * columns + k])));
          }
        }
        for (std::size_t j = 0; j < rows * columns - first; ++j) {
          double sum = 0;
          for (std::size_t v = 0; v < rank; ++v)
            sum += static_cast<double>(left[v * rows + (first + j) / columns]) *
                   static_cast<double>(right[v * columns + (first + j) % columns]);
          worst = std::max(worst, std::abs(static_cast<double>(a[j]) / 2 - 2 * sum - static_cast<double>(product[j])));
        }
        CHECK(worst < close);
      }
    }
  }
}
TEST_CASE("vectors become orthonormal, also those that lie in the span of others, and tiny ones; nothing stays nothing") {
  constexpr std::size_t count = 37, rank = 5;
  auto x = numbers<float>(count * rank, 77);
  for (std::size_t i = 0; i < count; ++i) {
    x[2 * count + i] = 3 * x[i] - x[count + i];
    x[3 * count + i] *= 1e-20F;
    x[4 * count + i] = 0;
  }
  acco::matrices::orthonormalize(x.data(), count, rank);
  for (std::size_t v = 0; v < rank; ++v) {
    for (std::size_t w = 0; w <= v; ++w) {
      const double right = v == w && v != 4 ? 1 : 0;
      CHECK(std::abs(acco::matrices::inner_product(x.data() + v * count, x.data() + w * count, count) - right) < 1e-6);
    }
  }
  x[count] = std::numeric_limits<float>::quiet_NaN();
  acco::matrices::orthonormalize(x.data(), count, rank);
  CHECK(x[count + 3] != x[count + 3]);
  CHECK(x[3 * count + 3] != x[3 * count + 3]);
}
TEST_CASE("what all ranks keep together is what all had, minus what is applied; who brings nothing keeps all; exact is exact") {
  constexpr std::size_t rows = 11, columns = 9, exact = 5;
  const std::vector<double> weights = {3, 0, 1};
  std::vector<rank_state> ranks(3, rank_state(rows, columns, 2, exact));
  CHECK(ranks[0].kept == std::vector<float>(rows * columns, 0.0F));
  std::vector<double> had(rows * columns, 0.0);  // of all ranks, as if the loss scale were 1
  for (int round = 0; round < 4; ++round) {
    const double scale = round < 2 ? 1 : 8;
    std::vector<std::vector<acco::bfloat16>> g;
    for (std::size_t r = 0; r < 3; ++r)
      g.push_back(numbers<acco::bfloat16>(rows * columns + exact, 1000 * static_cast<std::uint64_t>(round) + 200 * r));
    const auto sum = round_of(ranks, g, weights, scale);
    for (std::size_t i = 0; i < rows * columns; ++i) {
      for (auto const& each : g) had[i] += static_cast<double>(static_cast<float>(each[i])) / scale;
      had[i] -= static_cast<double>(sum[i]) / scale;
      double kept = 0;
      for (auto const& each : ranks) kept += static_cast<double>(each.kept[i]);
      CHECK(std::abs(kept - had[i]) < 2e-5);
    }
    for (std::size_t i = 0; i < exact; ++i) {
      float right = 0;
      for (auto const& each : g) right += static_cast<float>(each[rows * columns + i]);
      CHECK(sum[rows * columns + i] == right);
    }
    CHECK(sum[rows * columns + exact] == 0.0F);  // padding
    CHECK(ranks[0].direction == ranks[2].direction);
    if (round == 0) {
      for (std::size_t i = 0; i < rows * columns; ++i) CHECK(ranks[1].kept[i] == static_cast<float>(g[1][i]));
    }
  }
}
TEST_CASE("a matrix that gets gradients late gets them all the same; one of rank 1 arrives whole; so does NaN") {
  std::vector<rank_state> ranks(1, rank_state(6, 8, 2));
  std::vector<std::vector<float>> g(1, std::vector<float>(48, 0.0F));
  CHECK(round_of(ranks, g, {1.0})[5] == 0.0F);
  CHECK(round_of(ranks, g, {0.0})[5] == 0.0F);
  for (std::size_t i = 0; i < 48; ++i) g[0][i] = static_cast<float>(i / 8 + 1) * static_cast<float>(i % 8 + 2);
  auto const sum = round_of(ranks, g, {1.0});
  auto const direction = ranks[0].direction;
  std::vector<std::vector<float>> const none(1, std::vector<float>(48, 0.0F));
  CHECK(round_of(ranks, none, {0.0})[5] == 0.0F);
  CHECK(ranks[0].direction == direction);  // nobody brought anything: the last one stays
  for (std::size_t i = 0; i < 48; ++i) CHECK(std::abs(sum[i] - g[0][i]) < 1e-4F);
  g[0][17] = std::numeric_limits<float>::infinity();
  CHECK_FALSE(std::isfinite(round_of(ranks, g, {1.0})[40]));
}

namespace {

/// The loss a number of a bowl of 45 x 45 after 400 steps of gradient descent with momentum, by products of this rank.
double loss_after_momentum(std::size_t rank, double rate) {
  constexpr std::size_t side = 45, count = side * side;
  std::vector<rank_state> one(1, rank_state(side, side, rank));
  std::vector<double> lacks(count), velocity(count, 0.0);
  for (std::size_t i = 0; i < count; ++i)
    lacks[i] = std::sqrt(-2 * std::log(1 - problem::unit(2 * i))) * std::cos(6.2831853 * problem::unit(2 * i + 1));
  std::vector<std::vector<float>> g(1, std::vector<float>(count));
  double loss = 0;
  for (int step = 0; step < 400; ++step) {
    loss = 0;
    for (std::size_t i = 0; i < count; ++i) {
      g[0][i] = static_cast<float>(lacks[i]);
      loss += lacks[i] * lacks[i] / 2 / count;
    }
    const auto sum = round_of(one, g, {1.0});
    for (std::size_t i = 0; i < count; ++i) lacks[i] -= rate * (velocity[i] = 0.9 * velocity[i] + static_cast<double>(sum[i]));
  }
  return loss;
}

}  // namespace

TEST_CASE("a rule with momentum is driven away by what comes late, unless its steps are small: power_sgd is loose") {
  CHECK_FALSE(loss_after_momentum(4, 0.05) < 1);
  CHECK(loss_after_momentum(4, 0.005) < 1e-6);
  CHECK(loss_after_momentum(45, 0.05) < 1e-6);
}
