// SPDX-License-Identifier: Apache-2.0
// An optimizer in the manner of ensmallen (https://ensmallen.org), on as many ranks as the backend has. It is called
// like ens::Adam, `Optimize(function, iterate, callbacks...)`, with a differentiable separable function, and trains in
// the matrix's own memory. It needs Armadillo, not ensmallen.
#pragma once

#include <algorithm>
#include <armadillo>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <acco/acco.hpp>

/// What constructors of ensmallen's optimizers take, by the same names.
struct AccoSettings {
  std::size_t batchSize = 32;          ///< of every rank
  std::size_t maxIterations = 100000;  ///< functions (points), over all ranks; 0: no limit
  double tolerance = 1e-5;             ///< ends when the objectives of two epochs are as near
  bool shuffle = true;                 ///< calls `Shuffle` after every epoch
  acco::options options = {};          ///< clip_norm, learning_rate, ...
};

/// Every rank calls `Optimize` with a function of its own points: the objective is the sum over all ranks' functions.
template <class Backend, class Rule = acco::adamw, class Schedule = acco::synchronous<>>
class AccoOptimizer {
  Backend world_;
  Rule rule_;
  AccoSettings with_;
  Schedule schedule_;

  // What a callback may have: each returns nothing, or whether to stop.
  static constexpr auto begin_optimization = [](auto& callback, auto&&... with) -> decltype(callback.BeginOptimization(with...)) {
    return callback.BeginOptimization(with...);
  };
  static constexpr auto begin_epoch = [](auto& callback, auto&&... with) -> decltype(callback.BeginEpoch(with...)) {
    return callback.BeginEpoch(with...);
  };
  static constexpr auto step_taken = [](auto& callback, auto&&... with) -> decltype(callback.StepTaken(with...)) {
    return callback.StepTaken(with...);
  };
  static constexpr auto end_epoch = [](auto& callback, auto&&... with) -> decltype(callback.EndEpoch(with...)) {
    return callback.EndEpoch(with...);
  };
  static constexpr auto end_optimization = [](auto& callback, auto&&... with) -> decltype(callback.EndOptimization(with...)) {
    return callback.EndOptimization(with...);
  };

  template <class Method, class Callback, class... With>
  static constexpr bool has = std::is_invocable_v<Method const&, Callback&, With...>;
  template <class Callback, class Function, class Matrix>
  static constexpr bool is_called =
      has<decltype(begin_optimization), Callback, AccoOptimizer&, Function&, Matrix&> ||
      has<decltype(begin_epoch), Callback, AccoOptimizer&, Function&, Matrix&, std::size_t, double> ||
      has<decltype(step_taken), Callback, AccoOptimizer&, Function&, Matrix&> ||
      has<decltype(end_epoch), Callback, AccoOptimizer&, Function&, Matrix&, std::size_t, double> ||
      has<decltype(end_optimization), Callback, AccoOptimizer&, Function&, Matrix&>;

 public:
  explicit AccoOptimizer(Backend const& world, Rule rule = {}, AccoSettings with = {}, Schedule schedule = {})
      : world_(world), rule_(std::move(rule)), with_(std::move(with)), schedule_(std::move(schedule)) {
    if (with_.batchSize == 0) throw std::invalid_argument("AccoOptimizer: batchSize is 0: choose the points of a micro-batch");
  }

  /// Minimizes the function, from rank 0's `iterate`, which becomes the solution on every rank. Returns the objective
  /// of the last epoch, over all ranks. A callback that returns true ends the optimization of all ranks at the end of
  /// the epoch.
  template <class Function, class Matrix, class... Callbacks>
  typename Matrix::elem_type Optimize(Function& function, Matrix& iterate, Callbacks&&... callbacks) {
    using number = typename Matrix::elem_type;
    static_assert((is_called<std::remove_reference_t<Callbacks>, Function, Matrix> && ...),
                  "AccoOptimizer calls BeginOptimization, BeginEpoch, StepTaken, EndEpoch and EndOptimization: a callback has "
                  "none of them (gradients are clipped by AccoSettings::options.clip_norm)");
    acco::optimizer training{schedule_, rule_,          acco::host_storage<number, number, number>{},
                             world_,    iterate.n_elem, with_.options};
    Matrix gradient(iterate.n_rows, iterate.n_cols, arma::fill::zeros), of_batch(iterate.n_rows, iterate.n_cols);
    training.adopt(std::span(iterate.memptr(), iterate.n_elem), std::span(gradient.memptr(), gradient.n_elem));
    const auto points = points_of_ranks(training, function.NumFunctions());
    const std::size_t mine = points[static_cast<std::size_t>(world_.rank())];
    const double count = sum(points, 0, std::numeric_limits<std::size_t>::max());
    const std::size_t longest = *std::max_element(points.begin(), points.end());
    if (count == 0) throw std::invalid_argument("AccoOptimizer: no rank's function has anything to evaluate (NumFunctions)");

    bool stop = false;
    const auto tell = [&](auto const& method, auto&&... with) {
      ((stop |= call(method, callbacks, *this, function, iterate, with...)), ...);
    };
    double objective = 0, last = std::numeric_limits<double>::max(), seen = 0;
    const double most = with_.maxIterations == 0 ? std::numeric_limits<double>::max() : static_cast<double>(with_.maxIterations);
    tell(begin_optimization);
    for (std::size_t epoch = 1; seen < most; ++epoch, last = objective) {
      tell(begin_epoch, epoch, objective / count);
      objective = 0;
      for (std::size_t at = 0; at < longest && seen < most; at += with_.batchSize) {
        const std::size_t batch = at < mine ? std::min(with_.batchSize, mine - at) : 0;  // 0: others have more points
        double value = 0;
        if (batch != 0) {
          value = evaluate(function, iterate, at, of_batch, batch);
          gradient += of_batch;
        }
        auto const report = training.accumulated(static_cast<double>(batch), value);
        if (report && report->committed) tell(step_taken);
        objective += value;
        seen += sum(points, at, with_.batchSize);
      }
      objective = over_ranks(training, objective);
      tell(end_epoch, epoch, objective / count);
      if (over_ranks(training, stop ? 1 : 0) != 0) break;
      if (!std::isfinite(objective) || std::abs(last - objective) < with_.tolerance) break;
      if (with_.shuffle) function.Shuffle();
    }
    const auto told = training.steps();
    training.finish();
    if (training.steps() != told) tell(step_taken);  // the last step was under way
    tell(end_optimization);
    return static_cast<number>(objective);
  }

 private:
  static double over_ranks(auto& training, double number) {
    training.sum_over_ranks(std::span(&number, 1));
    return number;
  }
  std::vector<std::size_t> points_of_ranks(auto& training, std::size_t mine) const {
    std::vector<double> all(static_cast<std::size_t>(world_.size()), 0.0);
    all[static_cast<std::size_t>(world_.rank())] = static_cast<double>(mine);
    training.sum_over_ranks(all);
    return {all.begin(), all.end()};
  }
  /// How many points all ranks have in one batch.
  static double sum(std::vector<std::size_t> const& points, std::size_t at, std::size_t batch) {
    double all = 0;
    for (const std::size_t each : points) all += at < each ? static_cast<double>(std::min(batch, each - at)) : 0;
    return all;
  }
  static double evaluate(auto& function, auto const& at, std::size_t first, auto& gradient, std::size_t count) {
    if constexpr (requires { function.EvaluateWithGradient(at, first, gradient, count); }) {
      return static_cast<double>(function.EvaluateWithGradient(at, first, gradient, count));
    } else {
      function.Gradient(at, first, gradient, count);
      return static_cast<double>(function.Evaluate(at, first, count));
    }
  }

  /// Calls a method of a callback, where it has it; whether it asks to stop.
  static bool call(auto const& method, auto& callback, auto&&... with) {
    if constexpr (std::is_invocable_v<decltype(method), decltype(callback), decltype(with)...>) {
      if constexpr (std::is_void_v<decltype(method(callback, with...))>) {
        method(callback, with...);
      } else {
        return method(callback, with...);
      }
    }
    return false;
  }
};
