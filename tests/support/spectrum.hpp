// SPDX-License-Identifier: Apache-2.0
// Schedules on a parabola, as matrices: what one step makes of (parameter, momentum, where gradients are computed) when
// the loss is curvature / 2 p^2 and the rule is heavy ball, m <- beta m + g, p <- p - rate m. Written from the
// equations, without a line of the library; and their characteristic polynomials and largest roots.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

namespace spectrum {

using matrix = std::vector<std::vector<double>>;
using polynomial = std::vector<double>;  // its coefficients, that of the highest power, 1, first

/// What decides about a step: k = rate * curvature and the momentum.
struct point {
  double k, beta;
};

/// One linear combination of the state.
using row = std::vector<double>;
[[nodiscard]] inline row operator*(double factor, row a) {
  for (double& each : a) each *= factor;
  return a;
}
[[nodiscard]] inline row operator+(row a, row const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
[[nodiscard]] inline row operator-(row const& a, row const& b) { return a + -1.0 * b; }
[[nodiscard]] inline row unit(std::size_t size, std::size_t at) {
  row r(size, 0.0);
  r[at] = 1;
  return r;
}

/// The momentum is kept as rate * m, so that rate and curvature enter by k alone.
[[nodiscard]] inline matrix synchronous(point at) {
  const row theta = unit(2, 0), m = unit(2, 1);
  const row next_m = at.beta * m + at.k * theta;
  return {theta - next_m, next_m};
}
/// State: theta, m, where the gradient of this round was computed, where the next one's is, a velocity.
/// show(theta[t+1], theta[t], m, g, v) says where the one after is, and may make v, which is zero otherwise, from the
/// velocity before.
template <class Show>
[[nodiscard]] matrix late(point at, Show show) {
  const row theta = unit(5, 0), m = unit(5, 1), before = unit(5, 2), now = unit(5, 3), v = unit(5, 4);
  const row g = at.k * before, next_m = at.beta * m + g, next = theta - next_m;
  row velocity(5, 0.0);
  const row shown = show(next, theta, next_m, g, velocity, v);
  return {next, next_m, now, shown, velocity};
}
[[nodiscard]] inline matrix delayed(point at) {
  return late(at, [](row const& next, auto const&...) { return next; });
}
[[nodiscard]] inline matrix weight_prediction(point at) {
  return late(at,
              [at](row const& next, row const&, row const& m, row const& g, auto const&...) { return next - (at.beta * m + g); });
}
[[nodiscard]] inline matrix extrapolation(point at, double ahead) {
  return late(at, [ahead](row const& next, row const& theta, auto const&...) { return next + ahead * (next - theta); });
}
[[nodiscard]] inline matrix velocity(point at, double ahead, double decay) {
  return late(at, [=](row const& next, row const& theta, row const&, row const&, row& v, row const& before) {
    v = decay * before + (1 - decay) * (next - theta);
    return next + ahead * v;
  });
}
/// ACCO with a share of the samples in the first part. State: theta, m, theta~.
[[nodiscard]] inline matrix two_phase(point at, double first) {
  const row theta = unit(3, 0), m = unit(3, 1), guess = unit(3, 2);
  const row next_m = at.beta * m + at.k * (first * guess + (1 - first) * theta);
  return {theta - next_m, next_m, theta - (at.beta * m + at.k * guess)};
}

/// Faddeev and LeVerrier.
[[nodiscard]] inline polynomial characteristic(matrix const& a) {
  const std::size_t n = a.size();
  polynomial c{1.0};
  matrix m(n, row(n, 0.0));
  for (std::size_t k = 1; k <= n; ++k) {
    for (std::size_t i = 0; i < n; ++i) m[i][i] += c.back();
    matrix product(n, row(n, 0.0));
    double trace = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t l = 0; l < n; ++l) product[i][j] += a[i][l] * m[l][j];
      }
      trace += product[i][i];
    }
    c.push_back(-trace / static_cast<double>(k));
    m = product;
  }
  return c;
}
[[nodiscard]] inline polynomial operator*(polynomial const& a, polynomial const& b) = delete;  // rows are vectors, too
[[nodiscard]] inline polynomial product(polynomial const& a, polynomial const& b) {
  polynomial c(a.size() + b.size() - 1, 0.0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) c[i + j] += a[i] * b[j];
  }
  return c;
}

/// All roots, the largest first: Durand and Kerner.
[[nodiscard]] inline std::vector<std::complex<double>> roots(polynomial c) {
  while (c.size() > 1 && std::abs(c.back()) < 1e-14) c.pop_back();  // roots at zero
  std::vector<std::complex<double>> z(c.size() - 1);
  double radius = 0;
  for (double const each : c) radius = std::max(radius, 1 + std::abs(each));
  for (std::size_t i = 0; i < z.size(); ++i)
    z[i] = std::polar(radius / 2, 0.4 + 6.28318530717958648 * static_cast<double>(i) / static_cast<double>(z.size()));
  for (int iteration = 0; iteration < 2000; ++iteration) {
    double moved = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      std::complex<double> value = 0, others = 1;
      for (double const each : c) value = value * z[i] + each;
      for (std::size_t j = 0; j < z.size(); ++j) {
        if (j != i) others *= z[i] - z[j];
      }
      const auto step = value / others;
      z[i] -= step;
      moved = std::max(moved, std::abs(step));
    }
    if (moved < 1e-15) break;
  }
  std::sort(z.begin(), z.end(), [](auto const& a, auto const& b) { return std::abs(a) > std::abs(b); });
  return z;
}
[[nodiscard]] inline double largest_root(matrix const& a) {
  const auto z = roots(characteristic(a));
  return z.empty() ? 0 : std::abs(z.front());
}

/// The largest k up to which a schedule is stable, all smaller ones included; `of` makes its matrix from a point.
template <class Matrix>
[[nodiscard]] double limit(Matrix of, double beta, double most = 8) {
  constexpr int steps = 400;  // regions begin at 0 and have no holes that are smaller
  double low = 0, high = most;
  for (int i = 1; i <= steps; ++i) {
    const double k = most * i / steps;
    if (largest_root(of(point{k, beta})) > 1 + 1e-9) {
      high = k;
      break;
    }
    low = k;
  }
  for (int i = 0; i < 50; ++i) {
    const double k = (low + high) / 2;
    (largest_root(of(point{k, beta})) > 1 + 1e-9 ? high : low) = k;
  }
  return low;
}

/// By how much a sequence that two modes dominate grows a step: the larger root of z^2 - s z + q, fitted to its last
/// values that are not too small for their digits.
[[nodiscard]] inline double growth(std::vector<double> x) {
  while (!x.empty() && std::abs(x.back()) < 1e-280) x.pop_back();
  double a = 0, b = 0, c = 0, d = 0, e = 0;
  const std::size_t from = x.size() < 34 ? 0 : x.size() - 34;
  double scale = 0;
  for (std::size_t t = from; t < x.size(); ++t) scale = std::max(scale, std::abs(x[t]));
  if (scale == 0) return 0;
  for (std::size_t t = from; t + 2 < x.size(); ++t) {  // x[t+2] = s x[t+1] - q x[t], each row as large as the others
    const double size = std::abs(x[t]) + std::abs(x[t + 1]) + std::abs(x[t + 2]);
    if (size == 0) continue;
    const double u = x[t + 1] / size, v = -x[t] / size, w = x[t + 2] / size;
    a += u * u;
    b += u * v;
    c += v * v;
    d += u * w;
    e += v * w;
  }
  const double determinant = a * c - b * b;
  if (std::abs(determinant) < 1e-13 * a * c) return a == 0 ? 0 : std::abs(d / a);  // one mode
  const double s = (d * c - e * b) / determinant, q = (a * e - b * d) / determinant;
  const std::complex<double> half = std::sqrt(std::complex<double>(s * s / 4 - q));
  return std::max(std::abs(s / 2 + half), std::abs(s / 2 - half));
}

}  // namespace spectrum
