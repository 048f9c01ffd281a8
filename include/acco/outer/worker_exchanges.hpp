// SPDX-License-Identifier: Apache-2.0
// The exchanges of one worker: its slice is divided into fragments, whose exchanges take turns. `step` says after which
// of the worker's steps one begins, and when one arrives (exchange_settings.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "acco/error.hpp"
#include "acco/number/digest.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/observe/round_report.hpp"
#include "acco/options.hpp"
#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/steps_by_speed.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A part of the slice, contiguous and of one size, and its exchange.
template <class Exchange>
struct fragment_of_slice {
  std::size_t begin = 0, count = 0;
  bool pending = false;        // the worker has made a step since its last exchange began
  double sent_samples = 0;     // of the worker, that have been brought to exchanges
  bool brings = false;         // to one that is not under way yet
  double sent_before[2] = {};  // to those before the newest, and before the one before
  std::uint64_t exchanges_before = 0;
  std::unique_ptr<Exchange> exchange;

  /// Of a slice.
  template <class Master>
  [[nodiscard]] std::span<Master> of(std::span<Master> w) const noexcept {
    return w.subspan(begin, count);
  }
};

/// One rank's. `w` is this rank's slice of its worker's masters. The trainer's thread calls all members; those that
/// communicate are collective over the ranks of the exchange.
template <class Exchange, class Master>
class worker_exchanges {
 public:
  using fragment = fragment_of_slice<Exchange>;
  using level_engine = typename Exchange::engine;

  /// make(count) gives an exchange of so many numbers.
  template <class Make>
  worker_exchanges(exchange_settings const& settings, std::size_t slice, error_place const& where, Make&& make)
      : settings_(settings), own_(settings.steps), fragments_(settings.fragments) {
    if (slice < settings.fragments) {
      throw usage_error(where,
                        text("local_updates::fragments is ", settings.fragments, ", and a rank's slice has ", slice, " numbers"),
                        text("Give fewer fragments"));
    }
    for (std::size_t p = 0; p < fragments_.size(); ++p) {
      fragments_[p].begin = slice * p / fragments_.size();
      fragments_[p].count = slice * (p + 1) / fragments_.size() - fragments_[p].begin;
      fragments_[p].exchange = make(fragments_[p].count);
    }
  }

  [[nodiscard]] std::vector<fragment>& all() noexcept { return fragments_; }
  [[nodiscard]] std::vector<fragment> const& all() const noexcept { return fragments_; }
  /// Where all fragments are alike.
  [[nodiscard]] level_engine& first() noexcept { return fragments_.front().exchange->level(); }
  /// The worker's steps of this round: 0 until the first, then from 1 on; alike on all workers, but where their speeds
  /// decide.
  [[nodiscard]] unsigned phase() const noexcept { return phase_; }
  /// Its steps from one exchange to the next.
  [[nodiscard]] steps_by_speed& own() noexcept { return own_; }
  [[nodiscard]] steps_by_speed const& own() const noexcept { return own_; }
  /// Where it was when that was kept, by as many fragments.
  void go_on_in(level_numbers const& from) noexcept {
    phase_ = static_cast<unsigned>(from.phase);
    if (settings_.by_speed && from.own_round != 0) own_.set(static_cast<unsigned>(from.own_round), from.seconds_a_step);
    own_.begin(now());
    for (std::size_t p = 0; p < fragments_.size(); ++p) {
      fragments_[p].pending = from.fragments[p].pending;
      fragments_[p].sent_samples = from.fragments[p].sent_samples;
      std::fill_n(fragments_[p].sent_before, 2, fragments_[p].sent_samples);
      fragments_[p].exchanges_before = from.fragments[p].exchanges_before;
    }
  }

  void begin(std::span<Master> w) {
    for (fragment& each : fragments_) each.exchange->begin(each.of(w));
    own_.begin(now());
  }
  void set(std::span<Master> w) {
    for (fragment& each : fragments_) each.exchange->set(each.of(w));
  }
  /// Instead of `begin`, in the place of `lost`, in the world of those that are left (anchor_exchange.hpp): what a
  /// worker of so many samples has brought to an exchange that nobody has landed it brings again. Collective over `to`;
  /// blocks.
  template <class World>
  void survive(World& to, worker_exchanges const& lost, std::span<Master> w, double samples) {
    for (std::size_t p = 0; p < fragments_.size(); ++p) {
      fragment const& old = lost.fragments_[p];
      fragment& each = fragments_[p];
      const bool landed = each.exchange->survive(to, *old.exchange, each.of(w));
      const int lacks = (old.brings ? 1 : 0) + (old.exchange->in_flight() ? 1 : 0) - (landed ? 1 : 0);
      each.sent_samples = !each.exchange->keeps_work() ? samples : lacks > 0 ? old.sent_before[lacks - 1] : old.sent_samples;
      each.pending = true;  // of all, so that a `finish` brings them in the same order
    }
  }
  [[nodiscard]] bool at_rest() const noexcept {
    return std::none_of(fragments_.begin(), fragments_.end(),
                        [](fragment const& each) { return each.pending || each.exchange->in_flight(); });
  }
  void poll() {
    for (fragment& each : fragments_) each.exchange->level().poll();
  }
  void leave(std::string_view reason) noexcept {
    for (fragment& each : fragments_) each.exchange->level().leave(reason);
  }

  /// The worker has made a step, and comes to so many samples. Whether `w` has changed. Here and in `finish`,
  /// landed(exchanges, brought) follows each exchange of the last fragment that lands at once, on all its ranks:
  /// whether this worker has brought something to it.
  template <class Landed>
  bool step(std::span<Master> w, double samples, bool& exchanged, Landed&& landed) {
    bool changed = false;
    phase_ = phase_ % own_.steps() + 1;
    own_.made_step();
    for (std::size_t p = 0; p < fragments_.size(); ++p) {
      fragment& each = fragments_[p];
      each.pending = true;
      if (settings_.delay < settings_.steps && (due(p) + settings_.delay) % settings_.steps == phase_ % settings_.steps)
        changed = each.exchange->arrive(each.of(w)) || changed;
    }
    exchanged = phase_ % (settings_.by_speed ? own_.steps() : settings_.stretch()) == 0;
    if (!exchanged) return changed;
    fragment& each = settings_.by_speed ? fragments_.front() : fragments_[phase_ / settings_.stretch() - 1];
    const double taken_now = taken(each, samples);
    following(each, landed, [&] { changed = each.exchange->exchange(each.of(w), taken_now) || changed; });
    if (settings_.by_speed) phase_ = 0;
    own_.begin(now());
    return changed;
  }
  /// Finishes the fragments in the order in which ranks that are still training exchange them. Any other order
  /// deadlocks.
  template <class Landed>
  void finish(std::span<Master> w, double samples, Landed&& landed) {
    const std::size_t count = fragments_.size(), next = settings_.by_speed ? 0 : phase_ / settings_.stretch() % count;
    std::size_t brought = 0;
    for (; brought < count; ++brought) {  // those that have nothing pending were the last
      fragment& each = fragments_[(next + brought) % count];
      if (!each.pending) break;
      const double taken_now = taken(each, samples);
      following(each, landed, [&] { each.exchange->bring(each.of(w), taken_now); });
    }
    for (fragment& each : fragments_) each.exchange->begin_finish();
    for (std::size_t k = next + brought;; ++k) {
      bool ended = false;
      following(fragments_[k % count], landed, [&] { ended = fragments_[k % count].exchange->take_part(); });
      if (ended) break;
    }
    for (fragment& each : fragments_) each.exchange->end_finish(each.of(w));
    phase_ = settings_.first_phase();
  }
  /// At rest: a round begins here.
  void begin_round() noexcept {
    phase_ = settings_.first_phase();
    own_.begin(now());
    for (fragment& each : fragments_) each.exchanges_before = each.exchange->exchanges();
  }
  /// The same, of a worker that has come to so many samples, none of which are still to be brought.
  void begin_round(double samples) noexcept {
    begin_round();
    for (fragment& each : fragments_) {
      each.pending = false;
      each.sent_samples = samples;
    }
  }

  /// What all fragments hold.
  [[nodiscard]] double samples() const noexcept {
    double least = fragments_.front().exchange->samples();
    for (fragment const& each : fragments_) least = std::min(least, each.exchange->samples());
    return least;
  }
  /// Since `begin_round`.
  [[nodiscard]] std::uint64_t steps() const noexcept {
    std::uint64_t least = ~std::uint64_t{0};
    for (std::size_t p = 0; p < fragments_.size(); ++p) {
      const std::uint64_t landed = fragments_[p].exchange->exchanges() - fragments_[p].exchanges_before;
      least = std::min(least, landed == 0 ? 0 : due(p) - settings_.first_phase() + settings_.steps * (landed - 1));
    }
    return least;
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept {
    std::uint64_t bytes = 0;
    for (fragment const& each : fragments_) bytes += each.exchange->level().totals().bytes_sent;
    return bytes;
  }
  void count(memory_table& table) const noexcept {
    std::size_t gathering = 0;
    for (fragment const& each : fragments_) {
      each.exchange->count(table);
      gathering = std::max(gathering, each.exchange->level().memory().gathering);
    }
    table.gathering += gathering;
  }
  /// Of what has landed since it was told.
  void tell(round_report& report) {
    report.outer.reset();
    for (std::size_t p = 0; p < fragments_.size(); ++p) {  // several after a `finish`
      auto const news = fragments_[p].exchange->news();
      if (!news) continue;
      report.outer = news;
      report.outer->fragment = p;
      report.bytes_sent += news->bytes_sent;
    }
  }
  /// Calls action() while this rank's masters are the anchor, the exchange in flight included, or its average.
  template <class Inner, class Names, class Action>
  void show(Inner& inner, Names& names, weights which, Action&& action) {
    std::vector<Master> x(inner.shares().slice_size());
    names.of_exchange([&] {
      for (fragment& each : fragments_) each.exchange->level().gather(each.of(std::span(x)), which);
    });
    names.of_worker([&] {
      inner.loop().outside_rounds([&] {
        auto const mine = inner.loop().masters();
        std::swap_ranges(x.begin(), x.end(), mine.begin());
        try {
          action();
        } catch (...) {
          std::swap_ranges(x.begin(), x.end(), mine.begin());
          throw;
        }
        std::swap_ranges(x.begin(), x.end(), mine.begin());
      });
    });
  }
  /// digest(engine) of all fragments.
  template <class Digest>
  [[nodiscard]] std::uint64_t digest(Digest&& digest_of_engine) {
    std::uint64_t anchors = 0;
    for (fragment& each : fragments_) anchors = mix(anchors) + digest_of_engine(each.exchange->level());
    return anchors;
  }

 private:
  /// Of a round's steps, after which a fragment is exchanged.
  [[nodiscard]] unsigned due(std::size_t p) const noexcept { return static_cast<unsigned>(p + 1) * settings_.stretch(); }
  template <class Landed, class Action>
  void following(fragment& each, Landed& landed, Action&& action) {
    const std::uint64_t before = each.exchange->exchanges();
    action();
    const bool brought = std::exchange(each.brings, false);
    if (settings_.by_speed && each.exchange->exchanges() != before) own_.decide(each.exchange->speed_of_all(), settings_.workers);
    if (&each == &fragments_.back() && each.exchange->exchanges() != before) landed(each.exchange->exchanges(), brought);
  }
  /// The samples that a fragment's exchange brings.
  [[nodiscard]] double taken(fragment& each, double samples) noexcept {
    each.pending = false;
    each.brings = true;
    each.sent_before[1] = std::exchange(each.sent_before[0], each.sent_samples);
    if (settings_.by_speed) each.exchange->brings(own_.arrive(now()));
    return samples - std::exchange(each.sent_samples, samples);
  }

  [[nodiscard]] double now() const noexcept { return settings_.by_speed ? settings_.seconds() : 0; }

  exchange_settings settings_;
  unsigned phase_ = settings_.first_phase();
  steps_by_speed own_;
  std::vector<fragment> fragments_;  // in the order of their exchanges
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
