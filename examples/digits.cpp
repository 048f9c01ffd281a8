// SPDX-License-Identifier: Apache-2.0
// Why your digits differ from another AdamW's: one training by acco, and the same one by plain loops that each do one
// thing in another way. docs/digits.md quotes what it prints.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <acco/acco.hpp>

namespace {

constexpr int ranks = 2, parts = 2, steps = 20;  // micro-batches of a step on each rank
constexpr std::size_t count = 64;
constexpr acco::adamw rule{.learning_rate = 0.01, .weight_decay = 0.1};
using numbers = std::vector<double>;

// Samples of a micro-batch: unequal, as the last one of an epoch is.
int samples(int rank, int part) { return rank == 0 && part == 0 ? 5 : 1 + rank; }

// Adds the gradient of one sample's loss, sum_i a/2 (p_i - b)^2 with a and b of the sample's own. No outside
// randomness.
void add_sample(int step, int rank, int part, int k, auto const& parameters, auto& gradients) {
  for (std::size_t i = 0; i < count; ++i) {
    const double x = std::sin(1.0 + 7.0 * step + 131.0 * rank + 17.0 * part + 3.0 * k + 0.37 * static_cast<double>(i));
    const double a = 1.0 + 0.5 * x, b = 2.0 * x * x * x + 0.01 * static_cast<double>(i);
    using gradient = std::remove_cvref_t<decltype(gradients[i])>;
    gradients[i] = static_cast<gradient>(static_cast<double>(gradients[i]) + a * (static_cast<double>(parameters[i]) - b));
  }
}

// A training by acco, its parameters as double; on one rank, that rank has the samples of both.
template <class Storage>
numbers by_acco(double clip_norm, acco::learning_rate_function const& rate, int of_ranks = ranks) {
  numbers result;
  acco::threads_backend::run(of_ranks, [&](acco::threads_backend const& world) {
    using parameter = typename Storage::parameter_type;
    acco::optimizer training{acco::synchronous{.pace = acco::fixed_pace{parts}},          rule, Storage{}, world, count,
                             acco::options{.clip_norm = clip_norm, .learning_rate = rate}};
    training.initialize(std::vector<parameter>(count, parameter(0.5F)));
    for (int step = 0; step < steps; ++step) {
      int part = 0;
      training.step([&](auto parameters, auto gradients) {
        int n = 0;
        for (int rank = world.rank(); rank < ranks; rank += world.size()) {
          for (int k = 0; k < samples(rank, part); ++k, ++n) add_sample(step, rank, part, k, parameters, gradients);
        }
        ++part;
        return n;
      });
    }
    training.finish();
    if (world.rank() == 0) result.assign(training.parameters().begin(), training.parameters().end());
  });
  return result;
}

enum class clip { none, after_the_mean, each_rank_before, with_epsilon };

// The same in one thread and in double, with what others do otherwise.
struct plain {
  bool mean_of_means = false;  // of each micro-batch, whatever its samples, then of these
  // else p -= wd p * schedule: AdamW's paper, where the decay is not multiplied by lr
  bool decay_times_rate = true;
  bool decay_in_gradient = false;          // Adam with L2: g += wd p
  bool decay_after = false;                // the step first, then the decay of what it gave
  bool epsilon_inside = false;             // sqrt(v + epsilon^2)
  bool epsilon_before_correction = false;  // sqrt(v) + epsilon, both corrected
  bool bias_correction = true;
  clip clipping = clip::none;
  double clip_norm = 0;
  std::function<double(int)> rate = [](int) { return 1.0; };         // of the updates done
  std::function<double(double)> round = [](double p) { return p; };  // of the parameters that are kept between steps
  double epsilon = rule.epsilon;

  numbers train() const {
    numbers p(count, 0.5), m(count), v(count);
    for (int step = 0; step < steps; ++step) {
      numbers mean(count);
      double total = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        numbers of_rank(count);
        double weight = 0;
        for (int part = 0; part < parts; ++part) {
          numbers g(count);
          const int n = samples(rank, part);
          for (int k = 0; k < n; ++k) add_sample(step, rank, part, k, p, g);
          for (std::size_t i = 0; i < count; ++i) of_rank[i] += mean_of_means ? g[i] / n : g[i];
          weight += mean_of_means ? 1 : n;
        }
        if (clipping == clip::each_rank_before) {
          const double own = norm(of_rank) / weight;
          for (double& x : of_rank) x *= std::min(1.0, clip_norm / own);
        }
        for (std::size_t i = 0; i < count; ++i) mean[i] += of_rank[i];
        total += weight;
      }
      for (double& x : mean) x /= total;
      if (clipping == clip::after_the_mean || clipping == clip::with_epsilon) {
        const double scale = std::min(1.0, clip_norm / (norm(mean) + (clipping == clip::with_epsilon ? 1e-6 : 0)));
        for (double& x : mean) x *= scale;
      }
      const double lr = rule.learning_rate * rate(step);
      const double c1 = bias_correction ? 1 - std::pow(rule.beta1, step + 1) : 1,
                   c2 = bias_correction ? 1 - std::pow(rule.beta2, step + 1) : 1;
      for (std::size_t i = 0; i < count; ++i) {
        const double g = mean[i] + (decay_in_gradient ? rule.weight_decay * p[i] : 0);
        m[i] = rule.beta1 * m[i] + (1 - rule.beta1) * g;
        v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * g * g;
        const double root = epsilon_inside              ? std::sqrt(v[i] / c2 + epsilon * epsilon)
                            : epsilon_before_correction ? (std::sqrt(v[i]) + epsilon) / std::sqrt(c2)
                                                        : std::sqrt(v[i] / c2) + epsilon;
        const double decay = decay_in_gradient ? 0 : rule.weight_decay * (decay_times_rate ? lr : rate(step));
        const double moved = lr * m[i] / c1 / root;
        p[i] = round(decay_after ? (p[i] - moved) * (1 - decay) : p[i] * (1 - decay) - moved);
      }
    }
    return p;
  }

  static double norm(numbers const& g) {
    double squares = 0;
    for (const double x : g) squares += x * x;
    return std::sqrt(squares);
  }
};

int wrong = 0;

// A row: the largest difference of a parameter; `least` and `most` are what it must lie between.
void row(std::string const& what, numbers const& a, numbers const& b, double least, double most) {
  double difference = 0;
  for (std::size_t i = 0; i < count; ++i) difference = std::max(difference, std::abs(a[i] - b[i]));
  std::printf("%-66s %8.1e\n", what.c_str(), difference);
  if (!(difference >= least && difference <= most)) {
    std::printf("  this is not between %g and %g\n", least, most);
    ++wrong;
  }
}

double to_bfloat16(double p) { return static_cast<float>(acco::bfloat16(p)); }

}  // namespace

int main() {
  using exact = acco::host_storage<double, double, double>;
  const acco::learning_rate_function flat = acco::constant{};
  const numbers ours = by_acco<exact>(0, flat);
  const auto row_of = [&](std::string const& what, plain const& other, double least = 1e-8, double most = 1) {
    row(what, ours, other.train(), least, most);
  };

  std::printf("%d steps of AdamW, learning rate %g; the largest difference of a parameter\n\n", steps, rule.learning_rate);
  row_of("the same rule in a plain loop, in double", {}, 0, 1e-13);
  row_of("mean of the micro-batches' means", {.mean_of_means = true});
  row_of("decay not multiplied by the learning rate", {.decay_times_rate = false});
  row_of("decay in the gradient: Adam with L2", {.decay_in_gradient = true});
  row_of("decay after the step", {.decay_after = true});
  row_of("epsilon inside the root", {.epsilon_inside = true}, 1e-13);
  row_of("epsilon before the bias correction", {.epsilon_before_correction = true}, 1e-13);
  {
    plain large, inside, before;
    large.epsilon = inside.epsilon = before.epsilon = 1e-3;
    inside.epsilon_inside = before.epsilon_before_correction = true;
    row("  the same two with epsilon 1e-3: inside the root", large.train(), inside.train(), 1e-8, 1);
    row("  before the bias correction", large.train(), before.train(), 1e-8, 1);
  }
  row_of("no bias correction", {.bias_correction = false});

  const acco::warmup_linear warmup{.warmup = 10, .total = 20, .final_factor = 0};
  const numbers rising = by_acco<exact>(0, acco::in_steps{warmup});
  row("warm-up in steps: the same in a plain loop", rising, plain{.rate = [&](int step) { return warmup(step); }}.train(), 0,
      1e-13);
  row("  one that starts at 0: the first step does not move", rising,
      plain{.rate = [](int step) { return step <= 10 ? step / 10.0 : (20 - step) / 10.0; }}.train(), 1e-8, 1);
  row("  10 meant as samples, of which a step has 10", rising, by_acco<exact>(0, acco::in_samples{warmup}), 1e-8, 1);

  const double norm = 2;
  const numbers clipped = by_acco<exact>(norm, flat);
  row("clipping: the mean over all ranks, in a plain loop", clipped,
      plain{.clipping = clip::after_the_mean, .clip_norm = norm}.train(), 0, 1e-13);
  row("  each rank's own gradient, before the mean", clipped,
      plain{.clipping = clip::each_rank_before, .clip_norm = norm}.train(), 1e-8, 1);
  row("  clip / (norm + 1e-6)", clipped, plain{.clipping = clip::with_epsilon, .clip_norm = norm}.train(), 1e-13, 1e-4);
  row("  no clipping", clipped, ours, 1e-8, 1);

  using bfloat16_and_float = acco::host_storage<acco::bfloat16, float>;
  const numbers in_float = by_acco<acco::host_storage<float>>(0, flat);
  row("float for all", ours, in_float, 1e-9, 1e-5);
  row("  the same samples on one rank: another order of sums", in_float, by_acco<acco::host_storage<float>>(0, flat, 1), 1e-9,
      1e-5);
  row("  on two ranks once more: the same bits", in_float, by_acco<acco::host_storage<float>>(0, flat), 0, 0);
  row("bfloat16 parameters, fp32 masters, fp32 gradients", ours, by_acco<bfloat16_and_float>(0, flat), 1e-6, 1e-2);
  row("bfloat16 parameters and no masters", ours, plain{.round = to_bfloat16}.train(), 1e-4, 1);
  return wrong == 0 ? 0 : 1;
}
