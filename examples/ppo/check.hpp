// SPDX-License-Identifier: Apache-2.0
// What the test `examples/ppo/check` asks: against the definitions, and against PPO and Adam written out on one
// process.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cart_pole.hpp"
#include "ppo.hpp"
#include "route.hpp"

namespace ppo {

inline void demand(bool holds, std::string const& what) {
  if (!holds) throw std::runtime_error("check failed: " + what);
}
inline double distance(std::vector<double> const& a, std::vector<double> const& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// The two accelerations solve Lagrange's equations, of which the paper's are the solution.
inline void check_cart_pole() {
  random_numbers random(5);
  for (int k = 0; k < 20; ++k) {
    cart_pole at;
    for (double* each : {&at.x, &at.speed, &at.angle, &at.turning}) *each = random.between(-2, 2);
    const double force = random.between(-10, 10);
    auto const [x, angle] = at.accelerate(force);
    const double lever = cart_pole::pole * cart_pole::half_length, sine = std::sin(at.angle), cosine = std::cos(at.angle);
    const double of_cart = (cart_pole::cart + cart_pole::pole) * x + lever * cosine * angle -
                           lever * sine * at.turning * at.turning - force + std::copysign(cart_pole::friction, at.speed);
    const double of_pole = lever * cosine * x + 4.0 / 3 * lever * cart_pole::half_length * angle -
                           lever * cart_pole::gravity * sine + cart_pole::hinge_friction * at.turning;
    demand(std::abs(of_cart) < 1e-12 && std::abs(of_pole) < 1e-12, "the cart and the pole obey Lagrange's equations");
  }
}

/// A route that is driven to its end earns 1, half of it where a car is too fast; off the road nothing more.
inline void check_route() {
  const auto drive = [](route& car, std::size_t action) {
    double sum = 0;
    ending end = ending::none;
    while (end == ending::none) {
      auto const taken = car.step(action);
      sum += taken.reward;
      end = taken.end;
    }
    demand(end == ending::terminal, "a route ends at its end, or off the road");
    return sum;
  };
  constexpr std::size_t straight_on = 7, gently_left = 10;  // both roll
  route straight{.v = 10};
  demand(std::abs(drive(straight, straight_on) - 1) < 1e-12, "a whole route earns 1");
  route round{.v = 8}, fast{.v = 12};  // 0.04 * 12^2 is more than 5 m/s^2
  round.curvatures.fill(0.04);
  fast.curvatures.fill(0.04);
  demand(std::abs(drive(round, gently_left) - 1) < 1e-12, "a bend may be driven through");
  demand(std::abs(drive(fast, gently_left) - 0.5) < 1e-12, "too fast in it halves what is earned");
  route off{.v = 10};
  const double earned = drive(off, gently_left);
  demand(earned > 0 && earned < 0.2 && off.along < 0.2 * route::length, "the route ends beside the road");
}

/// Two steps an episode, which ends by time, the next one for good.
struct two_steps {
  static constexpr std::size_t observations = 1, actions = 2;
  double now = 0;
  int episodes = 0;
  void reset(random_numbers&) { now = 10.0 * ++episodes; }
  [[nodiscard]] std::array<double, observations> observe() const { return {now / 100}; }
  outcome step(std::size_t) {
    now += 1;
    const bool ends = std::fmod(now, 10) == 2;
    return {1, !ends ? ending::none : episodes % 2 == 1 ? ending::time : ending::terminal};
  }
};
/// A state that was cut off has a value, that of no other episode; one in which nothing can be earned any more has none.
inline void check_endings() {
  const models<two_steps> nets(5);
  auto const actor = nets.actor.initial(1, 1), critic = nets.critic.initial(2, 1);
  activations scratch;
  returns ended;
  environments<two_steps> one(0, 1, 1);
  auto const samples = one.collect(9, nets.actor, nets.critic, actor, critic, ended);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto value = [&](double shown) { return nets.critic.forward(critic, std::array{shown / 100}, scratch)[0]; };
    const double begin = 10.0 * static_cast<double>(1 + i / 2), shown = begin + static_cast<double>(i % 2);
    const bool terminal = i % 4 == 3;
    demand(samples[i].value == value(shown), "a state has its value");
    demand(samples[i].next_value == (terminal ? 0 : value(shown + 1)),
           "the state behind a step has a value, unless it was the last");
    demand(samples[i].ended == (i % 2 == 1), "episodes end by time, too");
  }
  demand(ended.episodes == 4 && ended.sum == 8, "returns are those of whole episodes");
}

/// The recursion gives the sums of the definition, within each episode and each environment.
inline void check_advantages() {
  constexpr std::size_t steps = 40;
  constexpr double discount = 0.9, lambda = 0.8;
  random_numbers random(3);
  std::vector<sample<cart_pole>> samples(3 * steps);
  for (auto& s : samples) {
    s = {{}, 0, 0, random.uniform(), random.uniform(), random.uniform(), random.uniform() < 0.1};
  }
  estimate_advantages(samples, steps, discount, lambda);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    double sum = 0, factor = 1;
    for (std::size_t k = i;; ++k, factor *= discount * lambda) {
      sum += factor * (samples[k].reward + discount * samples[k].next_value - samples[k].value);
      if (samples[k].ended || k % steps == steps - 1) break;
    }
    demand(std::abs(samples[i].advantage - sum) < 1e-12 && std::abs(samples[i].target - sum - samples[i].value) < 1e-12,
           "advantages are sums of discounted errors");
  }
}

/// The gradients written by hand are those of the losses: within the bounds of the ratio, and beyond.
inline void check_gradients() {
  const models<route> nets(5);
  const settings with{.entropy = 0.3};
  random_numbers random(11);
  auto at = nets.actor.initial(1, 1), at_critic = nets.critic.initial(2, 1);
  activations scratch;
  for (const double advantage : {1.5, -1.5}) {
    for (const double ratio : {0.7, 1.1, 1.3}) {
      sample<route> s{};
      for (double& each : s.observation) each = random.between(-1, 1);
      s.action = random.below(route::actions);
      s.advantage = advantage;
      s.log_probability = log_probabilities(nets.actor.forward(at, s.observation, scratch))[s.action] - std::log(ratio);
      const auto loss = [&] {  // the definitions, without log_probabilities' shift
        double sum = 0, entropy = 0;
        auto const logits = nets.actor.forward(at, s.observation, scratch);
        for (const double each : logits) sum += std::exp(each);
        for (const double each : logits) entropy -= std::exp(each) / sum * std::log(std::exp(each) / sum);
        const double r = std::exp(logits[s.action]) / sum / std::exp(s.log_probability);
        const double squared = nets.critic.forward(at_critic, s.observation, scratch)[0] - 0.25;
        const double gain = advantage > 0 ? std::min(r, 1.2) * advantage : std::max(r, 0.8) * advantage;
        return -gain - 0.3 * entropy + squared * squared / 2;
      };
      std::vector<double> by_actor(at.size(), 0.0), by_critic(at_critic.size(), 0.0);
      nets.actor.backward(at, scratch, surrogate(s, nets.actor.forward(at, s.observation, scratch), with).slopes, by_actor);
      const double value = nets.critic.forward(at_critic, s.observation, scratch)[0];
      nets.critic.backward(at_critic, scratch, {value - 0.25}, by_critic);
      const auto compare = [&](std::vector<double>& parameters, std::vector<double> const& gradient) {
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const double there = parameters[i];
          parameters[i] = there + 1e-5;
          const double more = loss();
          parameters[i] = there - 1e-5;
          const double slope = (more - loss()) / 2e-5;
          parameters[i] = there;
          demand(std::abs(slope - gradient[i]) < 1e-7, "gradients are slopes of the losses");
        }
      };
      compare(at, by_actor);
      compare(at_critic, by_critic);
    }
  }
}

/// Adam written out (Kingma and Ba, arXiv 1412.6980, algorithm 1), of a gradient that is clipped by its norm.
struct plain_adam {
  std::vector<double> first, second;
  int count = 0;

  void update(acco::adamw const& rule, double clip_norm, std::vector<double>& parameters, std::vector<double> const& gradient) {
    first.resize(parameters.size());
    second.resize(parameters.size());
    ++count;
    double squares = 0;
    for (const double g : gradient) squares += g * g;
    const double scale = std::min(1.0, clip_norm / std::sqrt(squares));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double g = scale * gradient[i];
      first[i] = rule.beta1 * first[i] + (1 - rule.beta1) * g;
      second[i] = rule.beta2 * second[i] + (1 - rule.beta2) * g * g;
      const double m = first[i] / (1 - std::pow(rule.beta1, count)), v = second[i] / (1 - std::pow(rule.beta2, count));
      parameters[i] -= rule.learning_rate * m / (std::sqrt(v) + rule.epsilon);
    }
  }
};

/// PPO on one process: no ranks, no halves. With several `parts` the advantages of each are normalised apart, as ranks
/// must not do.
template <class Task>
trained train_plainly(settings const& s, std::size_t parts = 1) {
  models<Task> const nets(s.hidden);
  trained now{.actor = nets.initial_actor(s.seed), .critic = nets.initial_critic(s.seed)};
  environments<Task> all(0, s.environments, s.seed);
  plain_adam of_actor, of_critic;
  activations scratch;
  for (std::size_t k = 0; k < s.iterations; ++k) {
    returns ended;
    auto samples = all.collect(s.steps, nets.actor, nets.critic, now.actor, now.critic, ended);
    estimate_advantages(samples, s.steps, s.discount, s.lambda);
    for (std::size_t part = 0; part < parts; ++part) {
      auto const its = std::span(samples).subspan(part * samples.size() / parts, samples.size() / parts);
      double sum = 0, squares = 0;
      for (auto const& each : its) sum += each.advantage;
      const double mean = sum / static_cast<double>(its.size());
      for (auto const& each : its) squares += std::pow(each.advantage - mean, 2);
      for (auto& each : its)
        each.advantage = (each.advantage - mean) / (std::sqrt(squares / static_cast<double>(its.size())) + 1e-8);
    }
    for (std::size_t epoch = 0; epoch < s.epochs; ++epoch) {
      auto const order = shuffled(samples.size(), (s.seed << 40U) + (k << 8U) + epoch);
      const std::size_t size = samples.size() / s.minibatches;
      for (std::size_t at = 0; at < order.size(); at += size) {
        std::vector<double> by_actor(now.actor.size(), 0.0), by_critic(now.critic.size(), 0.0);
        for (std::size_t i = at; i < at + size; ++i) {
          auto const& each = samples[order[i]];
          auto slopes = surrogate(each, nets.actor.forward(now.actor, each.observation, scratch), s).slopes;
          for (double& slope : slopes) slope /= static_cast<double>(size);
          nets.actor.backward(now.actor, scratch, slopes, by_actor);
          const double value = nets.critic.forward(now.critic, each.observation, scratch)[0];
          nets.critic.backward(now.critic, scratch, {(value - each.target) / static_cast<double>(size)}, by_critic);
        }
        of_actor.update(s.actor, s.clip_norm, now.actor, by_actor);
        of_critic.update(s.critic, s.clip_norm, now.critic, by_critic);
      }
    }
    now.history.push_back({(k + 1) * s.batch(), ended.sum / std::max(ended.episodes, 1.0), 0});
  }
  return now;
}

template <class Task>
trained train_on_threads(settings const& s, int ranks) {
  std::vector<trained> all(static_cast<std::size_t>(ranks));
  acco::threads_backend::run(ranks, [&](acco::threads_backend const& world) {
    all[static_cast<std::size_t>(world.rank())] = trainer<Task, acco::threads_backend>(s, world).train([](iteration const&) {});
  });
  for (auto& each : all) {
    demand(each.actor == all[0].actor && each.critic == all[0].critic, "all ranks hold the same weights");
    demand(each.updates == s.iterations * s.epochs * s.minibatches, s.schedule + " leaves no minibatch out");
    for (std::size_t k = 0; k < each.history.size(); ++k)
      demand(each.history[k].first_ratio_from_1 < 1e-12, s.schedule + " trains the policy that has collected");
  }
  return all[0];
}

/// 1, 2 and 4 ranks make the updates of PPO on one process; advantages that each rank normalised by itself would be
/// seen.
inline void check_against_plain() {
  const settings s{.environments = 8, .steps = 64, .minibatches = 4, .iterations = 5, .hidden = 8, .entropy = 0.01};
  auto const plain = train_plainly<cart_pole>(s);
  const double apart_by_ranks = distance(plain.actor, train_plainly<cart_pole>(s, 2).actor);
  for (const int ranks : {1, 2, 4}) {
    auto const ours = train_on_threads<cart_pole>(s, ranks);
    const double apart = std::max(distance(plain.actor, ours.actor), distance(plain.critic, ours.critic));
    std::printf("%d ranks and PPO on one process after %zu updates: largest difference %.1e\n", ranks,
                s.iterations * s.epochs * s.minibatches, apart);
    demand(apart < 1e-10, "the weights are those of one process");
    for (std::size_t k = 0; k < s.iterations; ++k)
      demand(ours.history[k].mean_return == plain.history[k].mean_return, "the ranks have seen the same episodes");
  }
  std::printf("advantages normalised by each of 2 ranks: %.1e\n", apart_by_ranks);
  demand(apart_by_ranks > 1e-4, "they would have been seen");
}

/// Where updates travel behind the halves of minibatches, and behind the collection: as many ranks as you like give the
/// same training, another one than synchronous.
inline void check_schedules() {
  settings s{.environments = 8, .steps = 64, .minibatches = 4, .iterations = 4, .hidden = 8};
  auto const measure = train_on_threads<route>(s, 2);
  for (const collecting by : {collecting::committed, collecting::in_use}) {
    s.by = by;
    for (char const* schedule : {"synchronous", "delayed", "two_phase"}) {
      s.schedule = schedule;
      auto const alone = train_on_threads<route>(s, 1), together = train_on_threads<route>(s, 4);
      demand(distance(alone.actor, together.actor) < 1e-10, s.schedule + " trains alike on 1 and 4 ranks");
      const double apart = distance(measure.actor, together.actor);
      demand(s.schedule == "synchronous" ? apart < 1e-10 : apart > 1e-4, s.schedule + " is what it says");
    }
    s.schedule = "two_phase+int4";
    (void)train_on_threads<route>(s, 2);
  }
}

/// The pole is balanced.
inline void check_learning() {
  const settings s{.environments = 16, .steps = 128, .minibatches = 4, .iterations = 20, .hidden = 16};
  const double first = evaluate<cart_pole>(models<cart_pole>(s.hidden).initial_actor(s.seed), s.hidden);
  const double balanced = evaluate<cart_pole>(train_on_threads<cart_pole>(s, 2).actor, s.hidden);
  std::printf("cart_pole after %zu samples: %.1f steps of %.0f, before them %.1f\n", s.iterations * s.batch(), balanced,
              cart_pole::best, first);
  demand(first < 100 && balanced > 400, "the pole is balanced");
}

inline void check_all() {
  check_cart_pole();
  check_route();
  check_endings();
  check_advantages();
  check_gradients();
  check_against_plain();
  check_schedules();
  check_learning();
  std::printf("all checks passed\n");
}

}  // namespace ppo
