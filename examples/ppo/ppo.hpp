// SPDX-License-Identifier: Apache-2.0
// Proximal policy optimization (Schulman et al., arXiv 1707.06347) by two optimizers on one world: the actor's and the
// critic's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <acco/acco.hpp>
#include <acco/make.hpp>

#include "policy.hpp"
#include "rollout.hpp"

namespace ppo {

/// Which parameters collect: those of the last update, for which both optimizers wait, or those in use, while the last
/// update travels behind the collection.
enum class collecting { committed, in_use };

struct settings {
  std::string schedule = "synchronous";
  std::size_t environments = 32, steps = 128;  ///< of an iteration, on all ranks together; each environment's
  std::size_t epochs = 4, minibatches = 8, iterations = 30, hidden = 32;
  double discount = 0.99, lambda = 0.95, clip = 0.2, entropy = 0.0;
  acco::adamw actor{.learning_rate = 2e-3, .epsilon = 1e-5, .weight_decay = 0};
  acco::adamw critic{.learning_rate = 4e-3, .epsilon = 1e-5, .weight_decay = 0};
  double clip_norm = 0.5;  ///< of either gradient
  collecting by = collecting::committed;
  std::uint64_t seed = 1;

  [[nodiscard]] std::size_t batch() const { return environments * steps; }
  void check(int ranks) const {
    if (environments == 0 || environments % static_cast<std::size_t>(ranks) != 0)
      throw std::runtime_error(std::to_string(environments) + " environments do not divide among " + std::to_string(ranks) +
                               " ranks: choose a multiple");
    if (minibatches == 0 || batch() % (2 * minibatches) != 0)
      throw std::runtime_error("a batch of " + std::to_string(batch()) + " samples does not divide into two halves of " +
                               std::to_string(minibatches) + " minibatches: choose other steps or minibatches");
  }
};

template <class Task>
struct models {
  network actor, critic;
  explicit models(std::size_t hidden)
      : actor({Task::observations, hidden, hidden, Task::actions}), critic({Task::observations, hidden, hidden, 1}) {}
  [[nodiscard]] std::vector<double> initial_actor(std::uint64_t seed) const { return actor.initial(2 * seed, 0.01); }
  [[nodiscard]] std::vector<double> initial_critic(std::uint64_t seed) const { return critic.initial(2 * seed + 1, 1); }
};

/// The clipped surrogate (equation 7) with its entropy bonus (equation 9), to be minimized, and its slopes by the
/// logits.
struct actor_loss {
  double loss, ratio;
  std::vector<double> slopes;
};
template <class Task>
actor_loss surrogate(sample<Task> const& s, std::vector<double> const& logits, settings const& with) {
  auto slopes = log_probabilities(logits);
  const double ratio = std::exp(slopes[s.action] - s.log_probability);
  const double bounded = std::clamp(ratio, 1 - with.clip, 1 + with.clip);
  const double gain = std::min(ratio * s.advantage, bounded * s.advantage);
  const double by_log = gain == ratio * s.advantage ? -gain : 0;  // where the bound counts, nothing is to be gained
  double entropy = 0;
  for (const double log : slopes) entropy -= std::exp(log) * log;
  for (std::size_t j = 0; j < slopes.size(); ++j) {
    const double p = std::exp(slopes[j]);
    slopes[j] = by_log * ((j == s.action ? 1 : 0) - p) + with.entropy * p * (slopes[j] + entropy);
  }
  return {-gain - with.entropy * entropy, ratio, std::move(slopes)};
}

/// The order of a batch in an epoch: the same on every rank, and the same whatever their number.
inline std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  random_numbers random(seed);
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

/// Two micro-batches a step, on every rank, under every schedule: the halves of a minibatch.
template <class Backend>
acco::any_optimizer<double> make_optimizer(settings const& s, acco::adamw const& rule, network const& model,
                                           Backend const& world) {
  using schedules = acco::only<acco::named_schedules, "synchronous", "delayed", "two_phase", "two_phase+int4">;
  const acco::fixed_pace pace{s.schedule.starts_with("two_phase") ? 1U : 2U};
  return acco::make<schedules>(s.schedule, pace, rule, acco::host_storage<double, double, double>{}, world, model.layout(),
                               acco::options{.clip_norm = s.clip_norm, .deadline = 60});
}

struct iteration {
  std::size_t samples;        ///< collected so far, on all ranks
  double mean_return;         ///< of the episodes that ended in it, on all ranks
  double first_ratio_from_1;  ///< of this rank's samples in the first half of the first minibatch
};
struct trained {
  std::vector<double> actor = {}, critic = {};
  std::vector<iteration> history = {};
  std::uint64_t updates = 0;
};

/// One rank's part of a training.
template <class Task, class Backend>
class trainer {
  settings s_;
  models<Task> models_;
  std::size_t mine_, first_;  // environments
  environments<Task> environments_;
  acco::any_optimizer<double> actor_, critic_;
  std::vector<sample<Task>> samples_;

 public:
  trainer(settings const& s, Backend const& world)
      : s_(s),
        models_(s.hidden),
        mine_(s.environments / static_cast<std::size_t>(world.size())),
        first_(mine_ * static_cast<std::size_t>(world.rank())),
        environments_(first_, mine_, s.seed),
        actor_(make_optimizer(s, s.actor, models_.actor, world)),
        critic_(make_optimizer(s, s.critic, models_.critic, world)) {
    s.check(world.size());
    actor_.initialize(models_.initial_actor(s.seed));  // in the same order on every rank
    critic_.initialize(models_.initial_critic(s.seed));
  }

  template <class EachIteration>
  trained train(EachIteration&& each_iteration) {
    trained result;
    for (std::size_t k = 0; k < s_.iterations; ++k) {
      returns ended;
      samples_ = environments_.collect(s_.steps, models_.actor, models_.critic, actor_.parameters(), critic_.parameters(), ended);
      estimate_advantages(samples_, s_.steps, s_.discount, s_.lambda);
      normalise(ended);
      iteration now{(k + 1) * s_.batch(), ended.sum / std::max(ended.episodes, 1.0), 0};
      for (std::size_t epoch = 0; epoch < s_.epochs; ++epoch) {
        auto const order = shuffled(s_.batch(), (s_.seed << 40U) + (k << 8U) + epoch);
        std::size_t const half = s_.batch() / (2 * s_.minibatches);
        for (std::size_t at = 0; at < order.size(); at += half) {
          const double furthest = half_minibatch(std::span(order).subspan(at, half));
          if (epoch == 0 && at == 0) now.first_ratio_from_1 = furthest;
        }
      }
      if (s_.by == collecting::committed || k + 1 == s_.iterations) {
        actor_.finish();
        critic_.finish();
      }
      result.history.push_back(now);
      each_iteration(now);
    }
    result.updates = actor_.steps();
    result.actor.assign(actor_.parameters().begin(), actor_.parameters().end());
    result.critic.assign(critic_.parameters().begin(), critic_.parameters().end());
    return result;
  }

 private:
  /// Advantages get a mean of 0 and a variance of 1 over all ranks, and `ended` is summed over them.
  void normalise(returns& ended) {
    std::vector<double> sums{ended.sum, ended.episodes, 0};
    for (auto const& s : samples_) sums[2] += s.advantage;
    actor_.sum_over_ranks(sums);
    ended = {sums[0], sums[1]};
    const double mean = sums[2] / static_cast<double>(s_.batch());
    std::vector<double> squares{0};
    for (auto const& s : samples_) squares[0] += (s.advantage - mean) * (s.advantage - mean);
    actor_.sum_over_ranks(squares);
    const double deviation = std::sqrt(squares[0] / static_cast<double>(s_.batch()));
    for (auto& s : samples_) s.advantage = (s.advantage - mean) / (deviation + 1e-8);
  }

  /// Of the samples that `order` names: those of this rank's environments. Returns how far from 1 a ratio was.
  double half_minibatch(std::span<std::size_t const> order) {
    double count = 0, loss = 0, critic_loss = 0, furthest = 0;
    activations scratch;
    for (const std::size_t index : order) {
      if (index / s_.steps < first_ || index / s_.steps >= first_ + mine_) continue;
      auto const& s = samples_[index - first_ * s_.steps];
      auto of = surrogate(s, models_.actor.forward(actor_.parameters(), s.observation, scratch), s_);
      models_.actor.backward(actor_.parameters(), scratch, std::move(of.slopes), actor_.gradients());
      const double error = models_.critic.forward(critic_.parameters(), s.observation, scratch)[0] - s.target;
      models_.critic.backward(critic_.parameters(), scratch, {error}, critic_.gradients());
      count += 1;
      loss += of.loss;
      critic_loss += error * error / 2;
      furthest = std::max(furthest, std::abs(of.ratio - 1));
    }
    (void)actor_.accumulated(count, loss);  // a rank may have none of a half: the weights say so
    (void)critic_.accumulated(count, critic_loss);
    return furthest;
  }
};

/// Mean return of the most probable actions in 20 episodes that no training has seen.
template <class Task>
double evaluate(std::vector<double> const& actor, std::size_t hidden) {
  models<Task> const models(hidden);
  activations scratch;
  random_numbers random(~std::uint64_t{0});
  double sum = 0;
  constexpr int episodes = 20;
  for (int k = 0; k < episodes; ++k) {
    Task task;
    task.reset(random);
    for (ending end = ending::none; end == ending::none;) {
      auto const& logits = models.actor.forward(actor, task.observe(), scratch);
      auto const taken = task.step(static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      sum += taken.reward;
      end = taken.end;
    }
  }
  return sum / episodes;
}

}  // namespace ppo
