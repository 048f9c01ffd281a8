// SPDX-License-Identifier: Apache-2.0
// What a policy does in its environments, and how much better each action was than expected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "environment.hpp"
#include "policy.hpp"

namespace ppo {

template <class Task>
struct sample {
  std::array<double, Task::observations> observation;
  std::size_t action;
  double log_probability;  ///< of the action, by the parameters that chose it
  double value, next_value;
  double reward;
  bool ended;
  double advantage = 0, target = 0;
};

/// Of the episodes that ended.
struct returns {
  double sum = 0, episodes = 0;
};

/// A share of all environments: those that one rank steps.
template <class Task>
class environments {
  struct one {
    Task task;
    random_numbers random;
    double earned = 0;
  };
  std::vector<one> all_;

 public:
  environments(std::size_t first, std::size_t count, std::uint64_t seed) {
    for (std::size_t e = first; e < first + count; ++e) {
      all_.push_back({{}, random_numbers(seed << 32U | e)});
      all_.back().task.reset(all_.back().random);
    }
  }

  /// `steps` of each environment, one environment after the other.
  std::vector<sample<Task>> collect(std::size_t steps, network const& actor, network const& critic,
                                    std::span<double const> of_actor, std::span<double const> of_critic, returns& ended) {
    std::vector<sample<Task>> samples;
    activations scratch;
    for (one& each : all_) {
      const auto value = [&] { return critic.forward(of_critic, each.task.observe(), scratch)[0]; };
      double expected = value();
      for (std::size_t t = 0; t < steps; ++t) {
        auto const observation = each.task.observe();
        auto const logs = log_probabilities(actor.forward(of_actor, observation, scratch));
        auto const action = draw(logs, each.random);
        auto const [reward, end] = each.task.step(action);
        const double next = end == ending::terminal ? 0 : value();  // of a state that was cut off, too
        samples.push_back({observation, action, logs[action], expected, next, reward, end != ending::none});
        each.earned += reward;
        expected = next;
        if (end == ending::none) continue;
        ended.sum += each.earned;
        ended.episodes += 1;
        each.earned = 0;
        each.task.reset(each.random);
        expected = value();
      }
    }
    return samples;
  }
};

/// Generalized advantage estimation (Schulman et al., arXiv 1506.02438, equation 16; truncated as in PPO's equation
/// 11), and what the critic should have said.
template <class Task>
void estimate_advantages(std::vector<sample<Task>>& samples, std::size_t steps, double discount, double lambda) {
  for (std::size_t i = samples.size(); i-- != 0;) {
    auto& s = samples[i];
    const double error = s.reward + discount * s.next_value - s.value;
    const bool goes_on = !s.ended && (i + 1) % steps != 0;
    s.advantage = error + (goes_on ? discount * lambda * samples[i + 1].advantage : 0);
    s.target = s.value + s.advantage;
  }
}

}  // namespace ppo
