// SPDX-License-Identifier: Apache-2.0
// Where each schedule is stable, and how fast it goes: the real engine on parabolas against the roots of its polynomial
// (docs/stability.md).
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/parabolas.hpp"
#include "support/problem.hpp"
#include "support/spectrum.hpp"
#include "support/thorough.hpp"

namespace {

using spectrum::point;
constexpr double betas[] = {0, 0.5, 0.8, 0.9};

/// Calls visit(name, schedule, how many rounds a step has, matrix of a point) for everything that has a closed form.
template <class Visitor>
void every_form(Visitor&& visit) {
  const auto with = [&](std::string const& name, auto schedule, std::size_t rounds, auto matrix) {
    CAPTURE(name);
    visit(schedule, rounds, matrix);
  };
  with("synchronous", acco::synchronous{}, 1, [](point at) { return spectrum::synchronous(at); });
  with("delayed", acco::delayed{}, 1, [](point at) { return spectrum::delayed(at); });
  with("weight_prediction", acco::weight_prediction{}, 1, [](point at) { return spectrum::weight_prediction(at); });
  for (const double ahead : {0.5, 1.0}) {
    with("extrapolation", acco::delayed{.predictor = acco::extrapolation{.ahead = ahead}}, 1,
         [ahead](point at) { return spectrum::extrapolation(at, ahead); });
  }
  with("velocity", acco::delayed{.predictor = acco::velocity{.ahead = 1.2, .decay = 0.3}}, 1,
       [](point at) { return spectrum::velocity(at, 1.2, 0.3); });
  for (const unsigned first : {1U, 2U, 3U, 7U}) {
    const double share = first / (first + 1.0);
    with("two_phase", acco::two_phase{.pace = acco::fixed_pace{.first = first, .second = 1}}, 2,
         [share](point at) { return spectrum::two_phase(at, share); });
  }
}

double closed_limit_of_two_phase(double beta, double first) { return std::min(2 * (1 + beta), 1 / (1 - first)); }

}  // namespace

TEST_CASE("the closed forms of docs/stability.md are the matrices' own") {
  for (const double b : betas) {
    for (const double k : {0.01, 0.3, 0.9, 1.7, 3.5}) {
      CAPTURE(b);
      CAPTURE(k);
      const auto same = [](spectrum::matrix const& a, spectrum::polynomial form) {
        const auto found = spectrum::characteristic(a);
        form.resize(found.size(), 0.0);  // roots at zero
        for (std::size_t i = 0; i < form.size(); ++i) CHECK(found[i] == doctest::Approx(form[i]).epsilon(1e-12).scale(1));
      };
      const spectrum::polynomial synchronous{1, -(1 + b - k), b};
      same(spectrum::synchronous({k, b}), synchronous);
      same(spectrum::delayed({k, b}), {1, -(1 + b), b + k});
      same(spectrum::weight_prediction({k, b}), {1, -(1 + b), b + k * (2 + b), -k * (1 + 2 * b), k * b});
      for (const double p : {0.5, 0.75, 0.875})
        same(spectrum::two_phase({k, b}, p), spectrum::product(synchronous, {1, (1 - p) * k}));
    }
  }
}

TEST_CASE("limits: in closed form, and where it has none as the page gives them") {
  for (const double b : betas) {
    CAPTURE(b);
    CHECK(spectrum::limit([](point at) { return spectrum::synchronous(at); }, b) == doctest::Approx(2 * (1 + b)).epsilon(1e-6));
    CHECK(spectrum::limit([](point at) { return spectrum::delayed(at); }, b) == doctest::Approx(1 - b).epsilon(1e-6));
    for (const double p : {0.5, 2.0 / 3, 0.75, 0.875}) {
      CHECK(spectrum::limit([p](point at) { return spectrum::two_phase(at, p); }, b) ==
            doctest::Approx(closed_limit_of_two_phase(b, p)).epsilon(1e-6));
    }
  }
  const auto prediction = [](double b) { return spectrum::limit([](point at) { return spectrum::weight_prediction(at); }, b); };
  CHECK(prediction(0) == doctest::Approx(0.618).epsilon(1e-3));
  CHECK(prediction(0.5) == doctest::Approx(0.522).epsilon(1e-3));
  CHECK(prediction(0.9) == doctest::Approx(0.500).epsilon(1e-3));
}

TEST_CASE("the library's iterates grow and shrink by the largest root") {
  std::size_t compared = 0;
  every_form([&](auto const& schedule, std::size_t rounds, auto const& matrix) {
    for (const double b : betas) {
      if (!thorough() && b != 0.5) continue;
      CAPTURE(b);
      const double most = spectrum::limit(matrix, b);
      std::vector<double> k;
      for (std::size_t i = 0; i < (thorough() ? 60 : 20); ++i)
        k.push_back(most * (0.02 + 1.13 * problem::unit(i * 31 + static_cast<std::size_t>(b * 10))));
      const auto of = parabolas::after_commits(parabolas::train(schedule, b, k, 400 * rounds));
      for (std::size_t i = 0; i < k.size(); ++i) {
        const auto z = spectrum::roots(spectrum::characteristic(matrix(point{k[i], b})));
        // modes of nearly the same size take long to part: of a pair that is no conjugate one, and of a third
        const auto near = [&](std::size_t other) { return z.size() > other && std::abs(z[other]) > 0.95 * std::abs(z[0]); };
        if (near(2) || (near(1) && std::abs(z[0].imag()) < 0.02 * std::abs(z[0]))) continue;
        CAPTURE(k[i]);
        CHECK(spectrum::growth(of[i]) == doctest::Approx(std::abs(z[0])).epsilon(1e-4));
        ++compared;
      }
    }
  });
  CHECK(compared > (thorough() ? 1500 : 100));  // of 2,400, or 200
}

TEST_CASE("3 % below the limit it converges, 3 % beyond it diverges") {
  every_form([&](auto const& schedule, std::size_t rounds, auto const& matrix) {
    for (const double b : betas) {
      if (!thorough() && b != 0.8) continue;
      CAPTURE(b);
      const double most = spectrum::limit(matrix, b);
      const auto at = [&](double k) {  // many ranks sum what one has: a tenth of the time
        return parabolas::after_commits(
            parabolas::train(schedule, b, {k}, (thorough() ? 12000 : 3000) * rounds, thorough() ? 2 : 1));
      };
      const auto below = at(0.97 * most), beyond = at(1.03 * most);
      const auto size = [](std::vector<double> const& x, std::size_t end) {
        double largest = 0;
        for (std::size_t t = end - 20; t < end; ++t) largest = std::max(largest, std::abs(x[t]));
        return largest;
      };
      CHECK(size(below[0], below[0].size()) < 0.01 * size(below[0], 60));
      CHECK(size(beyond[0], beyond[0].size()) > 100 * size(beyond[0], 60));
    }
  });
}

TEST_CASE("two_phase: the error of a prediction is the last one's times -(1 - p) k, to rounding") {
  for (const unsigned first : {1U, 3U, 7U}) {
    const double second = 1 / (first + 1.0);
    for (const double b : betas) {
      std::vector<double> k;
      for (std::size_t i = 0; i < 40; ++i) k.push_back(2.5 * problem::unit(i * 7 + 1));
      const auto all = parabolas::train(acco::two_phase{.pace = acco::fixed_pace{.first = first, .second = 1}}, b, k, 80);
      double errors = 0;
      // the report after an estimate shows theta~[t+1], the next one theta[t+1]
      for (std::size_t i = 0; i < k.size(); ++i) {
        for (std::size_t t = 0; t + 3 < all.size(); t += 2) {
          REQUIRE_FALSE(all[t].commits);
          REQUIRE(all[t + 1].commits);
          const auto error = [&](std::size_t at) { return all[at + 1].parameters[i] - all[at].parameters[i]; };
          const double size =
              std::abs(all[t].parameters[i]) + std::abs(all[t + 1].parameters[i]) + std::abs(all[t + 3].parameters[i]);
          if (t < 2 * (24 / (first + 1) + 2)) continue;  // the pushes are over
          CHECK(std::abs(error(t + 2) + second * k[i] * error(t)) <= 1e-14 * (1 + size));
          errors = std::max(errors, std::abs(error(t)) / size);
        }
      }
      CHECK(errors > 1e-3);  // there was something to see
    }
  }
}

TEST_CASE("two_phase with plain gradients and steps of at most 1 / (2 L): ACCO's potential never grows") {
  // V = f(theta) + step L f(theta~) + L (theta - theta~)^2, arXiv 2406.02613, appendix; halves, on random parabolas
  for (std::size_t seed = 0; seed < 20; ++seed) {
    std::vector<double> curvature;
    double most = 0;
    for (std::size_t i = 0; i < 30; ++i) {
      curvature.push_back(problem::unit(seed * 100 + i) * 3);
      most = std::max(most, curvature.back());
    }
    const double step = (0.1 + 0.9 * problem::unit(seed * 17 + 5)) / (2 * most);
    std::vector<double> k;
    for (const double each : curvature) k.push_back(step * each);
    const auto all = parabolas::train(acco::two_phase{.pace = acco::fixed_pace{1}}, 0, k, 200);
    const auto potential = [&](std::size_t t) {
      double sum = 0;
      for (std::size_t i = 0; i < k.size(); ++i) {
        const double guess = all[t].parameters[i], theta = all[t + 1].parameters[i];
        sum += curvature[i] / 2 * (theta * theta + step * most * guess * guess) + most * (theta - guess) * (theta - guess);
      }
      return sum;
    };
    for (std::size_t t = 24; t + 3 < all.size(); t += 2) CHECK(potential(t + 2) <= potential(t) * (1 + 1e-14));
  }
}
