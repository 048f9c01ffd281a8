// SPDX-License-Identifier: Apache-2.0
// bench_demo models: on images that are drawn here, a convolutional network, and a convex problem of known optimum.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "matrix.hpp"
#include "tuning.hpp"

namespace {

using acco::threads_backend;
using toy_gpt::form;
constexpr std::size_t side = 16, classes = 10, micro_batch = 4;
constexpr int ranks = 4;
using image = std::array<float, side * side>;
struct data_set {
  std::vector<image> images;
  std::vector<std::size_t> labels;
};

/// A class is a line through four points; an image is that line with its points moved, somewhere, under noise.
data_set drawn(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 shapes(7), random(seed);
  const auto uniform = [](std::mt19937_64& g, double from, double to) {
    return from + (to - from) * static_cast<double>(g() >> 11U) * 0x1p-53;
  };
  double points[classes][4][2];
  for (auto& glyph : points)
    for (auto& point : glyph)
      for (double& x : point) x = uniform(shapes, 3, 12);
  data_set found;
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t label = random() % classes;
    const double shift[] = {uniform(random, -2, 2), uniform(random, -2, 2)};
    double p[4][2];
    for (std::size_t k = 0; k < 4; ++k)
      for (std::size_t d = 0; d < 2; ++d) p[k][d] = points[label][k][d] + shift[d] + uniform(random, -1, 1);
    image& one = found.images.emplace_back();
    for (std::size_t i = 0; i < one.size(); ++i) {
      double nearest = 1e9;  // its square
      for (std::size_t k = 0; k < 3; ++k) {
        const double x = static_cast<double>(i % side) - p[k][0], y = static_cast<double>(i / side) - p[k][1];
        const double dx = p[k + 1][0] - p[k][0], dy = p[k + 1][1] - p[k][1];
        const double along = std::clamp((x * dx + y * dy) / (dx * dx + dy * dy + 1e-9), 0.0, 1.0);
        nearest = std::min(nearest, (x - along * dx) * (x - along * dx) + (y - along * dy) * (y - along * dy));
      }
      one[i] = static_cast<float>(std::exp(-nearest) - 0.2 + uniform(random, -0.7, 0.7));
    }
    found.labels.push_back(label);
  }
  return found;
}

/// Every `stride`-th square of `reach` by `reach` times a matrix, and a bias: a convolution; all of it: a full layer.
struct layer {
  std::size_t across, channels, reach, stride, outputs;
  [[nodiscard]] std::size_t places() const { return (across - reach) / stride + 1; }  // along each side
  [[nodiscard]] std::size_t inputs() const { return reach * reach * channels; }
  [[nodiscard]] std::size_t size() const { return outputs * (inputs() + 1); }
  /// f(where numbers lie in the patches, where in what comes in, how many).
  template <class F>
  void each_run(std::size_t count, F&& f) const {
    std::size_t at = 0;
    for (std::size_t n = 0; n < count; ++n)
      for (std::size_t y = 0; y < places(); ++y)
        for (std::size_t x = 0; x < places(); ++x)
          for (std::size_t v = 0; v < reach; ++v, at += reach * channels)
            f(at, ((n * across + y * stride + v) * across + x * stride) * channels, reach * channels);
  }
};
/// With ReLU between layers, and softmax behind them; `penalty` / 2 times the square of its parameters beside the loss.
struct network {
  std::vector<layer> layers;
  double penalty = 0;
  std::vector<std::vector<float>> patches = {}, values = {};
  std::vector<float> error = {}, of_patches = {};

  [[nodiscard]] std::size_t size() const {
    std::size_t all = 0;
    for (layer const& each : layers) all += each.size();
    return all;
  }
  [[nodiscard]] std::vector<float> initial(std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<float> all;
    for (layer const& each : layers)
      for (std::size_t i = 0; i < each.size(); ++i) {
        const double x = static_cast<double>(random() >> 11U) * 0x1p-52 - 1;
        const bool zero = i >= each.inputs() * each.outputs || layers.size() == 1;  // biases; what is convex
        all.push_back(zero ? 0 : static_cast<float>(x * std::sqrt(6.0 / static_cast<double>(each.inputs()))));
      }
    return all;
  }
  /// Adds the gradient, where one is wanted, of the summed loss; returns that sum, and how many were right.
  std::pair<double, double> add(std::vector<float> const& x, std::span<std::size_t const> labels, std::span<float const> w,
                                std::span<float> gradients) {
    patches.resize(layers.size());
    values.resize(layers.size());
    forward(x, labels.size(), w);
    double sum = 0, right = 0;
    error = values.back();
    for (std::size_t n = 0; n < labels.size(); ++n) {
      float* const z = error.data() + n * classes;
      float* const most = std::max_element(z, z + classes);
      right += static_cast<std::size_t>(most - z) == labels[n] ? 1 : 0;
      double all = 0;
      const float shift = *most, own = z[labels[n]];
      for (std::size_t k = 0; k < classes; ++k) all += std::exp(static_cast<double>(z[k] - shift));
      sum += std::log(all) - static_cast<double>(own - shift);
      for (std::size_t k = 0; k < classes; ++k)
        z[k] = static_cast<float>(std::exp(static_cast<double>(z[k] - shift)) / all) - (k == labels[n] ? 1.0F : 0.0F);
    }
    const auto count = static_cast<double>(labels.size());
    for (std::size_t i = 0; i < w.size() && penalty > 0; ++i) {
      sum += count * penalty / 2 * static_cast<double>(w[i]) * static_cast<double>(w[i]);
      if (!gradients.empty()) gradients[i] += static_cast<float>(count * penalty) * w[i];
    }
    if (!gradients.empty()) backward(labels.size(), w, gradients);
    return {sum, right};
  }

 private:
  void forward(std::vector<float> const& x, std::size_t count, std::span<float const> w) {
    for (std::size_t l = 0; l < layers.size(); ++l) {
      layer const& one = layers[l];
      const std::size_t rows = count * one.places() * one.places(), in = one.inputs(), out = one.outputs;
      std::vector<float> const& from = l == 0 ? x : values[l - 1];
      patches[l].resize(rows * in);
      one.each_run(count, [&](std::size_t at, std::size_t i, std::size_t n) { std::copy_n(&from[i], n, &patches[l][at]); });
      values[l].resize(rows * out);
      for (std::size_t r = 0; r < rows; ++r) std::copy_n(w.data() + in * out, out, values[l].data() + r * out);
      toy_gpt::multiply<float>(form::plain, form::transposed, rows, out, in, 1, {patches[l].data(), in}, {w.data(), in}, 1,
                               {values[l].data(), out});
      for (std::size_t i = 0; i < values[l].size() && l + 1 < layers.size(); ++i) values[l][i] = std::max(values[l][i], 0.0F);
      w = w.subspan(one.size());
    }
  }
  void backward(std::size_t count, std::span<float const> w, std::span<float> gradients) {
    for (std::size_t l = layers.size(), end = w.size(); l-- > 0;) {
      layer const& one = layers[l];
      const std::size_t rows = count * one.places() * one.places(), in = one.inputs(), out = one.outputs;
      float* const g = gradients.data() + (end -= one.size());
      toy_gpt::multiply<float>(form::transposed, form::plain, out, in, rows, 1, {error.data(), out}, {patches[l].data(), in}, 1,
                               {g, in});
      for (std::size_t i = 0; i < rows * out; ++i) g[in * out + i % out] += error[i];
      if (l == 0) return;
      of_patches.resize(rows * in);
      toy_gpt::multiply<float>(form::plain, form::plain, rows, in, out, 1, {error.data(), out}, {w.data() + end, in}, 0,
                               {of_patches.data(), in});
      error.assign(values[l - 1].size(), 0.0F);
      one.each_run(count, [&](std::size_t at, std::size_t i, std::size_t n) {
        for (std::size_t k = 0; k < n; ++k) error[i + k] += of_patches[at + k];
      });
      for (std::size_t i = 0; i < error.size(); ++i) error[i] = values[l - 1][i] > 0 ? error[i] : 0;
    }
  }
};

/// The mean loss, the share that is right, and where `gradients` has room, the mean gradient.
std::pair<double, double> mean_over(network& model, data_set const& data, std::span<float const> w, std::span<float> gradients) {
  std::vector<float> x;
  for (image const& each : data.images) x.insert(x.end(), each.begin(), each.end());
  const auto [loss, right] = model.add(x, data.labels, w, gradients);
  const auto count = static_cast<double>(data.labels.size());
  for (float& g : gradients) g /= static_cast<float>(count);
  return {loss / count, right / count};
}

/// The least loss of what is strongly convex, by Nesterov's method; and how far above it this may be, its gradient's
/// square over twice the penalty.
std::pair<double, double> least(network model, data_set const& data) {
  double squares = 1;  // of an image and its bias; the curvature is at most half of that, and the penalty
  for (image const& each : data.images)
    for (const float x : each)
      squares += static_cast<double>(x) * static_cast<double>(x) / static_cast<double>(data.images.size());
  const double curvature = squares / 2 + model.penalty, root = std::sqrt(curvature / model.penalty);
  const auto step = static_cast<float>(1 / curvature), on = static_cast<float>((root - 1) / (root + 1));
  std::vector<float> x = model.initial(1), y = x, gradient(x.size());
  for (int k = 0;; ++k) {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    const double loss = mean_over(model, data, y, gradient).first;
    double square = 0;
    for (const float g : gradient) square += static_cast<double>(g) * static_cast<double>(g);
    if (const double above = square / (2 * model.penalty); above < 1e-6 || k == 2000) return {loss, above};
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float next = y[i] - step * gradient[i];
      y[i] = next + on * (next - x[i]);
      x[i] = next;
    }
  }
}

struct outcome {
  double loss = 0, right = 0, bytes = 0;  // of `judge`; that a rank sends, a parameter and step
};
outcome train(network const& of, data_set const& data, data_set const& judge, double samples, asked::maker const& make,
              double rate, std::uint64_t seed) {
  outcome found;
  const auto micro_batches = static_cast<std::size_t>(samples) / micro_batch / ranks;
  threads_backend::run(ranks, [&](threads_backend const& world) {
    toy_gpt::use_one_thread_for_products();
    toy_gpt::flush_subnormal_numbers();
    network model = of;
    auto training = make(
        world, acco::parameter_layout(model.size()),
        {.clip_norm = 1, .learning_rate = acco::warmup_cosine{.warmup = samples / 20, .total = samples, .final_factor = 0.01}},
        rate);
    training.initialize(model.initial(seed));
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(world.rank()));
    for (std::size_t t = 0; t < micro_batches; ++t) {
      std::vector<float> x;
      std::vector<std::size_t> labels;
      for (std::size_t k = 0; k < micro_batch; ++k) {
        const std::size_t n = random() % data.images.size();
        x.insert(x.end(), data.images[n].begin(), data.images[n].end());
        labels.push_back(data.labels[n]);
      }
      const double loss = model.add(x, labels, training.parameters(), training.gradients()).first;
      (void)training.accumulated(static_cast<double>(micro_batch), loss);
    }
    training.finish();
    if (world.rank() != 0) return;
    std::tie(found.loss, found.right) = mean_over(model, judge, training.parameters(), {});
    found.bytes = static_cast<double>(training.totals().bytes_sent) / static_cast<double>(model.size() * training.steps());
  });
  return found;
}

}  // namespace

void asked::models(question const& a) {
  toy_gpt::use_one_thread_for_products();
  const data_set many = drawn(2048, 1), others = drawn(512, 2), few = drawn(512, 3);
  const network convolutional{.layers = {{side, 1, 4, 2, 16}, {7, 16, 3, 2, 32}, {3, 32, 3, 1, 64}, {1, 64, 1, 1, classes}}};
  const network regression{.layers = {{side, 1, side, 1, classes}}, .penalty = 0.03};
  const auto [optimum, uncertain] = least(regression, few);
  std::printf(
      "4 ranks, %.0f images of %zu classes in batches of 128; a convolutional network of %zu parameters, and logistic regression "
      "with %zu, of which the least loss is %.6f (at most %.0e less)\n\n"
      "| training | network: validation loss | right | best rate | bytes sent a parameter and step | regression: loss above the "
      "least | best rate |\n|---|---|---|---|---|---|---|\n",
      a.samples, classes, convolutional.size(), regression.size(), optimum, uncertain);
  std::fflush(stdout);
  const auto row = [&](char const* name, maker const& make, double for_network, double for_regression) {
    const auto tuned_on = [&](network const& model, data_set const& data, data_set const& judge, double factor) {
      return toy_gpt::tune(a.rates_times(factor), a.seeds, [&](double rate, std::uint64_t seed) {
        try {
          return train(model, data, judge, a.samples, make, rate, seed);
        } catch (acco::error const&) {
          return outcome{std::log(10.0), 0.1, 0};  // diverged: of a guess
        }
      });
    };
    const auto deep = tuned_on(convolutional, many, others, for_network), convex = tuned_on(regression, few, few, for_regression);
    std::printf("| %s | %.4f | %.1f %% | %.2g | %.3f | %.5f | %.2g |\n", name, deep.mean(&outcome::loss),
                100 * deep.mean(&outcome::right), deep.rate, deep.mean(&outcome::bytes), convex.mean(&outcome::loss) - optimum,
                convex.rate);
    std::fflush(stdout);
  };
  constexpr acco::adamw free{.beta2 = 0.99};
  row("adamw", of(acco::synchronous{.pace = eight}, free), 3 * of_adamw, 3 * of_adamw);
  row("signum, momentum 0.9", of(acco::synchronous{.pace = eight}, acco::lion{.beta1 = 0.9, .beta2 = 0.9}), 3, 9);
  row("lion", of(acco::synchronous{.pace = eight}, acco::lion{}), 3, 9);
  row("DeMo as published", of(acco::synchronous{.commit = published, .pace = eight}, signs(0)), 3, 9);
  row("DeMo, sharded", of(acco::synchronous{.commit = sharded, .pace = eight}, signs(0)), 3, 9);
  row("DeMo, sharded, delayed", of(acco::delayed{.commit = sharded, .pace = eight}, signs(0)), 3, 9);
  row("DeMo, sharded, two_phase", of(acco::two_phase{.estimate = ahead, .commit = sharded, .pace = split}, signs(0)), 3, 9);
}
