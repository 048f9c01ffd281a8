// SPDX-License-Identifier: Apache-2.0
// The oracle of galore: Algorithm 2 of arXiv 2403.03507 with AdamW, whole, in double precision, without a line of the
// library. Singular vectors come from the eigenvectors of the Gram matrix, by rotations of both its sides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace published {

/// Row by row.
struct matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;
  matrix() = default;
  matrix(std::size_t m, std::size_t n) : rows(m), columns(n), values(m * n, 0.0) {}
  double& operator()(std::size_t i, std::size_t j) { return values[i * columns + j]; }
  double operator()(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};
inline matrix transposed(matrix const& a) {
  matrix t(a.columns, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
  }
  return t;
}
inline matrix product(matrix const& a, matrix const& b) {
  matrix c(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}
/// The r largest left singular vectors, as columns.
inline matrix left_singular_vectors(matrix const& a, std::size_t r) {
  matrix g = product(a, transposed(a)), v(a.rows, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i) v(i, i) = 1;
  for (int sweep = 0; sweep < 40; ++sweep) {
    for (std::size_t p = 0; p + 1 < a.rows; ++p) {
      for (std::size_t q = p + 1; q < a.rows; ++q) {
        if (g(p, q) == 0) continue;
        const double angle = 0.5 * std::atan2(2 * g(p, q), g(p, p) - g(q, q)), c = std::cos(angle), s = std::sin(angle);
        for (std::size_t k = 0; k < a.rows; ++k) {
          const double x = g(k, p), y = g(k, q);
          g(k, p) = c * x + s * y;
          g(k, q) = c * y - s * x;
        }
        for (std::size_t k = 0; k < a.rows; ++k) {
          const double x = g(p, k), y = g(q, k);
          g(p, k) = c * x + s * y;
          g(q, k) = c * y - s * x;
        }
        for (std::size_t k = 0; k < a.rows; ++k) {
          const double x = v(k, p), y = v(k, q);
          v(k, p) = c * x + s * y;
          v(k, q) = c * y - s * x;
        }
      }
    }
  }
  std::vector<std::size_t> order(a.rows);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return g(x, x) > g(y, y); });
  matrix found(a.rows, r);
  for (std::size_t k = 0; k < r; ++k) {
    for (std::size_t i = 0; i < a.rows; ++i) found(i, k) = v(i, order[k]);
  }
  return found;
}

struct settings {
  double rate = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0, scale = 1;
  std::size_t rank = 1, every = 1;
};

/// One tensor's training. Not projected where its smaller side is no longer than the rank.
class training {
 public:
  training(matrix start, settings const& s) : w(std::move(start)), s_(s), right_(w.rows >= w.columns) {}

  matrix w;

  /// The mean gradient of the step that begins.
  void begin_step(matrix const& gradient) {
    if (!projects() || steps_ % s_.every != 0) return;
    matrix next = left_singular_vectors(right_ ? transposed(gradient) : gradient, s_.rank);
    for (std::size_t k = 0; k < s_.rank && p_.rows != 0; ++k) {
      double along = 0;
      for (std::size_t i = 0; i < next.rows; ++i) along += next(i, k) * p_(i, k);
      for (std::size_t i = 0; i < next.rows && along < 0; ++i) next(i, k) = -next(i, k);
    }
    p_ = next;
  }
  /// What an update would make of w.
  [[nodiscard]] matrix estimate(matrix const& gradient, double factor) const {
    training other = *this;
    other.commit(gradient, factor);
    return other.w;
  }
  void commit(matrix const& gradient, double factor) {
    matrix g = right_ ? transposed(gradient) : gradient;
    if (projects()) g = product(transposed(p_), g);
    m_.resize(g.values.size());
    v_.resize(g.values.size());
    ++steps_;
    const double c1 = 1 - std::pow(s_.beta1, static_cast<double>(steps_)),
                 c2 = 1 - std::pow(s_.beta2, static_cast<double>(steps_));
    matrix n = g;
    for (std::size_t i = 0; i < g.values.size(); ++i) {
      m_[i] = s_.beta1 * m_[i] + (1 - s_.beta1) * g.values[i];
      v_[i] = s_.beta2 * v_[i] + (1 - s_.beta2) * g.values[i] * g.values[i];
      n.values[i] = m_[i] / c1 / (std::sqrt(v_[i] / c2) + s_.epsilon);
    }
    if (projects()) n = product(p_, n);
    if (right_) n = transposed(n);
    const double rate = s_.rate * factor, scale = projects() ? s_.scale : 1;
    for (std::size_t i = 0; i < n.values.size(); ++i)
      w.values[i] = w.values[i] * (1 - rate * s_.decay) - rate * scale * n.values[i];
  }

 private:
  [[nodiscard]] bool projects() const { return std::min(w.rows, w.columns) > s_.rank; }
  settings s_;
  bool right_;
  matrix p_;
  std::vector<double> m_, v_;
  std::size_t steps_ = 0;
};

}  // namespace published
