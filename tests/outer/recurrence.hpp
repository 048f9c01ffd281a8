// SPDX-License-Identifier: Apache-2.0
// The oracle of local updates: workers, exchanges and outer rules written out once more, whole, in double precision, in
// one thread, from the equations of docs/local_updates.md, without a line of the library's engines.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace recurrence {

using vector = std::vector<double>;

inline double norm(vector const& a) {
  double squares = 0;
  for (const double x : a) squares += x * x;
  return std::sqrt(squares);
}
inline vector minus(vector const& a, vector const& b) {
  vector c(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) c[i] = a[i] - b[i];
  return c;
}

enum class rule { averaging, heavy_ball, nesterov, clipped };
enum class inner { synchronous, delayed, two_phase };
enum class form { blocking, keep, restart, eager, pull };

struct settings {
  std::size_t workers = 1;
  unsigned steps = 1, delay = 0;
  // exchange after so many steps of the first round, and of the first after finish; 0: after all of it
  unsigned first = 0;
  form work = form::blocking;
  rule outer = rule::averaging;
  double rate = 1, momentum = 0, limit = 1, keep_local = 0;
  bool by_samples = false, by_gap = false;
  inner schedule = inner::synchronous;
  double inner_rate = 0.1, inner_momentum = 0;
  /// What becomes of a worker's change, and of the anchor's, on the wire; none: they travel in full.
  std::function<void(vector&)> code_change, code_anchor;
  double feedback_decay = 1;  ///< of what is lost of changes, from one exchange to the next
};

/// What a worker computes in its micro-batch t at these parameters: the mean gradient, and its samples.
using gradient_of = std::function<std::pair<vector, double>(std::size_t worker, std::size_t t, vector const& at)>;

class training {
 public:
  struct worker {
    vector w, velocity, shown;
    std::optional<std::pair<vector, double>> pending;  // a late gradient; the first half of a step
    std::optional<std::pair<vector, double>> second;   // the second half: then a commit is under way
    vector start, sent, before;  // eager: where its round began; what it has sent; keep: its parameters then
    vector lost;                 // of its changes, by their code
    std::size_t id = 0, t = 0;
    unsigned since = 0;
    bool predicts = false;
    double samples = 0;
    unsigned steps = 0;
  };

  training(settings s, vector const& initial, gradient_of gradient)
      : s_(std::move(s)), gradient_(std::move(gradient)), x_(initial), held_(initial), velocity_(initial.size(), 0.0) {
    for (std::size_t m = 0; m < s_.workers; ++m) join(m);
  }

  /// After `finish`. Who joins is at the anchor, and new to everything else. What the codes of those that leave have
  /// lost is the others' from now on, in equal parts; equal workers count otherwise when they are more, or fewer, and
  /// what was lost does not.
  void change(std::vector<std::size_t> const& leaving, std::vector<std::size_t> const& joining) {
    const auto before = static_cast<double>(workers_.size());
    vector lost(x_.size(), 0.0);
    for (const std::size_t id : leaving) {
      for (std::size_t i = 0; i < lost.size(); ++i) lost[i] += of(id).lost[i];
      std::erase_if(workers_, [&](worker const& m) { return m.id == id; });
    }
    const auto staying = static_cast<double>(workers_.size()), now = staying + static_cast<double>(joining.size());
    for (worker& m : workers_) {
      for (std::size_t i = 0; i < lost.size(); ++i)
        m.lost[i] = (m.lost[i] + lost[i] / staying) * (s_.by_samples ? 1 : now / before);
    }
    for (const std::size_t id : joining) join(id);
    told_ = workers_.front().steps;
  }

  /// Every worker's next micro-batch.
  void micro_batch() {
    for (worker& me : workers_) {
      auto now = gradient_(me.id, me.t++, me.shown);
      switch (s_.schedule) {
        case inner::synchronous: local_step(me, now); break;
        case inner::delayed:
          if (me.pending) local_step(me, *me.pending);
          me.pending = std::move(now);
          break;
        case inner::two_phase:
          if (me.pending && !me.second) {  // the estimate has arrived
            me.second = std::move(now);
            me.predicts = true;
            break;
          }
          if (me.pending) local_step(me, whole_step(me));
          me.second.reset();
          me.pending = std::move(now);
      }
    }
    after_steps();
  }
  void finish() {
    for (worker& me : workers_) {
      if (me.second) {
        local_step(me, whole_step(me));
      } else if (me.pending && s_.schedule == inner::delayed) {
        local_step(me, *me.pending);
      }
      me.pending.reset();
      me.second.reset();
    }
    after_steps();
    const bool late = whole() && s_.work != form::keep;
    if (under_way_ && !late) arrive();
    if (workers_.front().since != 0) {
      exchange();
      for (worker& me : workers_) me.since = 0;
    }
    if (under_way_) land();
    held_ = x_;
    for (worker& me : workers_) {
      me.w = me.shown = me.start = x_;
      me.since = begins();
    }
  }

  [[nodiscard]] vector const& anchor() const { return x_; }
  [[nodiscard]] vector const& held() const { return held_; }  // the workers' copy of it
  [[nodiscard]] worker const& of(std::size_t id) const {
    return *std::find_if(workers_.begin(), workers_.end(), [&](worker const& m) { return m.id == id; });
  }
  [[nodiscard]] vector const& momentum() const { return velocity_; }
  [[nodiscard]] double samples() const { return samples_; }

 private:
  void join(std::size_t id) {
    worker m;
    m.id = id;
    m.w = m.shown = m.start = x_;
    m.velocity.assign(x_.size(), 0.0);
    m.lost.assign(x_.size(), 0.0);
    m.since = begins();
    workers_.push_back(m);
  }
  [[nodiscard]] bool whole() const { return s_.delay == s_.steps; }
  [[nodiscard]] unsigned begins() const { return s_.first == 0 ? 0 : s_.steps - s_.first; }
  static std::pair<vector, double> whole_step(worker const& me) {
    auto const& [a, of_a] = *me.pending;
    auto const& [b, of_b] = *me.second;
    std::pair<vector, double> mean{a, of_a + of_b};
    for (std::size_t i = 0; i < a.size(); ++i) mean.first[i] = (of_a * a[i] + of_b * b[i]) / mean.second;
    return mean;
  }
  void local_step(worker& me, std::pair<vector, double> const& g) const {
    for (std::size_t i = 0; i < me.w.size(); ++i) {
      me.velocity[i] = s_.inner_momentum * me.velocity[i] + g.first[i];
      me.w[i] -= s_.inner_rate * me.velocity[i];
    }
    me.samples += g.second;
    ++me.since;
    ++me.steps;
  }
  /// Workers make as many steps each, so they come to their exchanges together.
  void after_steps() {
    const unsigned since = workers_.front().since;
    if (s_.delay != 0 && since == s_.delay && since < s_.steps && under_way_ && workers_.front().steps != told_) arrive();
    if (since == s_.steps) {
      exchange();
      for (worker& me : workers_) me.since = 0;
    }
    told_ = workers_.front().steps;
    for (worker& me : workers_) {
      me.shown = me.w;
      if (!std::exchange(me.predicts, false)) continue;
      for (std::size_t i = 0; i < me.w.size(); ++i)
        me.shown[i] -= s_.inner_rate * (s_.inner_momentum * me.velocity[i] + me.pending->first[i]);
    }
  }

  void exchange() {
    switch (s_.work) {
      case form::blocking:
        send([&](worker const& me) { return minus(held_, me.w); });
        land();
        mix();
        break;
      case form::keep:
        if (under_way_) arrive();
        send([&](worker const& me) { return minus(held_, me.w); });
        for (worker& me : workers_) me.before = me.w;
        break;
      case form::restart: {
        if (!whole()) {
          send([&](worker const& me) { return minus(held_, me.w); });
          break;
        }
        std::vector<vector> changes;
        for (worker const& me : workers_) changes.push_back(minus(held_, me.w));
        const vector before = held_;
        if (under_way_) land();
        moved_ = norm(minus(held_, before));
        std::size_t m = 0;
        send([&](worker const&) { return changes[m++]; });
        mix();
        break;
      }
      case form::eager:
        for (worker& me : workers_) me.sent = minus(me.start, me.w);
        if (under_way_) land();
        send([&](worker const& me) { return me.sent; });
        for (worker& me : workers_) {
          for (std::size_t i = 0; i < me.w.size(); ++i)
            me.w[i] = held_[i] - s_.rate / static_cast<double>(workers_.size()) * me.sent[i];
          me.start = me.w;
        }
        break;
      case form::pull:
        if (under_way_) land();
        send([&](worker const& me) { return minus(held_, me.w); });
        mix();
        break;
    }
  }
  /// The mean of what workers send is under way.
  template <class Change>
  void send(Change&& change) {
    mean_.assign(x_.size(), 0.0);
    double total = 0;
    for (worker& me : workers_) {
      const double weight = s_.by_samples ? me.samples : 1;
      vector d = change(me);
      for (std::size_t i = 0; i < d.size(); ++i) d[i] = weight * d[i] + s_.feedback_decay * me.lost[i];
      if (s_.code_change) {
        me.lost = d;
        s_.code_change(d);
        for (std::size_t i = 0; i < d.size(); ++i) me.lost[i] -= d[i];
      }
      for (std::size_t i = 0; i < d.size(); ++i) mean_[i] += d[i];
      total += weight;
      arriving_ += me.samples;
      me.samples = 0;
    }
    for (double& each : mean_) each /= total;
    under_way_ = true;
  }
  /// The outer rule.
  void land() {
    under_way_ = false;
    samples_ += std::exchange(arriving_, 0);
    const double size = norm(mean_);
    const double gap = s_.by_gap && size > 0 ? 1 + moved_ / size : 1;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const double d = mean_[i] / gap;
      switch (s_.outer) {
        case rule::averaging: x_[i] -= d; break;
        case rule::heavy_ball:
          velocity_[i] = s_.momentum * velocity_[i] + d;
          x_[i] -= s_.rate * velocity_[i];
          break;
        case rule::nesterov:
          velocity_[i] = s_.momentum * velocity_[i] + d;
          x_[i] -= s_.rate * (d + s_.momentum * velocity_[i]);
          break;
        case rule::clipped:
          velocity_[i] = std::clamp(s_.momentum * velocity_[i] + d, -s_.limit, s_.limit);
          x_[i] -= s_.rate * velocity_[i];
          break;
      }
    }
    if (s_.code_anchor) {
      vector step = minus(x_, held_);
      s_.code_anchor(step);
      for (std::size_t i = 0; i < step.size(); ++i) held_[i] += step[i];
    } else {
      held_ = x_;
    }
  }
  void arrive() {
    land();
    if (s_.work != form::keep) return mix();
    for (worker& me : workers_) {
      for (std::size_t i = 0; i < me.w.size(); ++i) me.w[i] = held_[i] + (me.w[i] - me.before[i]);
    }
  }
  void mix() {
    for (worker& me : workers_) {
      for (std::size_t i = 0; i < me.w.size(); ++i) me.w[i] = s_.keep_local * me.w[i] + (1 - s_.keep_local) * held_[i];
    }
  }

  settings s_;
  gradient_of gradient_;
  vector x_, held_, velocity_, mean_;
  std::vector<worker> workers_;
  bool under_way_ = false;
  unsigned told_ = 0;
  double moved_ = 0, samples_ = 0, arriving_ = 0;
};

}  // namespace recurrence
