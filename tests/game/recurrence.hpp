// SPDX-License-Identifier: Apache-2.0
// MASHA1 and MASHA2 as one loop over plain arrays, all ranks at once: what the library is compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace game_oracle {

/// f_m(x, y) = x A_m y + b_m x - c_m y; x, y of n numbers, which follow each other. Singular values of the mean A are near 1.
struct bilinear {
  std::size_t n;
  std::uint64_t seed = 1;
  double spread = 0.6;  // how far from 1 singular values may be

  [[nodiscard]] static double drawn(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    std::uint64_t x = (a + 1) * 0x9e3779b97f4a7c15ULL ^ (b + 1) * 0xd1b54a32d192ed03ULL ^ (c + 1) * 0x8cb92ba72f3d8dd7ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return static_cast<double>((x ^ (x >> 31U)) >> 11U) * 0x1p-53 - 0.5;
  }
  [[nodiscard]] double a(int rank, std::size_t i, std::size_t j) const {
    const double own = drawn(seed + 17 + static_cast<std::uint64_t>(rank), i * n + j, 1), common = drawn(seed, i * n + j, 2);
    return (i == j ? 1.0 : 0.0) + spread * (common + own) / std::sqrt(static_cast<double>(n));
  }
  /// A rank's arrays, in the type that is computed with.
  template <class Real>
  struct part {
    std::size_t n;
    std::vector<Real> a, b, c;
    /// Adds the gradients of f by x and by y.
    void add_gradients(Real const* at, Real* to) const {
      for (std::size_t i = 0; i < n; ++i) {
        to[i] += b[i];
        to[n + i] -= c[i];
      }
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          to[i] += a[i * n + j] * at[n + j];
          to[n + j] += a[i * n + j] * at[i];
        }
      }
    }
  };
  template <class Real>
  [[nodiscard]] part<Real> of(int rank) const {
    part<Real> made{n, {}, {}, {}};
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) made.a.push_back(static_cast<Real>(static_cast<float>(a(rank, i, j))));
      const auto r = static_cast<std::uint64_t>(rank);
      made.b.push_back(static_cast<Real>(static_cast<float>(drawn(seed + r, i, 3))));
      made.c.push_back(static_cast<Real>(static_cast<float>(drawn(seed + r, i, 4))));
    }
    return made;
  }
  [[nodiscard]] std::vector<float> initial() const {
    std::vector<float> made;
    for (std::size_t i = 0; i < 2 * n; ++i) made.push_back(static_cast<float>(2 * drawn(seed, i, 5)));
    return made;
  }
};

template <class Real>
struct training {
  using vector = std::vector<Real>;
  /// What arrives of these numbers: `up`, which this rank sends to the owners; `down`, from the owners to all.
  using code = std::function<void(vector&, int rank, std::uint64_t evaluation)>;

  int ranks;
  Real step, tau;
  Real step_y = 1, bound_y = 0;  // of the one that is maximized
  std::function<bool(std::uint64_t)> moves;
  code up, down;  // empty: exact
  bool feeds_back = false;

  vector z{}, w{}, shown{}, mean_at_w{};
  std::vector<vector> at_w{}, lost{};
  std::uint64_t steps = 0, evaluations = 0;
  bool at_reference = true;
  double norm = 0;  // |(u - P(u - step F)) / step| where the operator was evaluated last

  void begin(vector const& initial) {
    z = initial;
    for (std::size_t i = 0; i < z.size(); ++i) z[i] = inside(i, z[i]);
    w = shown = z;
    at_w.assign(static_cast<std::size_t>(ranks), vector(z.size(), 0));
    lost = at_w;
  }
  /// evaluate(rank, point): the operator.
  template <class Evaluate>
  void evaluated(Evaluate&& evaluate) {
    std::vector<vector> each;
    for (int m = 0; m < ranks; ++m) each.push_back(evaluate(m, shown));
    if (at_reference) {
      at_w = each;
      mean_at_w = mean(each);
      measure(mean_at_w);
      look_ahead();
      ++evaluations;
      return;
    }
    for (std::size_t m = 0; m < each.size(); ++m) {
      for (std::size_t i = 0; i < z.size(); ++i) each[m][i] = each[m][i] - at_w[m][i] + (feeds_back ? lost[m][i] : Real(0));
      const vector whole = each[m];
      if (up) up(each[m], static_cast<int>(m), evaluations);
      for (std::size_t i = 0; i < z.size() && feeds_back; ++i) lost[m][i] = whole[i] - each[m][i];
    }
    vector f = mean(each);
    for (std::size_t i = 0; i < z.size(); ++i) f[i] = mean_at_w[i] + f[i];
    measure(f);
    for (std::size_t i = 0; i < z.size(); ++i) z[i] = moved(i, f[i]);
    at_reference = moves(steps);
    if (at_reference) {
      w = shown = z;
    } else {
      look_ahead();
    }
    ++steps;
    ++evaluations;
  }

 private:
  [[nodiscard]] vector mean(std::vector<vector> const& of) const {
    vector sum = of[0];
    for (std::size_t m = 1; m < of.size(); ++m) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of[m][i];
    }
    for (Real& one : sum) one *= 1 / static_cast<Real>(ranks);
    return sum;
  }
  [[nodiscard]] bool of_y(std::size_t i) const { return i >= z.size() / 2; }
  [[nodiscard]] Real inside(std::size_t i, Real to) const {
    return of_y(i) && bound_y != 0 ? std::min(std::max(to, -bound_y), bound_y) : to;
  }
  void measure(vector const& f) {
    double squares = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      const double by = of_y(i) ? static_cast<double>(step * step_y) : static_cast<double>(step),
                   u = static_cast<double>(shown[i]);
      double to = u - by * static_cast<double>(f[i]);
      if (of_y(i) && bound_y != 0) to = std::clamp(to, -static_cast<double>(bound_y), static_cast<double>(bound_y));
      squares += (u - to) / by * ((u - to) / by);
    }
    norm = std::sqrt(squares);
  }
  [[nodiscard]] Real moved(std::size_t i, Real by) const {
    return inside(i, w[i] + tau * (z[i] - w[i]) - (of_y(i) ? step * step_y : step) * by);
  }
  void look_ahead() {
    vector next(z.size());
    for (std::size_t i = 0; i < z.size(); ++i) next[i] = moved(i, mean_at_w[i]);
    if (down) {
      for (std::size_t i = 0; i < z.size(); ++i) next[i] -= shown[i];
      down(next, 0, evaluations);
      for (std::size_t i = 0; i < z.size(); ++i) next[i] = inside(i, next[i] + shown[i]);
    }
    shown = next;
    at_reference = false;
  }
};

}  // namespace game_oracle
