// SPDX-License-Identifier: Apache-2.0
// The oracle: every algorithm written out once more, unsharded, in double precision, in one thread, without a line of
// the library's engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <acco/layout/parameter_layout.hpp>
#include <acco/layout/partition.hpp>
#include <acco/rule/all.hpp>
#include <acco/rule/gpa.hpp>

#include "support/problem.hpp"

namespace reference {

using vector = std::vector<double>;

/// One parameter's group as the textbook formulas need it.
struct hyper {
  double learning_rate, weight_decay;
  bool frozen;
};

/// Textbook updates of one element; s holds the state. t counts from 1.
inline void update(acco::adamw const& r, double& p, double g, double* s, double t, hyper h) {
  s[0] = r.beta1 * s[0] + (1 - r.beta1) * g;
  s[1] = r.beta2 * s[1] + (1 - r.beta2) * g * g;
  const double m = s[0] / (1 - std::pow(r.beta1, t));
  const double v = s[1] / (1 - std::pow(r.beta2, t));
  p -= h.learning_rate * h.weight_decay * p;
  p -= h.learning_rate * m / (std::sqrt(v) + r.epsilon);
}
inline void update(acco::sgd const& r, double& p, double g, double* s, double, hyper h) {
  if (r.weight_decay_kind == acco::decay::classic) {
    g += h.weight_decay * p;
  }
  s[0] = r.momentum * s[0] + g;
  const double direction = r.nesterov ? g + r.momentum * s[0] : s[0];
  if (r.weight_decay_kind == acco::decay::decoupled) p -= h.learning_rate * h.weight_decay * p;
  p -= h.learning_rate * direction;
}
inline void update(acco::lion const& r, double& p, double g, double* s, double, hyper h) {
  const double c = r.beta1 * s[0] + (1 - r.beta1) * g;
  p -= h.learning_rate * h.weight_decay * p;
  p -= h.learning_rate * (c > 0 ? 1.0 : c < 0 ? -1.0 : 0.0);
  s[0] = r.beta2 * s[0] + (1 - r.beta2) * g;
}

/// The paper's three sequences, z and x found from y and what the slot says that x lies ahead of it.
template <class Rule>
void update(acco::gpa<Rule> const& r, double& y, double g, double* s, double t, hyper h) {
  double x = y + s[Rule::slot_count], z = (y - r.averaging.interpolation * x) / (1 - r.averaging.interpolation);
  update(static_cast<Rule const&>(r), z, g, s, t, h);
  x = r.averaging.average_decay * x + (1 - r.averaging.average_decay) * z;
  y = r.averaging.interpolation * x + (1 - r.averaging.interpolation) * z;
  s[Rule::slot_count] = x - y;
}

enum class algorithm {
  synchronous,
  delayed,
  two_phase,
  weight_prediction,
  extrapolation,
  velocity,
  compensated,
  own_slice,
  own_corrected
};

/// Those of acco::all_schedules, by name.
inline algorithm algorithm_called(std::string_view name) {
  for (auto const& [called, kind] : {std::pair<std::string_view, algorithm>{"synchronous", algorithm::synchronous},
                                     {"delayed", algorithm::delayed},
                                     {"two_phase", algorithm::two_phase},
                                     {"weight_prediction", algorithm::weight_prediction}}) {
    if (called == name) return kind;
  }
  throw std::logic_error("tests/support/reference.hpp does not train as " + std::string(name));
}

struct setting {
  int ranks = 1;
  std::size_t first = 1, second = 1;       // micro-batches in the parts of a step
  std::vector<std::size_t> micro_batches;  // that each rank has in all
  double clip_norm = 0;
  std::function<double(double)> learning_rate = [](double) { return 1.0; };
  double ahead = 1, decay = 0.135;  // of extrapolation and velocity
  // of compensated: lambda, and the decay of the squares that divide it; negative: none
  double strength = 0.04, squares = 0;
  std::size_t bucket_elements = 0;  // of own_slice, own_corrected: who owns what
};

struct outcome {
  vector parameters;  // committed, at the end
  double samples = 0;
  std::size_t steps = 0;
  std::vector<double> norms, clips;  // of each round that had something to update with
};

/// Trains from problem::initial until every rank's micro-batches are used up.
template <class Rule>
outcome train(algorithm kind, Rule const& rule, acco::parameter_layout const& layout, setting const& s) {
  const std::size_t count = layout.size();
  std::vector<hyper> base(count);
  for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
    auto const tensor = layout[k];
    auto const& group = layout.groups()[tensor.group];
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      base[i] = {rule.learning_rate * group.learning_rate_scale, group.weight_decay.value_or(rule.weight_decay), group.frozen};
    }
  }
  outcome out;
  vector theta = problem::initial(count);  // committed
  constexpr std::size_t slots_each = Rule::slot_count;
  std::vector<double> state(slots_each * count, 0.0);
  std::vector<std::size_t> used(static_cast<std::size_t>(s.ranks), 0);

  // Computes at `at` what all ranks put into a part of `length` micro-batches.
  struct gradients {
    vector sum;
    double weight = 0;
    vector own = {};                // every element of its owner's sum
    std::vector<double> mine = {};  // every rank's weight
  };
  std::vector<int> owner(count, -1);
  {
    const acco::partition shares(layout.trainable_size(), s.ranks, s.bucket_elements);
    std::size_t index = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!base[i].frozen) owner[i] = shares.owner_of(index++).rank;
    }
  }
  const auto compute = [&](vector const& at, std::size_t length) {
    gradients g{vector(count, 0.0), 0, vector(count, 0.0), std::vector<double>(static_cast<std::size_t>(s.ranks), 0.0)};
    for (int rank = 0; rank < s.ranks; ++rank) {
      const vector before = g.sum;
      const double before_weight = g.weight;
      auto& done = used[static_cast<std::size_t>(rank)];
      for (std::size_t k = 0; k < length && done < s.micro_batches[static_cast<std::size_t>(rank)]; ++k, ++done) {
        const std::size_t samples = problem::batch_size(rank, done);
        for (std::size_t j = 0; j < samples; ++j) {
          problem::add_sample(problem::sample_id(rank, done, j), std::span<double const>(at), std::span<double>(g.sum));
        }
        g.weight += static_cast<double>(samples);
      }
      for (std::size_t i = 0; i < count; ++i) {
        if (owner[i] == rank) g.own[i] = g.sum[i] - before[i];
      }
      g.mine[static_cast<std::size_t>(rank)] = g.weight - before_weight;
    }
    return g;
  };
  const auto left = [&] {
    for (std::size_t r = 0; r < used.size(); ++r) {
      if (used[r] < s.micro_batches[r]) return true;
    }
    return false;
  };
  vector moved(count, 0.0), squares(count, 0.0);
  bool late = false;
  const auto correct = [&](std::size_t i, double g) {
    if (kind != algorithm::compensated) return g;
    if (s.squares >= 0) squares[i] = s.squares * squares[i] + (1 - s.squares) * g * g;
    const double strength = s.squares >= 0 ? s.strength / std::sqrt(squares[i] + 1e-7) : s.strength;
    return g + (late ? strength * g * g * moved[i] : 0);
  };
  // The rule with clipping, on copies: returns parameters, leaves the state in `slots`.
  const auto step = [&](vector p, std::vector<double>& slots, vector const& sum, double weight, std::size_t t, double samples) {
    double square = 0;
    for (std::size_t i = 0; i < count; ++i) square += base[i].frozen ? 0 : sum[i] / weight * (sum[i] / weight);
    const double norm = std::sqrt(square);
    const double clip = s.clip_norm > 0 && norm > s.clip_norm ? s.clip_norm / norm : 1;
    out.norms.push_back(norm);
    out.clips.push_back(clip);
    for (std::size_t i = 0; i < count; ++i) {
      if (base[i].frozen) continue;
      hyper h = base[i];
      h.learning_rate *= s.learning_rate(samples);
      update(rule, p[i], correct(i, sum[i] / weight * clip), slots.data() + slots_each * i, static_cast<double>(t), h);
    }
    return p;
  };
  const auto commit = [&](vector const& sum, double weight) {
    if (weight == 0) return;
    theta = step(theta, state, sum, weight, out.steps + 1, out.samples);
    ++out.steps;
    out.samples += weight;
  };
  const auto predict = [&](vector const& sum, double weight) {
    if (weight == 0) return theta;
    std::vector<double> scratch = state;
    return step(theta, scratch, sum, weight, out.steps + 1, out.samples);
  };

  if (kind == algorithm::synchronous) {
    while (left()) {
      const gradients g = compute(theta, s.first);
      commit(g.sum, g.weight);
    }
  } else if (kind == algorithm::delayed) {
    gradients pending = compute(theta, s.first);  // at theta[0]
    while (left()) {
      const gradients next = compute(theta, s.first);  // while `pending` travels
      commit(pending.sum, pending.weight);
      pending = next;
    }
    commit(pending.sum, pending.weight);
  } else if (kind == algorithm::compensated) {
    gradients pending = compute(theta, s.first);
    const auto commit_and_measure = [&] {
      const vector before = theta;
      commit(pending.sum, pending.weight);
      for (std::size_t i = 0; i < count; ++i) moved[i] = theta[i] - before[i];
      late = true;
    };
    while (left()) {
      const gradients next = compute(theta, s.first);
      commit_and_measure();
      pending = next;
    }
    commit_and_measure();
  } else if (kind == algorithm::extrapolation || kind == algorithm::velocity) {
    vector shown = theta, change(count, 0.0);
    const double keep = kind == algorithm::velocity ? s.decay : 0;
    gradients pending = compute(shown, s.first);
    const auto commit_and_show = [&] {
      const vector before = theta;
      commit(pending.sum, pending.weight);
      shown = theta;
      if (pending.weight == 0) return;
      for (std::size_t i = 0; i < count; ++i) {
        change[i] = keep * change[i] + (1 - keep) * (theta[i] - before[i]);
        shown[i] += s.ahead * change[i];
      }
    };
    while (left()) {
      const gradients next = compute(shown, s.first);
      commit_and_show();
      pending = next;
    }
    commit_and_show();
  } else if (kind == algorithm::weight_prediction) {
    vector shown = theta;
    gradients pending = compute(shown, s.first);
    const auto commit_and_show = [&] {
      commit(pending.sum, pending.weight);
      if (pending.weight == 0) {
        shown = theta;
        return;
      }
      const std::size_t norms = out.norms.size();
      shown = predict(pending.sum, pending.weight);
      out.norms.resize(norms);
      out.clips.resize(norms);
    };
    while (left()) {
      const gradients next = compute(shown, s.first);
      commit_and_show();
      pending = next;
    }
    commit_and_show();
  } else {
    vector others(count, 0.0);              // every element: the mean of those who do not own it, in the last step
    gradients a = compute(theta, s.first);  // theta~[0] = theta[0]
    for (;;) {
      const gradients b = compute(theta, s.second);  // at theta[t], while the estimate is under way
      vector estimate = a.sum;
      if (kind == algorithm::own_corrected && out.steps > 0) {
        for (std::size_t i = 0; i < count; ++i) {
          if (owner[i] < 0) continue;
          estimate[i] = a.own[i] + (a.weight - a.mine[static_cast<std::size_t>(owner[i])]) * others[i];
        }
        // the mean of own samples, or nothing
      } else if (kind == algorithm::own_slice || kind == algorithm::own_corrected) {
        for (std::size_t i = 0; i < count; ++i) {
          if (owner[i] < 0) continue;
          const double mine = a.mine[static_cast<std::size_t>(owner[i])];
          estimate[i] = mine > 0 ? a.own[i] / mine * a.weight : 0;
        }
      }
      const vector tilde = predict(estimate, a.weight);  // theta~[t+1]
      // The next first half is computed at theta~[t+1] while the commit is under way. Ranks that have nothing left take
      // part with nothing.
      const bool more = left();
      gradients next{vector(count, 0.0), 0};
      if (more) next = compute(tilde, s.first);
      vector sum = a.sum;
      for (std::size_t i = 0; i < count; ++i) sum[i] += b.sum[i];
      commit(sum, a.weight + b.weight);
      for (std::size_t i = 0; i < count; ++i) {
        if (owner[i] < 0) continue;
        const auto rank = static_cast<std::size_t>(owner[i]);
        const double of_others = a.weight + b.weight - a.mine[rank] - b.mine[rank];
        if (of_others > 0 && 64 * of_others >= a.weight + b.weight) others[i] = (sum[i] - a.own[i] - b.own[i]) / of_others;
      }
      if (!more) break;
      a = next;
    }
  }
  out.parameters = theta;
  return out;
}

}  // namespace reference
