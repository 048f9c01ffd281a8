// SPDX-License-Identifier: Apache-2.0
// The model's gradients against finite differences, and the matrix products against the definition.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "gpt.hpp"

#include <cmath>
#include <random>
#include <string>

#include <doctest/doctest.h>

using toy_gpt::form;

namespace {

// As the trainer does; threads of a library that a sanitizer does not see would look like races.
[[maybe_unused]] const bool one_thread = (toy_gpt::use_one_thread_for_products(), true);

toy_gpt::batch some_text(std::size_t sequences, std::size_t context) {
  const std::string text = "The quick brown fox jumps over the lazy dog; 0123456789, and then some more of it.";
  toy_gpt::batch data{sequences, {}, {}};
  for (std::size_t s = 0; s < sequences; ++s) {
    for (std::size_t t = 0; t < context; ++t) {
      data.inputs.push_back(static_cast<unsigned char>(text[(s * 11 + t) % text.size()]));
      data.targets.push_back(static_cast<unsigned char>(text[(s * 11 + t + 1) % text.size()]));
    }
  }
  return data;
}

}  // namespace

TEST_CASE_TEMPLATE("products equal the definition in every form", Real, float, double) {
  std::mt19937 generator(3);
  std::uniform_real_distribution<Real> uniform(-1, 1);
  for (auto const& [m, n, k] : {std::array<std::size_t, 3>{1, 1, 1}, {3, 5, 7}, {33, 40, 150}, {64, 31, 129}}) {
    std::vector<Real> a(m * k), b(k * n), c(m * n);
    for (auto* v : {&a, &b, &c}) {
      for (Real& x : *v) x = uniform(generator);
    }
    for (const form fa : {form::plain, form::transposed}) {
      for (const form fb : {form::plain, form::transposed}) {
        for (const bool plainly : {true, false}) {
          std::vector<Real> got = c;
          const std::size_t lda = fa == form::plain ? k : m, ldb = fb == form::plain ? n : k;
          if (plainly) {
            toy_gpt::multiply_plainly<Real>(fa, fb, m, n, k, Real(0.5), {a.data(), lda}, {b.data(), ldb}, Real(2),
                                            {got.data(), n});
          } else {
            toy_gpt::multiply<Real>(fa, fb, m, n, k, Real(0.5), {a.data(), lda}, {b.data(), ldb}, Real(2), {got.data(), n});
          }
          double worst = 0;
          for (std::size_t i = 0; i < m; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
              double sum = 0;
              for (std::size_t p = 0; p < k; ++p) {
                sum += static_cast<double>(fa == form::plain ? a[i * lda + p] : a[p * lda + i]) *
                       static_cast<double>(fb == form::plain ? b[p * ldb + j] : b[j * ldb + p]);
              }
              worst = std::max(
                  worst, std::abs(static_cast<double>(got[i * n + j]) - (0.5 * sum + 2 * static_cast<double>(c[i * n + j]))));
            }
          }
          CHECK(worst < (sizeof(Real) == 4 ? 2e-5 : 1e-13));
        }
      }
    }
  }
}

TEST_CASE("the float exponential is exact to a few units, and to the rounding of x log2(e) for large x") {
  for (const auto& [range, limit] : {std::pair{1.0F, 4e-7}, {80.0F, 8e-6}}) {
    double worst = 0;
    for (float x = -range; x < range; x += range / 8000) {
      worst = std::max(worst, std::abs(static_cast<double>(toy_gpt::exponential(x)) / std::exp(static_cast<double>(x)) - 1));
    }
    CHECK(worst < limit);
  }
  CHECK(toy_gpt::exponential(0.0F) == 1.0F);
}

TEST_CASE("gradients of every tensor agree with finite differences in double precision") {
  const toy_gpt::shape shape{.context = 7, .layers = 2, .width = 12, .heads = 3};
  toy_gpt::gpt<double> model(shape);
  auto const data = some_text(3, shape.context);
  auto parameters = model.initial(5);
  std::mt19937 generator(11);
  std::normal_distribution<double> normal(0, 0.15);
  for (double& p : parameters) p += normal(generator);     // away from the symmetric start
  std::vector<double> gradients(parameters.size(), 0.25);  // the model must ADD
  const double loss = model.add_gradients(data, parameters, gradients);
  CHECK(loss == doctest::Approx(model.loss(data, parameters)).epsilon(1e-14));
  for (std::size_t k = 0; k < model.layout().tensor_count(); ++k) {
    auto const tensor = model.layout()[k];
    const std::string name(tensor.name);
    CAPTURE(name);
    double worst = 0, largest = 0;
    const std::size_t stride = std::max<std::size_t>(1, tensor.size / 40);
    for (std::size_t i = 0; i < tensor.size; i += stride) {
      const std::size_t at = tensor.offset + (name == "wte" ? (i % 12) + 12 * data.inputs[i % data.inputs.size()] : i);
      constexpr double h = 1e-5;
      const double kept = parameters[at];
      parameters[at] = kept + h;
      const double up = model.loss(data, parameters);
      parameters[at] = kept - h;
      const double down = model.loss(data, parameters);
      parameters[at] = kept;
      worst = std::max(worst, std::abs(gradients[at] - 0.25 - (up - down) / (2 * h)));
      largest = std::max(largest, std::abs(gradients[at] - 0.25));
    }
    CHECK(worst < 2e-9);
    CHECK(largest > 1e-6);  // the tensor matters
  }
}

TEST_CASE("float and double models agree") {
  const toy_gpt::shape shape{.context = 16, .layers = 2, .width = 32, .heads = 4};
  toy_gpt::gpt<double> exact(shape);
  toy_gpt::gpt<float> model(shape);
  auto const data = some_text(4, shape.context);
  auto const p = exact.initial(9);
  const std::vector<float> q(p.begin(), p.end());
  std::vector<double> g(p.size());
  std::vector<float> f(p.size());
  CHECK(model.add_gradients(data, q, f) == doctest::Approx(exact.add_gradients(data, p, g)).epsilon(1e-5));
  double worst = 0;
  for (std::size_t i = 0; i < p.size(); ++i) worst = std::max(worst, std::abs(g[i] - static_cast<double>(f[i])));
  CHECK(worst < 1e-5);
}

TEST_CASE("causal: what follows a position does not depend on what comes after it") {
  const toy_gpt::shape shape{.context = 8, .layers = 2, .width = 16, .heads = 2};
  toy_gpt::gpt<double> model(shape);
  auto const p = model.initial(1);
  const std::string text = "abcdefgh";
  std::vector<unsigned char> bytes(text.begin(), text.end());
  auto const at_three = model.logits_after(std::span<unsigned char const>(bytes).first(3), p);
  const std::vector<double> before(at_three.begin(), at_three.end());
  std::vector<unsigned char> changed = {'a', 'b', 'c'};
  auto const again = model.logits_after(changed, p);
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(before[i] == again[i]);
}
