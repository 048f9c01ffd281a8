// SPDX-License-Identifier: Apache-2.0
// Two functions of ensmallen's users, logistic regression and a network of one hidden layer, minimized on ranks that
// are threads of this process or processes connected by Gloo. `--check` compares with Adam and momentum written out.
//   ensmallen_functions [--ranks N] [--epochs N] [--check | --gloo]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "acco_optimizer.hpp"

#if defined(EXAMPLE_GLOO)
#include <acco/gloo.hpp>
#endif

namespace {

constexpr std::size_t features = 8, hidden = 6, all_points = 550;

/// Labelled points; a rank has a share of them. The shares of several ranks are not equal.
struct data_set {
  arma::mat points;
  arma::rowvec labels;
  std::mt19937_64 bits;

  data_set(int rank, int ranks) : bits(17) {
    points.set_size(features, all_points);
    labels.set_size(all_points);
    for (double& each : points) each = uniform();
    for (std::size_t k = 0; k < all_points; ++k) labels[k] = points(0, k) * points(1, k) + points(2, k) > 0 ? 1 : 0;
    const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks), unit = all_points / (n * (n + 1) / 2);
    const std::size_t first = unit * (r * (r + 1) / 2), last = r + 1 == n ? all_points : first + unit * (r + 1);
    points = arma::mat(points.cols(first, last - 1));
    labels = arma::rowvec(labels.cols(first, last - 1));
  }
  double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-52 - 1; }

  // what both functions are made of
  [[nodiscard]] std::size_t NumFunctions() const { return points.n_cols; }
  void Shuffle() {
    for (arma::uword i = points.n_cols; i > 1; --i) {
      const arma::uword other = bits() % i;
      points.swap_cols(i - 1, other);
      labels.swap_cols(i - 1, other);
    }
  }
};

/// log(1 + exp(-z)) of the right answer's z, with a penalty; `x` has a bias and the weights.
struct logistic_regression : data_set {
  using data_set::data_set;
  static constexpr double penalty = 0.01;
  [[nodiscard]] arma::rowvec logits(arma::mat const& x, std::size_t i, std::size_t count) const {
    return x(0, 0) + x.tail_rows(features).t() * points.cols(i, i + count - 1);
  }
  [[nodiscard]] double Evaluate(arma::mat const& x, std::size_t i, std::size_t count) const {
    const arma::rowvec z = logits(x, i, count) % (2 * labels.cols(i, i + count - 1) - 1);
    return arma::accu(arma::log1p(arma::exp(-z))) + static_cast<double>(count) * penalty / 2 * arma::accu(arma::square(x));
  }
  void Gradient(arma::mat const& x, std::size_t i, arma::mat& g, std::size_t count) const {
    const arma::rowvec error = 1 / (1 + arma::exp(-logits(x, i, count))) - labels.cols(i, i + count - 1);
    g = static_cast<double>(count) * penalty * x;
    g(0, 0) += arma::accu(error);
    g.tail_rows(features) += points.cols(i, i + count - 1) * error.t();
  }
  [[nodiscard]] static arma::mat initial() { return arma::mat(features + 1, 1, arma::fill::zeros); }
};

/// A network whose matrices lie in one column, as mlpack keeps them; squared errors.
struct small_network : data_set {
  using data_set::data_set;
  template <class Number>
  static arma::mat part(Number* memory, std::size_t offset, std::size_t rows, std::size_t columns) {
    return arma::mat(const_cast<double*>(memory) + offset, rows, columns, false, true);
  }
  double EvaluateWithGradient(arma::mat const& x, std::size_t i, arma::mat& g, std::size_t count) const {
    g.zeros(x.n_rows, x.n_cols);
    const arma::mat weights = part(x.memptr(), 0, hidden, features + 1),
                    out = part(x.memptr(), hidden * (features + 1), 1, hidden);
    arma::mat to_weights = part(g.memptr(), 0, hidden, features + 1),
              to_out = part(g.memptr(), hidden * (features + 1), 1, hidden);
    const arma::mat in = arma::join_cols(points.cols(i, i + count - 1), arma::rowvec(count, arma::fill::ones));
    const arma::mat active = arma::tanh(weights * in);
    const arma::mat error = out * active - labels.cols(i, i + count - 1);
    to_out += error * active.t();
    to_weights += ((out.t() * error) % (1 - arma::square(active))) * in.t();
    return arma::accu(arma::square(error)) / 2;
  }
  [[nodiscard]] static arma::mat initial() {
    arma::mat x(hidden * (features + 2), 1);
    std::mt19937_64 bits(3);
    for (double& each : x) each = static_cast<double>(bits() >> 11U) * 0x1p-53 - 0.5;
    return x;
  }
};

/// A callback.
struct objectives {
  std::vector<double> of_epochs = {};
  std::size_t steps = 0, at_most = 1000;
  template <class Optimizer, class Function>
  void StepTaken(Optimizer&, Function&, arma::mat const&) {
    ++steps;
  }
  template <class Optimizer, class Function>
  bool EndEpoch(Optimizer&, Function&, arma::mat const&, std::size_t epoch, double objective) {
    of_epochs.push_back(objective);
    return epoch == at_most;
  }
};

template <class Function, class Backend>
void run(char const* name, int epochs, Backend const& world) {
  Function function(world.rank(), world.size());
  arma::mat x = Function::initial();
  objectives seen;
  AccoOptimizer adam(world, acco::adamw{.learning_rate = 0.01, .weight_decay = 0},
                     {.batchSize = 32, .maxIterations = static_cast<std::size_t>(epochs) * all_points},
                     acco::two_phase{.pace = acco::fixed_pace{1}});
  adam.Optimize(function, x, seen);
  if (world.rank() == 0)
    std::printf("%s: objective of a point %.4f, after the first epoch %.4f; %zu steps on %d ranks\n", name, seen.of_epochs.back(),
                seen.of_epochs.front(), seen.steps, world.size());
}

template <class Backend>
void run_both(int epochs, Backend const& world) {
  run<logistic_regression>("logistic regression", epochs, world);
  run<small_network>("network", epochs, world);
}

void demand(bool holds, std::string const& what) {
  if (!holds) throw std::runtime_error("check failed: " + what);
}

/// What an optimizer of ensmallen does, on one process: every step takes the batches of all ranks, each from its share.
template <class Function, class Update>
arma::mat minimize_plainly(int ranks, std::size_t batch, int epochs, Update&& update) {
  std::vector<Function> shares;
  for (int rank = 0; rank < ranks; ++rank) shares.emplace_back(rank, ranks);
  arma::mat x = Function::initial(), one, all;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (std::size_t at = 0; at < all_points; at += batch) {
      all.zeros(x.n_rows, x.n_cols);
      double count = 0;
      for (auto& share : shares) {
        if (at >= share.NumFunctions()) continue;
        const std::size_t size = std::min(batch, share.NumFunctions() - at);
        if constexpr (requires { share.EvaluateWithGradient(x, at, one, size); }) {
          share.EvaluateWithGradient(x, at, one, size);
        } else {
          share.Gradient(x, at, one, size);
        }
        all += one;
        count += static_cast<double>(size);
      }
      if (count != 0) update(x, arma::mat(all / count));
    }
    for (auto& share : shares) share.Shuffle();
  }
  return x;
}

struct plain_adam {  // Kingma and Ba, arXiv 1412.6980, algorithm 1
  arma::mat m = {}, v = {};
  int count = 0;
  void operator()(arma::mat& x, arma::mat const& g) {
    if (count++ == 0) m = v = arma::mat(arma::size(x), arma::fill::zeros);
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * arma::square(g);
    x -= 0.01 * (m / (1 - std::pow(0.9, count))) / (arma::sqrt(v / (1 - std::pow(0.999, count))) + 1e-8);
  }
};
struct plain_momentum {
  arma::mat b = {};
  void operator()(arma::mat& x, arma::mat const& g) {
    if (b.is_empty()) b = arma::mat(arma::size(x), arma::fill::zeros);
    b = 0.9 * b + g;
    x -= 0.05 * b;
  }
};

/// Of a rank.
template <class Function>
std::size_t most_points(int ranks) {
  std::size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, Function(rank, ranks).NumFunctions());
  return most;
}

template <class Function, class Plain, class Rule>
void compare(char const* name, Rule const& rule) {
  constexpr std::size_t batch = 32, epochs = 5;
  for (const int ranks : {1, 2, 3}) {
    arma::mat const plain = minimize_plainly<Function>(ranks, batch, epochs, Plain{});
    double apart = 0, moved = arma::abs(plain - Function::initial()).max();
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
      Function function(world.rank(), ranks);
      arma::mat x = Function::initial();
      double const* const memory = x.memptr();
      if (world.rank() != 0) x.fill(7);  // rank 0's counts
      objectives seen{.at_most = world.rank() == ranks - 1 ? epochs : 1000};
      AccoOptimizer(world, rule, {.batchSize = batch, .tolerance = 0}).Optimize(function, x, seen);
      demand(x.memptr() == memory && seen.of_epochs.size() == epochs, "one rank's callback ends the optimization of all");
      demand(seen.of_epochs.back() < 0.9 * seen.of_epochs.front(), "the objective has become smaller");
      demand(seen.steps == epochs * ((most_points<Function>(ranks) + batch - 1) / batch), "every step was told");
      if (world.rank() == 0) apart = arma::abs(x - plain).max();
    });
    std::printf("%s on %d ranks and on one process: largest difference %.1e, of weights that moved by up to %.1f\n", name, ranks,
                apart, moved);
    demand(apart < 1e-10 && moved > 0.1, "ranks minimize like one process");
  }
}

template <class Function>
void check_gradient() {
  Function function(0, 1);
  arma::mat x = Function::initial() + 0.1, g;
  const auto value = [&]() -> double {
    arma::mat ignored;
    if constexpr (requires { function.EvaluateWithGradient(x, 5, ignored, 20); }) {
      return function.EvaluateWithGradient(x, 5, g, 20);
    } else {
      function.Gradient(x, 5, g, 20);
      return function.Evaluate(x, 5, 20);
    }
  };
  (void)value();
  arma::mat const by_hand = g;
  for (double& each : x) {
    const double there = each;
    each = there + 1e-5;
    const double more = value();
    each = there - 1e-5;
    const double slope = (more - value()) / 2e-5;
    each = there;
    demand(std::abs(slope - by_hand[static_cast<arma::uword>(&each - x.memptr())]) < 1e-6, "gradients are slopes");
  }
}

/// When an optimization ends, on two ranks whose rounds are hidden, and whom it tells.
void check_endings() {
  acco::threads_backend::run(2, [&](acco::threads_backend const& world) {
    const auto ended = [&](std::size_t points, double tolerance) {
      logistic_regression function(world.rank(), 2);
      arma::mat x = logistic_regression::initial();
      objectives seen;
      AccoOptimizer(world, acco::adamw{.learning_rate = 0.01, .weight_decay = 0},
                    {.batchSize = 32, .maxIterations = points, .tolerance = tolerance},
                    acco::two_phase{.pace = acco::fixed_pace{.first = 2, .second = 1}})
          .Optimize(function, x, seen);
      return seen;
    };
    // Seven micro-batches, three are a step: one has landed, one is under way, and what has begun is dropped.
    auto const limited = ended(all_points * 7 / 10, 0);
    demand(limited.steps == 2, "maxIterations counts the points of all ranks, and each step is told");
    auto const settled = ended(0, 1e9);
    demand(settled.of_epochs.size() == 2, "it ends where two epochs are as near as the tolerance");
  });
}

void check() {
  check_gradient<logistic_regression>();
  check_gradient<small_network>();
  compare<logistic_regression, plain_adam>("logistic regression, Adam", acco::adamw{.learning_rate = 0.01, .weight_decay = 0});
  compare<small_network, plain_adam>("network, Adam", acco::adamw{.learning_rate = 0.01, .weight_decay = 0});
  compare<small_network, plain_momentum>("network, momentum", acco::sgd{.learning_rate = 0.05, .momentum = 0.9});
  check_endings();
  std::printf("all checks passed\n");
}

}  // namespace

int main(int count, char** words) try {
  std::string how;
  int ranks = 2, epochs = 40;
  for (int k = 1; k < count; ++k) {
    const std::string word = words[k];
    if (word == "--check" || word == "--gloo") {
      how = word;
    } else if ((word == "--ranks" || word == "--epochs") && k + 1 < count && std::atoi(words[k + 1]) > 0) {
      (word == "--ranks" ? ranks : epochs) = std::atoi(words[++k]);
    } else {
      throw std::runtime_error("usage: ensmallen_functions [--ranks N] [--epochs N] [--check | --gloo]");
    }
  }
  if (how == "--check") {
    check();
  } else if (how == "--gloo") {
#if defined(EXAMPLE_GLOO)
    run_both(epochs, acco::gloo_backend::from_environment({.deadline = 60}));
#else
    throw std::runtime_error(
        "built without Gloo: apt-get install libgloo-dev: with CMake configure again, else compile with -DEXAMPLE_GLOO and "
        "-lgloo");
#endif
  } else {
    acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) { run_both(epochs, world); });
  }
  return EXIT_SUCCESS;
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return EXIT_FAILURE;
}
