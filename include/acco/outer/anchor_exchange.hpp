// SPDX-License-Identifier: Apache-2.0
// The outer level's own rounds. Reduce the workers' changes, update the anchor by the outer rule, gather it: that is
// what an engine does with gradients, so an engine does it, over the ranks that hold the same slice in their workers.
// Anchor and outer state are its masters and slots, sharded once more over those ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "acco/collective/backend_in_use.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/regroup.hpp"
#include "acco/outer/split_backend.hpp"
#include "acco/round/engine.hpp"
#include "acco/round/rule_in_use.hpp"
#include "acco/round/schedule_in_use.hpp"
#include "acco/schedule/delayed.hpp"
#include "acco/schedule/synchronous.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/storage/host.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// One rank's, of one fragment. `w` is that fragment of this rank's slice of its worker's masters, always: nothing of
/// the worker's is in flight. The trainer's thread calls all members; those that communicate are called by the ranks of
/// the exchange in the same order.
template <class Master>
class anchor_exchange {
 public:
  using storage = host_storage<Master, Master, Master>;
  using engine = round_engine<storage>;

  template <class Exchange, class Rule, class Backend>
  anchor_exchange(exchange_settings const& settings, Exchange const& exchange, Rule rule, storage memory,
                  split_backend<Backend> group, std::size_t slice, options chosen)
      : settings_(settings),
        slice_(slice),
        storage_(memory),
        engine_(schedule(settings, exchange_wire(exchange)), std::make_unique<rule_of<Rule, storage>>(std::move(rule)), memory,
                std::make_unique<backend_of<split_backend<Backend>, storage>>(std::move(group)), parameter_layout(slice),
                std::move(chosen)) {
    engine_.loop().serve_worker();
  }

  void count(memory_table& table) const noexcept {
    table.outer += engine_.memory().total() + storage::allocation_size(copy_bytes(), 0);
  }
  /// The anchor begins as the first worker's masters. Collective; blocks.
  void begin(std::span<Master const> w) {
    own_ = storage_.allocate(copy_bytes(), 0);
    engine_.initialize(w);
    keep(w);
  }
  /// The same for what is loaded then.
  void begin() {
    own_ = storage_.allocate(copy_bytes(), 0);
    engine_.begin();
  }
  /// Instead of `begin`, in the world `to` of those that are left of `lost`'s: the anchor is that of who has landed
  /// most exchanges; the outer rule begins anew, and what codes have lost is dropped. Where a worker waits, or what is
  /// done meanwhile is kept, `w` has all that nobody has landed; else it becomes the anchor. Whether others have landed
  /// one that this rank has not. Collective over `to`; blocks.
  template <class World>
  bool survive(World& to, anchor_exchange const& lost, std::span<Master> w) {
    std::vector<std::uint64_t> landed(static_cast<std::size_t>(to.size()));
    to.gather(lost.exchanges_, std::span(landed));
    auto const newest = std::max_element(landed.begin(), landed.end());
    std::vector<Master> x(lost.anchor().begin(), lost.anchor().end());
    samples_ = lost.samples_;
    to.broadcast(std::span(x), static_cast<int>(newest - landed.begin()));
    to.broadcast(std::span(&samples_, 1), static_cast<int>(newest - landed.begin()));
    own_ = storage_.allocate(copy_bytes(), 0);
    engine_.initialize(x);
    exchanges_ = *newest;
    const bool behind = lost.exchanges_ != exchanges_ || !lost.followed_;
    if (!keeps_work()) {
      std::copy(x.begin(), x.end(), w.begin());
    } else if (behind && settings_.blocks()) {
      (void)mix(w);
    } else if (behind) {
      Master const* const own = lost.own_.template as<Master>();
      for (std::size_t i = 0; i < slice_; ++i) w[i] = x[i] + (w[i] - own[i]);
    }
    keep(w);
    return behind;
  }
  [[nodiscard]] bool keeps_work() const noexcept { return settings_.blocks() || settings_.work == work_meanwhile::keep; }
  /// The anchor becomes the first worker's masters, at rest. Collective; blocks.
  void set(std::span<Master const> w) {
    engine_.set_parameters(w);
    keep(w);
  }

  /// The worker has made its steps since the last exchange, of so many samples: starts the next one, or makes it.
  /// Whether `w` has changed.
  bool exchange(std::span<Master> w, double samples) {
    const double weight = settings_.weights == worker_weights::samples ? samples : 1;
    if (settings_.blocks()) {
      send(w, weight, samples);
      return mix(w);
    }
    switch (settings_.work) {
      case work_meanwhile::keep: {
        const bool changed = arrive(w);
        keep(w);
        send(w, weight, samples);
        return changed;
      }
      case work_meanwhile::eager: {
        auto const gradients = engine_.gradients();
        Master* const own = copy().data();
        for (std::size_t i = 0; i < slice_; ++i) {
          own[i] -= w[i];
          gradients[i] += own[i];
        }
        turn(1, samples);
        auto const x = anchor();
        const auto share = static_cast<Master>(settings_.rate / settings_.workers);
        for (std::size_t i = 0; i < slice_; ++i) own[i] = w[i] = x[i] - share * own[i];
        followed_ = true;
        return true;
      }
      case work_meanwhile::restart:
      case work_meanwhile::pull: break;
    }
    if (!settings_.takes_whole_round()) {
      send(w, weight, samples);
      return false;
    }
    // the mean will be that of w, whichever anchor changes are against
    if (settings_.work == work_meanwhile::pull) land_now();
    add(w, weight);  // restart: against the anchor of their start, before the next one lands
    turn(weight, samples);
    return mix(w);
  }
  /// This worker's speed travels with its next exchange; the sum of all in the one that has landed last, or 0.
  void brings(double speed) noexcept { engine_.loop().brings(speed); }
  [[nodiscard]] double speed_of_all() const noexcept { return speed_of_all_; }
  /// After as many steps as the exchange under way may take, less than a round: brings its anchor to `w`. Whether that
  /// changed.
  bool arrive(std::span<Master> w) {
    if (!in_flight_) return false;
    land_now();
    in_flight_ = false;
    if (settings_.work != work_meanwhile::keep) return mix(w);
    auto const x = anchor();
    Master const* const own = copy().data();
    for (std::size_t i = 0; i < slice_; ++i) w[i] = x[i] + (w[i] - own[i]);
    followed_ = true;
    return true;
  }
  [[nodiscard]] bool in_flight() const noexcept { return in_flight_; }

  // The end: `bring` for each fragment that has something; `begin_finish`; `take_part` in one fragment's exchange after
  // the other, as the workers do that train on, until all have come to this; `end_finish`. Collective; blocks.

  void bring(std::span<Master> w, double samples) {
    if (settings_.work == work_meanwhile::keep || !settings_.takes_whole_round()) arrive(w);
    exchange(w, samples);
  }
  /// What is under way lands.
  void begin_finish() {
    engine_.loop().begin_finish(unfinished::commit, between());
    in_flight_ = false;
  }
  /// In an exchange, without weight. Whether all workers do so: then everything has been brought.
  bool take_part() { return engine_.loop().finish_round(unfinished::commit, between()); }
  /// `w` becomes the anchor.
  void end_finish(std::span<Master> w) {
    engine_.loop().end_finish();
    followed_ = true;
    auto const x = anchor();
    for (std::size_t i = 0; i < slice_; ++i) w[i] = x[i];
    keep(w);
    engine_.loop().moved(0);
  }

  // The workers change, at rest: `hand_over` to all that are there, `take_up` instead of `begin`. Collective; block.

  /// All that the workers hold together, on every one of them. What codes have lost of the changes of those that leave
  /// becomes part of what they have lost of the others', in equal parts; among more workers, or
  /// fewer, it counts as it would have counted.
  void hand_over(carried_anchor<Master>& all, bool leaves, change_of_workers const& change) {
    all.arrays = engine_.gather_state();
    all.run = engine_.numbers();
    all.exchanges = exchanges_;
    all.samples = samples_;
    auto const residual = engine_.feedback();
    all.residual.assign(residual.begin(), residual.end());
    if (residual.empty()) return;
    std::vector<double> of_leavers(leaves ? all.residual : std::vector<double>(residual.size(), 0.0));
    if (change.leaving != 0) engine_.sum_over_ranks(of_leavers);
    const double scale =
        settings_.weights == worker_weights::samples ? 1 : static_cast<double>(change.workers) / settings_.workers;
    for (std::size_t i = 0; i < residual.size(); ++i)
      all.residual[i] = scale * (all.residual[i] + of_leavers[i] / change.staying);
  }
  /// What worker `who.first` has brought, on those that join, too. `w` becomes the anchor.
  void take_up(carried_anchor<Master>& all, bringing_workers const& who, std::span<Master> w) {
    own_ = storage_.allocate(copy_bytes(), 0);
    engine_.begin();
    all.travel(engine_.shape().shards(), slice_, who.joins, [&](std::span<char> bytes) { engine_.broadcast(bytes, who.first); });
    engine_.load(all);
    (void)engine_.resume(resumption::at_rest);
    exchanges_ = all.exchanges;
    samples_ = all.samples;
    auto const residual = engine_.feedback();
    for (std::size_t i = 0; i < all.residual.size(); ++i) residual[i] = static_cast<Master>(all.residual[i]);
    auto const x = anchor();
    for (std::size_t i = 0; i < slice_; ++i) w[i] = x[i];
    keep(w);
    engine_.mark_finished();
  }

  // A state is kept, and comes back.

  void describe(fragment_numbers& in) const noexcept {
    in.exchanges = exchanges_;
    in.samples = samples_;
  }
  /// Calls visit(name, elements of the fragment) for what this worker has of its own between two exchanges.
  template <class Visitor>
  void for_own(Visitor&& visit) {
    if (settings_.keeps_copy()) visit("kept", copy());
    if (auto const residual = engine_.feedback(); !residual.empty()) visit("lost", residual.first(slice_));
  }
  /// What `level()` has loaded is its state; `same`: of the same workers, else `w` becomes the anchor. Collective;
  /// blocks.
  void resume(fragment_numbers const& from, bool same, std::span<Master> w) {
    engine_.take_up(same ? resumption::exact : resumption::at_rest);
    in_flight_ = same && from.run.completed;
    exchanges_ = from.exchanges;
    samples_ = from.samples;
    news_.reset();
    if (same) return;
    if (from.run.completed) {  // it has landed with the state
      samples_ += from.run.last.counts.loss_sum;
      exchanges_ += from.run.last.counts.weight > 0 ? 1 : 0;
    }
    auto const x = anchor();
    for (std::size_t i = 0; i < slice_; ++i) w[i] = x[i];
    keep(w);
  }

  /// On this rank, as it landed last: what all workers hold, which is the masters of `level()` only where it travels in
  /// full.
  [[nodiscard]] std::span<Master const> anchor() const noexcept { return engine_.parameters(); }
  [[nodiscard]] engine& level() noexcept { return engine_; }
  [[nodiscard]] engine const& level() const noexcept { return engine_; }
  /// Of all exchanges that have landed.
  [[nodiscard]] double samples() const noexcept { return samples_; }
  [[nodiscard]] std::uint64_t exchanges() const noexcept { return exchanges_; }
  /// Of the one that has landed since this was asked.
  [[nodiscard]] std::optional<outer_report> news() noexcept { return std::exchange(news_, std::nullopt); }

 private:
  template <class Wire>
  static std::unique_ptr<schedule_in_use<storage>> schedule(exchange_settings const& settings, Wire const& wire) {
    if (settings.blocks()) return std::make_unique<schedule_of<synchronous<Wire>, storage>>(synchronous<Wire>{.commit = wire});
    return std::make_unique<schedule_of<delayed<fixed_pace, Wire>, storage>>(delayed<fixed_pace, Wire>{.commit = wire});
  }
  [[nodiscard]] std::size_t copy_bytes() const noexcept { return settings_.keeps_copy() ? slice_ * sizeof(Master) : 0; }
  [[nodiscard]] std::span<Master> copy() noexcept { return {own_.template as<Master>(), slice_}; }
  void keep(std::span<Master const> of) {
    if (!settings_.keeps_copy()) return;
    Master* const own = copy().data();
    for (std::size_t i = 0; i < slice_; ++i) own[i] = of[i];
  }

  /// What this worker brings to the next exchange.
  void add(std::span<Master const> w, double weight) {
    auto const gradients = engine_.gradients();
    auto const x = anchor();
    const auto times = static_cast<Master>(weight);
    if (settings_.sends_parameters()) {
      for (std::size_t i = 0; i < slice_; ++i) gradients[i] += times * w[i];
    } else {
      for (std::size_t i = 0; i < slice_; ++i) gradients[i] += times * (x[i] - w[i]);
    }
  }
  /// Starts an exchange while none is under way; one that blocks is done then.
  void send(std::span<Master const> w, double weight, double samples) {
    add(w, weight);
    (void)engine_.loop().accumulated(weight, samples, between());
    in_flight_ = !settings_.blocks();
  }
  /// The exchange under way lands, and the one for which everything has been added starts.
  void turn(double weight, double samples) {
    land_now();
    (void)engine_.loop().accumulated(weight, samples, between());
    in_flight_ = true;
  }
  bool mix(std::span<Master> w) {
    followed_ = true;
    if (settings_.keep_local == 1) return false;
    auto const x = anchor();
    const auto own = static_cast<Master>(settings_.keep_local), theirs = static_cast<Master>(1 - settings_.keep_local);
    if (own == 0) {
      for (std::size_t i = 0; i < slice_; ++i) w[i] = x[i];
    } else {
      for (std::size_t i = 0; i < slice_; ++i) w[i] = own * w[i] + theirs * x[i];
    }
    return true;
  }

  /// By gap: how far the anchor has come, for the exchange that starts next. Each rank updates its share by what it has
  /// measured itself, so it measures whenever one lands, also where its worker brings nothing any more.
  void measure_step() {
    double squares = 0;
    auto const x = anchor();
    Master* const before = copy().data();
    for (std::size_t i = 0; i < slice_; ++i) {
      const double step = static_cast<double>(x[i]) - static_cast<double>(before[i]);
      squares += step * step;
      before[i] = x[i];
    }
    engine_.loop().moved(std::sqrt(squares));
  }

  [[nodiscard]] auto between() noexcept {
    return [this](round_report const& report) { landed(report); };
  }
  void land_now() { engine_.loop().land_now(between()); }
  /// An exchange has.
  void landed(round_report const& report) {
    if (settings_.by_gap) measure_step();
    round_counts const& sums = engine_.loop().counts();  // until the next round begins
    const double brought = sums.loss_sum;
    speed_of_all_ = sums.finishing == 0 ? sums.speed : 0;  // while one finishes the others' steps stay
    followed_ = false;
    samples_ += brought;
    exchanges_ += report.weight > 0 ? 1 : 0;
    news_ = outer_report{.exchange = report.round,
                         .weight = report.weight,
                         .samples = brought,
                         .norm = settings_.sends_parameters() ? 0 : report.gradient_norm,
                         .gap = settings_.by_gap && report.clip_scale > 0 ? 1 / report.clip_scale : 1,
                         .communication_seconds = report.communication_seconds,
                         .exposed_seconds = report.exposed_seconds,
                         .bytes_sent = report.bytes_sent};
  }

  exchange_settings settings_;
  std::size_t slice_;
  storage storage_;
  bool in_flight_ = false;
  double samples_ = 0;
  std::uint64_t exchanges_ = 0;
  double speed_of_all_ = 0;
  bool followed_ = true;  // the worker's masters have taken up what has landed
  std::optional<outer_report> news_;
  // keep: the masters at the start; eager: where the round began; by gap: the anchor before
  typename storage::buffer own_;
  engine engine_;
};

}  // namespace ACCO_SIMD_NAMESPACE
