// SPDX-License-Identifier: Apache-2.0
#include "simulation/history.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <acco/layout/partition.hpp>

#include "support/reference.hpp"

namespace simulation {
namespace {

using vector = std::vector<double>;

class replayer {
 public:
  replayer(setting const& s, outcome const& o, std::size_t number) : s_(s), o_(o), number_(number), t_(s.trainings[number]) {
    for (std::size_t k = 0; k < t_.layout.tensor_count(); ++k) {
      auto const tensor = t_.layout[k];
      for (std::size_t i = 0; i < tensor.size; ++i) group_.push_back(tensor.group);
    }
    theta_.resize(group_.size());
    for (std::size_t i = 0; i < theta_.size(); ++i) theta_[i] = derivative(t_.data, i, 0);
    state_.assign(most_slots * theta_.size(), 0);
    others_.assign(theta_.size(), 0);
    const acco::partition shares(t_.layout.trainable_size(), s.ranks, t_.bucket_elements);
    std::size_t trainable = 0;
    for (std::size_t i = 0; i < theta_.size(); ++i) owner_.push_back(frozen(i) ? -1 : shares.owner_of(trainable++).rank);
    h_.known = t_.exact();
  }

  history operator()() {
    record(theta_);
    h_.base.push_back(0);
    for (std::size_t segment = 0; segment < t_.micro_batches.size(); ++segment) {
      if (!play(segment)) break;
      h_.base.push_back(h_.rounds.size());
    }
    return std::move(h_);
  }

 private:
  struct carried {
    vector sum;
    double weight = 0;
    bool poisoned = false;
  };

  /// Whether the segment has come to its end.
  bool play(std::size_t segment) {
    std::size_t finished_at = 0;  // the first round in which every rank is finishing
    bool all_finish = true;
    std::vector<segment_log const*> logs;
    for (rank_log const& rank : o_.ranks) {
      if (rank.trainings.size() <= number_ || rank.trainings[number_].segments.size() <= segment) return false;
      logs.push_back(&rank.trainings[number_].segments[segment]);
      all_finish = all_finish && logs.back()->finishing;
      auto const& parts = logs.back()->parts;
      finished_at = std::max(finished_at, parts.size() - (t_.drops && t_.completes(parts.back().size()) ? 0 : 1));
    }
    const std::size_t base = h_.rounds.size();
    vector const start = theta_;
    moved_.assign(theta_.size(), 0);
    carried kept;  // of the rounds of this step before
    const bool corrects = t_.wires == wire_kind::estimate_corrected;
    std::vector<carried> of_ranks(corrects ? static_cast<std::size_t>(s_.ranks) : 0,
                                  {vector(theta_.size(), 0.0)});  // of this step
    for (std::size_t r = 0;; ++r) {
      const bool everybody_finishes = all_finish && r >= finished_at;
      // Where this part was computed: at what had landed before the round in front of it started.
      vector const& at = t_.waits() ? (r == 0 ? start : h_.shown[base + r]) : (r < 2 ? start : h_.shown[base + r - 1]);
      const bool commits = t_.commits(r), own = t_.own_estimates() && !commits;
      carried fresh{vector(theta_.size(), 0.0)};
      vector guess(theta_.size(), 0.0);  // every owner's, from its own samples: their mean, or all ranks' sum
      for (int rank = 0; rank < s_.ranks; ++rank) {
        segment_log const& log = *logs[static_cast<std::size_t>(rank)];
        if (r >= log.parts.size()) {
          if (!log.finishing) return false;  // this rank did not come to this round: nobody has seen it end
          continue;
        }
        carried mine{vector(theta_.size(), 0.0)};
        for (const std::size_t m : log.parts[r]) {
          add(fresh, at, segment, rank, m);
          if (own) add(mine, at, segment, rank, m);
          if (corrects) add(of_ranks[static_cast<std::size_t>(rank)], at, segment, rank, m);
        }
        for (std::size_t i = 0; own && mine.weight > 0 && i < guess.size(); ++i) {
          if (owner_[i] == rank) guess[i] = mine.sum[i] / mine.weight;
        }
      }
      const double weight_here = fresh.weight;
      carried whole = std::move(fresh);
      if (t_.two_rounds() && commits) {
        for (std::size_t i = 0; i < whole.sum.size(); ++i) whole.sum[i] += kept.sum[i];
        whole.weight += kept.weight;
        whole.poisoned = whole.poisoned || kept.poisoned;
      }
      if (everybody_finishes && (t_.drops || whole.weight == 0)) {
        dropped_ += whole.weight;
        return ended(r);
      }
      history::round now{.index = first_round_ + r, .commits = commits, .weight = t_.keeps() ? whole.weight : weight_here};
      now.rate = t_.rate({samples_, steps_});
      if (whole.poisoned && s_.kind == disaster::raised) {
        h_.raised = true;
        return false;
      }
      now.skipped = whole.poisoned;
      now.so_far = whole.weight;
      now.step_weight = whole.poisoned ? 0 : whole.weight;
      now.applied = now.step_weight > 0;
      vector next = theta_;
      if (now.applied) {
        if (h_.known && !own) {
          scale(whole, now);
          for (std::size_t i = 0; t_.late == lateness::compensated && i < moved_.size(); ++i)
            whole.sum[i] += strength * whole.sum[i] * whole.sum[i] * moved_[i];
          vector scratch = state_;
          next = update(theta_, commits ? state_ : scratch, whole.sum, now.rate, steps_ + 1);
        }
        if (commits) {
          for (std::size_t i = 0; i < moved_.size(); ++i) moved_[i] = next[i] - theta_[i];
          for (std::size_t i = 0; corrects && i < others_.size(); ++i) {
            if (owner_[i] < 0) continue;
            carried const& mine = of_ranks[static_cast<std::size_t>(owner_[i])];
            const double others = now.step_weight - mine.weight;
            if (others > 0 && 64 * others >= now.step_weight) others_[i] = (sum_[i] - mine.sum[i]) / others;
          }
          theta_ = next;
          for (std::size_t i = 0; t_.late == lateness::extrapolated && i < moved_.size(); ++i) next[i] += ahead * moved_[i];
          ++steps_;
          samples_ += now.step_weight;
          if (t_.schedule == schedule_kind::weight_prediction && h_.known) {
            vector ahead = state_;
            next = update(theta_, ahead, whole.sum, t_.rate({samples_, steps_}), steps_ + 1);
          }
        } else if (own) {
          for (double& g : guess) g *= whole.weight;
          for (std::size_t i = 0; corrects && steps_ > 0 && i < guess.size(); ++i) {
            if (owner_[i] < 0) continue;
            carried const& mine = of_ranks[static_cast<std::size_t>(owner_[i])];
            guess[i] = mine.sum[i] + (whole.weight - mine.weight) * others_[i];
          }
          vector scratch = state_;
          carried of_owners{guess, whole.weight};
          scale(of_owners, now);
          next = update(theta_, scratch, of_owners.sum, now.rate, steps_ + 1);
        } else if (t_.keeps()) {
          next = estimated(segment, r).value_or(next);
        }
      } else if (commits) {
        moved_.assign(theta_.size(), 0);
      }
      kept = {};
      for (carried& each : of_ranks) {
        if (commits) each = {vector(theta_.size(), 0.0)};
      }
      if (!commits) {
        kept = std::move(whole);
        if (now.applied) {
          if (h_.known && !own) kept.sum = sum_;    // `scale` has divided
        } else if (kept.poisoned && !t_.keeps()) {  // dropped; what is kept in an accumulator is still poisoned
          kept = {vector(theta_.size(), 0.0)};
        }
      }
      h_.rounds.push_back(now);
      record(next);
      if (everybody_finishes && commits) return ended(r + 1);
    }
  }
  /// After so many rounds; the next segment begins with a step.
  bool ended(std::size_t rounds) {
    h_.dropped.push_back(dropped_);
    first_round_ += t_.two_rounds() ? (rounds + 1) / 2 * 2 : rounds;
    return true;
  }

  void add(carried& to, vector const& at, std::size_t segment, int rank, std::size_t m) const {
    const double weight = t_.weight(segment, rank, m);
    const double factor = weight == 0 && t_.stray_gradients ? 0.5 : weight;
    to.weight += weight;
    if (s_.poisons() && number_ == s_.strikes_in && rank == s_.culprit && segment == s_.segment && m == s_.at) to.poisoned = true;
    if (factor == 0 || !h_.known) return;
    const std::uint64_t sample = t_.sample(segment, rank, m);
    for (std::size_t i = 0; i < at.size(); ++i) to.sum[i] += factor * derivative(sample, i, at[i]);
  }
  [[nodiscard]] bool frozen(std::size_t i) const { return t_.layout.groups()[group_[i]].frozen; }

  /// The mean gradient, clipped; `sum_` keeps what it was.
  void scale(carried& whole, history::round& now) {
    sum_ = whole.sum;
    double square = 0;
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      whole.sum[i] /= whole.weight;
      if (!frozen(i)) square += whole.sum[i] * whole.sum[i];
    }
    now.norm = std::sqrt(square);
    now.clip = t_.clip_norm > 0 && now.norm > t_.clip_norm ? t_.clip_norm / now.norm : 1;
    for (double& g : whole.sum) g *= now.clip;
  }
  vector update(vector p, vector& slots, vector const& mean, double rate, std::uint64_t t) const {
    acco::visit_at(acco::all_rules{}, t_.rule, [&](auto const& untuned) {
      auto const rule = tuned(untuned);
      for (std::size_t i = 0; i < p.size(); ++i) {
        if (frozen(i)) continue;
        acco::update_group const& group = t_.layout.groups()[group_[i]];
        const reference::hyper hyper{rule.learning_rate * group.learning_rate_scale * rate,
                                     group.weight_decay.value_or(rule.weight_decay), false};
        reference::update(rule, p[i], mean[i], &slots[most_slots * i], static_cast<double>(t), hyper);
      }
    });
    return p;
  }
  /// What a rank saw after an encoded estimate.
  [[nodiscard]] std::optional<vector> estimated(std::size_t segment, std::size_t r) const {
    for (rank_log const& rank : o_.ranks) {
      for (snapshot const& seen_by : rank.trainings[number_].snapshots) {
        if (seen_by.what == seen::report && seen_by.segment == segment && seen_by.boundary == r + 1) return seen_by.parameters;
      }
    }
    return {};  // every rank was finishing: nobody computed there
  }
  void record(vector const& shown) {
    h_.shown.push_back(shown);
    h_.committed.push_back(theta_);
    h_.samples.push_back(samples_);
    h_.steps.push_back(steps_);
  }

  setting const& s_;
  outcome const& o_;
  std::size_t number_;
  training_setting const& t_;
  std::vector<std::size_t> group_;  // by element
  std::vector<int> owner_;          // likewise; -1: frozen
  vector theta_, state_, sum_, moved_, others_;
  double samples_ = 0, dropped_ = 0;
  std::uint64_t steps_ = 0;
  std::size_t first_round_ = 0;
  history h_;
};

}  // namespace

history replay(setting const& drawn, outcome const& seen_by_ranks, std::size_t training) {
  return replayer(drawn, seen_by_ranks, training)();
}

}  // namespace simulation
