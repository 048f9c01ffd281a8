// SPDX-License-Identifier: Apache-2.0
// Training against an adversary: a linear classifier and the perturbation that hurts it most, over four ranks with
// their own data. MASHA, in full and in few bits, beside gradient descent-ascent with exact exchange, at equal bytes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <acco/acco.hpp>

namespace {

constexpr std::size_t features = 400, strong = 20, samples_a_rank = 100;
constexpr float reach = 0.1F;  // an adversary moves every feature by as much
constexpr float decay = 1e-3F;

/// A rank's samples, labels multiplied in. A few features tell much of the label; the others tell less than an
/// adversary may change, so that they help a classifier only until somebody attacks it.
///
///   f(w, d) = mean over samples of log(1 + exp(w (d - y x))) + decay / 2 |w|^2,    min over w, max over |d_i| <= reach
///
/// The worst perturbation of each sample is the same up to its label, so one d stands for all: it is -y times what is
/// added to x. At the best w many weights are 0, and the adversary's element is indifferent there: descent-ascent turns
/// around them.
struct robust_classification {
  std::vector<float> signed_samples;

  explicit robust_classification(int rank) : signed_samples(samples_a_rank * features) {
    std::mt19937_64 bits(17 + static_cast<std::uint64_t>(rank));
    const auto noise = [&] {  // of variance 1, the same everywhere
      double sum = -6;
      for (int k = 0; k < 12; ++k) sum += static_cast<double>(bits() >> 11U) * 0x1p-53;
      return sum;
    };
    for (std::size_t i = 0; i < signed_samples.size(); ++i)
      signed_samples[i] = static_cast<float>(noise() + (i % features < strong ? 0.3 : 0.05));
  }

  /// Adds the gradients by w, and by d with the opposite sign: each player descends.
  void add_gradients(std::span<float const> at, std::span<float> gradients) const {
    auto const w = at.first(features), d = at.subspan(features);
    float all = 0;
    for (std::size_t s = 0; s < samples_a_rank; ++s) {
      float const* const yx = signed_samples.data() + s * features;
      float loses = 0;
      for (std::size_t i = 0; i < features; ++i) loses += w[i] * (d[i] - yx[i]);
      const float part = 1 / (1 + std::exp(-loses)) / static_cast<float>(samples_a_rank);
      for (std::size_t i = 0; i < features; ++i) gradients[i] -= part * yx[i];
      all += part;
    }
    for (std::size_t i = 0; i < features; ++i) {
      gradients[i] += all * d[i] + decay * w[i];
      gradients[features + i] -= all * w[i];
    }
  }
  /// f at the d that is worst for this w, the sum over samples, and how many the classifier gets right then.
  void judge(std::span<float const> w, double& loss, double& right) const {
    double worst = 0, squares = 0;
    for (const float each : w) {
      worst += static_cast<double>(reach * std::abs(each));
      squares += static_cast<double>(each) * static_cast<double>(each);
    }
    for (std::size_t s = 0; s < samples_a_rank; ++s) {
      double loses = worst;
      for (std::size_t i = 0; i < features; ++i)
        loses -= static_cast<double>(w[i]) * static_cast<double>(signed_samples[s * features + i]);
      loss += std::log1p(std::exp(-std::abs(loses))) + std::max(loses, 0.0) + static_cast<double>(decay) / 2 * squares;
      right += loses < 0 ? 1 : 0;
    }
  }
};

/// Gradient descent that stays within a bound.
struct bounded_descent {
  double learning_rate = 1e-2, bound = 1e30;

  static constexpr char const* name = "bounded_descent";
  static constexpr std::size_t slot_count = 0;
  static constexpr bool scalar_only = true;
  struct constants {
    double rate, bound;
  };
  constants prepare(acco::update_step const& step, acco::update_group const& group) const {
    return {learning_rate * step.learning_rate_scale * group.learning_rate_scale, bound};
  }
  template <class Real>
  static constexpr void apply(Real& parameter, Real gradient, std::array<Real, 0>& /*slots*/, constants const& c) {
    parameter = std::clamp(parameter - Real(c.rate) * gradient, Real(-c.bound), Real(c.bound));
  }
};

struct outcome {
  double loss, right;
};
/// Of all ranks' samples.
outcome judged(acco::threads_backend const& world, robust_classification const& mine, std::span<float const> w) {
  std::vector<double> own(2, 0.0), all(2);
  mine.judge(w, own[0], own[1]);
  auto queue = acco::make_queue<acco::host_queue>(world);
  acco::all_reduce_and_wait(queue, world, std::span<double const>(own), std::span<double>(all));
  const double count = static_cast<double>(samples_a_rank) * world.size();
  return {all[0] / count, all[1] / count};
}

constexpr std::uint64_t budget = 3ULL << 20U;  // bytes that a rank may send

/// Trains until the budget is spent; gives the worst-case loss of what it has come to.
template <class Schedule>
double train(acco::threads_backend const& world, robust_classification const& mine, Schedule const& schedule, double step,
             char const* name) {
  acco::parameter_layout layout;
  const auto adversary = layout.add_group({.rule = 1});
  layout.add("classifier", {features}).add("perturbation", {features}, adversary);
  acco::optimizer training{schedule,
                           acco::rules{bounded_descent{.learning_rate = step},
                                       bounded_descent{.learning_rate = step, .bound = static_cast<double>(reach)}},
                           acco::host_storage<float>{}, world, layout};
  training.initialize(std::vector<float>(2 * features, 0.0F));
  unsigned evaluations = 0;
  while (training.totals().bytes_sent < budget) {
    mine.add_gradients(training.parameters(), training.gradients());
    (void)training.accumulated(1);
    ++evaluations;
  }
  training.finish();
  const outcome end = judged(world, mine, training.parameters().first(features));
  if (world.rank() == 0) {
    std::printf("%-36s %4.2f %10u %8llu   %.4f  %5.1f %%\n", name, step, evaluations,
                static_cast<unsigned long long>(training.steps()), end.loss, 100 * end.right);
  }
  return end.loss;
}

}  // namespace

int main() {
  std::printf("%-36s %4s %10s %8s   %s\n", "", "step", "gradients", "updates", "worst-case loss; right when attacked");
  acco::threads_backend::run(4, [](acco::threads_backend const& world) {
    const robust_classification mine(world.rank());
    double turning = 1e9, found = 1e9;
    for (const double step : {0.05, 0.1, 0.2, 0.4})
      turning = std::min(turning, train(world, mine, acco::synchronous{}, step, "descent-ascent"));
    const double step = 0.4;
    (void)train(world, mine, acco::masha{.tau = 0.5}, step, "masha");
    const acco::masha first{acco::block_int8{}, acco::block_int8{}, 0.9};
    found = std::min(found, train(world, mine, first, step, "masha, block_int8 both ways"));
    const acco::masha fewer{acco::block_int4{}, acco::block_int4{}, 0.95};
    found = std::min(found, train(world, mine, fewer, step, "masha, block_int4 both ways"));
    const acco::masha2<acco::loosely<acco::block_top<64>>, acco::block_int4<>> second{.tau = 0.95};
    found = std::min(found, train(world, mine, second, step, "masha2, a quarter; block_int4 back"));
    if (!(found < turning)) throw std::runtime_error("MASHA found nothing better than descent-ascent");
  });
}
