// SPDX-License-Identifier: Apache-2.0
// The codes that a planned encoding has chosen, bucket by bucket, and the sums from which it chooses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "acco/encoding/encoding.hpp"
#include "acco/encoding/plan.hpp"
#include "acco/layout/partition.hpp"
#include "acco/number/finite.hpp"
#include "acco/observe/planned_bucket.hpp"
#include "acco/storage/coding.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A plan at a time between two rounds, to go back to: what has been measured for the next one is part of it.
struct kept_codes {
  std::vector<std::uint8_t> chosen;
  std::vector<double> known, all;
  bool measured = false;
};

/// One plan: the ranks have the same, made from the same sums. The trainer's thread calls all members but `measure`, a task.
class bucket_codes {
 public:
  /// Gradients may travel by this, in these buckets, of which a rank encodes so many shares.
  template <encoding Encoding>
  void add([[maybe_unused]] Encoding const& e, [[maybe_unused]] partition const& shares, [[maybe_unused]] std::size_t encoded) {
    if constexpr (plans<Encoding>) {
      budget_ = e.budget;
      every_ = e.every;
      first_ = static_cast<std::uint8_t>(e.first);
      choices_ = Encoding::count;
      const std::size_t buckets = shares.buckets();
      chosen_.assign(buckets, first_);
      names_ = &Encoding::name_of;
      mine_.assign(buckets * (choices_ + 1), 0);
      all_ = mine_;
      for (std::size_t k = 0; k < buckets; ++k) {
        for (std::size_t choice = 0; choice < choices_; ++choice) {
          Encoding::visit(choice, [&]<class Each>(Each const&) {
            size_.push_back(static_cast<double>(encoded_size<Each>(shares[k].share) * encoded));
          });
        }
      }
      planner_ = {buckets, choices_};
      error_.reserve(buckets * choices_);
      known_.reserve(all_.size());
      planned_.reserve(buckets);
    }
  }
  [[nodiscard]] bool any() const noexcept { return choices_ != 0; }

  /// Calls f(encoding) with the one by which a bucket travels.
  template <encoding Encoding, class F>
  void with(Encoding const& e, [[maybe_unused]] std::size_t bucket, F&& f) const {
    if constexpr (plans<Encoding>) {
      Encoding::visit(chosen_[bucket], f);
    } else {
      with_chosen(e, f);
    }
  }

  /// Whether the commit after so many is measured, as every one is until there is a plan; then every bucket is, and `all` becomes
  /// the sum of `mine` over the ranks.
  [[nodiscard]] bool begin_measuring(std::uint64_t steps) {
    if (every_ == 0 || (steps % every_ != 0 && !known_.empty())) return false;
    std::fill(all_.begin(), all_.end(), -1.0);  // until they have arrived
    measured_ = true;
    return true;
  }
  /// What each encoding would lose of a bucket, whose shares are encoded one by one, and its own square. A task.
  template <encoding Encoding, class T>
  void measure(bucket const& b, std::size_t shares, T const* from) noexcept {
    double* to = mine_.data() + b.index * (choices_ + 1);
    for (std::size_t choice = 0; choice < choices_; ++choice) {
      to[choice] = 0;
      Encoding::visit(choice, [&](auto const& each) {
        for (std::size_t k = 0; k < shares; ++k) to[choice] += coding::squared_error(each, from + k * b.share, b.share);
      });
    }
    to[choices_] = elementwise::sum_of_squares(from, shares * b.share);
  }
  [[nodiscard]] std::span<double const> mine() const noexcept { return mine_; }
  [[nodiscard]] std::span<double> all() noexcept { return all_; }

  /// Between rounds: makes the plan of what has been measured since the last one, if something has. Where all gradients were 0
  /// nothing was measured. A bucket in which they were, of embeddings that no rank's batch has, say, keeps its code: what the
  /// others would lose of it is not known.
  void plan() {
    if (!measured_) return;
    measured_ = false;
    double energy = 0;
    for (double const each : all_) {
      if (!is_finite(each) || each < 0) return;
    }
    error_.clear();
    const std::size_t buckets = chosen_.size();
    for (std::size_t k = 0; k < buckets; ++k) {
      double const* of = all_.data() + k * (choices_ + 1);
      error_.insert(error_.end(), of, of + choices_);
      energy += of[choices_];
    }
    if (!(energy > 0)) return;
    planned_.resize(buckets);
    planner_.plan({buckets, choices_, error_, size_}, budget_ * energy, planned_);
    for (std::size_t k = 0; k < buckets; ++k) {
      if (all_[k * (choices_ + 1) + choices_] > 0) chosen_[k] = planned_[k];
    }
    known_ = all_;
  }
  /// Nothing has been measured, and every bucket travels by the first again.
  void forget() noexcept {
    measured_ = false;
    known_.clear();
    std::fill(chosen_.begin(), chosen_.end(), first_);
  }
  /// When the round in flight has been worked off. Allocates the first time only.
  void keep(kept_codes& to) const {
    to.known.reserve(all_.size());
    to.chosen = chosen_;
    to.known = known_;
    to.all = all_;
    to.measured = measured_;
  }
  /// As it was when it was kept.
  void put(kept_codes const& from) {
    chosen_ = from.chosen;
    known_ = from.known;
    all_ = from.all;
    measured_ = from.measured;
  }
  /// Each bucket, by what it travels now, and what that lost of it when it was measured.
  [[nodiscard]] std::vector<planned_bucket> describe(partition const& shares) const {
    std::vector<planned_bucket> found;
    for (std::size_t k = 0; k < chosen_.size(); ++k) {
      const std::size_t begin = shares[k].begin;
      planned_bucket& each = found.emplace_back();
      each.begin = begin;
      each.count = std::min(shares[k].share * static_cast<std::size_t>(shares.ranks()), shares.size() - begin);
      each.encoding = names_(chosen_[k]);
      each.bytes = static_cast<std::size_t>(size_[k * choices_ + chosen_[k]]);
      if (known_.empty()) continue;
      double const* of = known_.data() + k * (choices_ + 1);
      each.lost = of[choices_] > 0 ? of[chosen_[k]] / of[choices_] : 0;
    }
    return found;
  }

 private:
  double budget_ = 0;
  unsigned every_ = 0;
  std::uint8_t first_ = 0;
  std::size_t choices_ = 0;
  char const* (*names_)(std::size_t) noexcept = nullptr;
  std::vector<std::uint8_t> chosen_;        // by bucket
  std::vector<std::uint8_t> planned_;       // the same, while a plan is made
  std::vector<double> size_, error_;        // by bucket and choice
  std::vector<double> mine_, all_, known_;  // by bucket: of every choice what it loses, and the square of all; of the last plan
  bool measured_ = false;                   // since the last plan
  choice_planner planner_;
};

}  // namespace ACCO_SIMD_NAMESPACE
