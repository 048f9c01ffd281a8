// SPDX-License-Identifier: Apache-2.0
// Workers that come and go: who stays, leaves and joins, and what is carried from one world of workers to the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "acco/error.hpp"
#include "acco/layout/parameter_layout.hpp"
#include "acco/outer/workers_world.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/schedule/learning_rate_function.hpp"
#include "acco/stage/state_copy.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where a training is, told from where one of its workers is: since the world, or the worker's steps to an exchange,
/// changed last all others are taken to have made `nominal` steps where this one has made `steps`.
struct position_by_worker {
  int workers = 1;
  training_position whole, own;  ///< when that changed last
  unsigned nominal = 1, steps = 1;

  [[nodiscard]] training_position operator()(training_position const& now) const noexcept {
    return {whole.samples + (now.samples - own.samples) * workers * nominal / steps,
            whole.steps + (now.steps - own.steps) * nominal / steps};
  }
  /// From `now` on the worker makes so many.
  void go_on(training_position const& now, unsigned of_nominal, unsigned own_steps) noexcept {
    whole = (*this)(now);
    own = now;
    nominal = of_nominal;
    steps = own_steps;
  }
};

/// What becomes of the workers of a world, the same on all its ranks.
struct change_of_workers {
  int staying = 0, leaving = 0;
  int workers = 0;  ///< of the new world

  static constexpr std::size_t numbers_a_rank = 2;
  /// What a rank tells: where it will be, or, with a size of 0, that it leaves.
  static void tell(std::span<double> told, int rank, int new_rank, int new_size) noexcept {
    told[numbers_a_rank * static_cast<std::size_t>(rank)] = new_rank;
    told[numbers_a_rank * static_cast<std::size_t>(rank) + 1] = new_size;
  }
  /// From what all have told. Throws `usage_error`, on every rank alike, unless workers stay and leave as a whole, in
  /// one new world, each rank at its place in its worker.
  [[nodiscard]] static change_of_workers read(std::span<double const> told, int ranks_a_worker, error_place where) {
    change_of_workers found;
    const int ranks = static_cast<int>(told.size() / numbers_a_rank);
    const auto rank_of = [&](int rank) { return static_cast<int>(told[numbers_a_rank * static_cast<std::size_t>(rank)]); };
    const auto size_of = [&](int rank) { return static_cast<int>(told[numbers_a_rank * static_cast<std::size_t>(rank) + 1]); };
    int stayer = -1;  // the first
    for (int rank = 0; rank < ranks; ++rank) {
      const int first = rank - rank % ranks_a_worker;  // of its worker
      if ((size_of(rank) == 0) != (size_of(first) == 0)) {
        throw usage_error(
            where,
            text("ranks ", first, " and ", rank, " are one worker, and only rank ", size_of(rank) == 0 ? first : rank, " stays"),
            text("A worker leaves or stays as a whole: let all its ranks call depart, or all regroup"), rank);
      }
      if (size_of(rank) == 0) {
        if (rank == first) ++found.leaving;
        continue;
      }
      if (rank == first) ++found.staying;
      found.workers = size_of(rank) / ranks_a_worker;
      if (stayer < 0) stayer = rank;
      if (size_of(rank) != size_of(stayer)) {
        throw usage_error(where,
                          text("rank ", rank, " regroups in a world of ", size_of(rank), " ranks, and rank ", stayer,
                               " in one of ", size_of(stayer)),
                          text("Give all that stay handles on the same new world"), rank);
      }
      if (rank_of(first) % ranks_a_worker != 0 || rank_of(rank) != rank_of(first) + (rank - first)) {
        throw usage_error(where,
                          text("rank ", rank, " is place ", rank - first, " in its worker, whose first rank would be rank ",
                               rank_of(first), " of the new world, and itself rank ", rank_of(rank)),
                          text("The ranks of a worker stay together, in the same order, from a multiple of ranks_a_group on"),
                          rank);
      }
      for (int other = 0; other < rank; ++other) {
        if (size_of(other) == 0 || rank_of(other) != rank_of(rank)) continue;
        throw usage_error(where, text("ranks ", other, " and ", rank, " would both be rank ", rank_of(rank), " of the new world"),
                          text("Give every rank a handle of its own"), rank);
      }
    }
    return found;
  }
};

/// Who brings the anchor into a new world, the same on all its ranks.
struct bringing_workers {
  int first = 0;       ///< the worker from which those that join get it
  bool joins = false;  ///< whether any joins

  /// From what all ranks have told: how many workers stay, as far as a rank that stays knows, or, of one that joins, 0.
  /// Throws `usage_error`, on every rank alike, unless some stay, all of one training, and workers join as a whole.
  [[nodiscard]] static bringing_workers read(std::span<std::int64_t const> told, int ranks_a_worker, error_place where) {
    bringing_workers found{-1, false};
    std::int64_t staying = 0;
    for (std::size_t k = 0; k < told.size(); ++k) {
      const auto rank = static_cast<int>(k);
      const int first = rank - rank % ranks_a_worker;
      if ((told[k] == 0) != (told[static_cast<std::size_t>(first)] == 0)) {
        throw usage_error(
            where, text("ranks ", first, " and ", rank, " are one worker, and only rank ", told[k] == 0 ? rank : first, " joins"),
            text("A worker joins as a whole: construct a new optimizer on all its ranks, and let them join"), rank);
      }
      found.joins = found.joins || told[k] == 0;
      if (told[k] == 0 || rank != first) continue;
      ++staying;
      if (found.first < 0) found.first = rank / ranks_a_worker;
    }
    if (found.first < 0) {
      throw usage_error(where, text("every rank of this world joins, and none brings what they would go on from"),
                        text("join is for workers that come to a training; let those that train call regroup, or call "
                             "initialize to begin"));
    }
    for (std::size_t k = 0; k < told.size(); ++k) {
      if (told[k] == 0 || told[k] == staying) continue;
      throw usage_error(where,
                        text("rank ", k, " knows of ", told[k], " workers that stay, and ", staying, " have come to this world"),
                        text("Let the workers of one training regroup in a world"), static_cast<int>(k));
    }
    return found;
  }
};

/// What the workers of an exchange hold together, whole, in host memory: the arrays of its state, and its numbers. Read
/// from it, it is sharded over other workers.
template <class Master>
class carried_anchor final : public state_source {
 public:
  run_numbers run;
  std::uint64_t exchanges = 0;
  double samples = 0;
  std::vector<std::vector<Master>> arrays;  ///< masters, slots, averages
  std::vector<double> residual;             ///< this worker's: what codes have lost of its changes

  /// Calls broadcast(bytes) for all but `residual`; of a rank that joins, `count` arrays of `elements` are made for it.
  template <class Broadcast>
  void travel(std::size_t count, std::size_t elements, bool arrays_too, Broadcast&& broadcast) {
    struct {
      run_counters run;
      std::uint64_t rounds, rounds_skipped, exchanges;
      double dropped, samples;
    } numbers{run.run, run.rounds, run.rounds_skipped, exchanges, run.dropped, samples};
    static_assert(std::is_trivially_copyable_v<decltype(numbers)>);
    broadcast(std::span(reinterpret_cast<char*>(&numbers), sizeof numbers));
    run.run = numbers.run;
    run.rounds = numbers.rounds;
    run.rounds_skipped = numbers.rounds_skipped;
    run.dropped = numbers.dropped;
    exchanges = numbers.exchanges;
    samples = numbers.samples;
    if (!arrays_too) return;
    arrays.resize(count);
    for (auto& each : arrays) {
      each.resize(elements);
      broadcast(std::span(reinterpret_cast<char*>(each.data()), each.size() * sizeof(Master)));
    }
  }

  [[nodiscard]] run_numbers const& numbers() const noexcept override { return run; }
  [[nodiscard]] bool has(std::size_t array) const noexcept override { return array < arrays.size(); }
  void expect(std::size_t, std::size_t, std::size_t) override {}
  void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) override {
    std::memcpy(to, arrays[array].data() + first, count * sizeof(Master));
  }
  void read_frozen(std::size_t, std::byte*) override {}  // an anchor has none
};

/// What a world of workers holds together, on its way to the next one. `inner` is the engine of this rank's worker,
/// `fragments` have its exchanges, each of a part of its slice.
template <class Master>
class brought_by_workers {
 public:
  std::uint64_t steps = 0;  ///< the level's

  brought_by_workers(std::size_t fragments, int staying) : anchors_(fragments), staying_(staying) {}

  /// Of the world so far, which is at rest; nothing where no worker stays. `to`: where this rank stays, not joined yet;
  /// null: it leaves. Afterwards every rank may leave that world in peace. Collective over it; blocks.
  template <class Backend, class Inner, class Fragments>
  [[nodiscard]] static brought_by_workers hand_over(workers_world<Backend>& in,
                                                    std::type_identity_t<workers_world<Backend>> const* to, Inner& inner,
                                                    Fragments& fragments, int ranks_a_worker) {
    std::vector<double> told(change_of_workers::numbers_a_rank * static_cast<std::size_t>(in.size()), 0.0);
    if (to != nullptr) change_of_workers::tell(told, in.rank(), to->rank(), to->size());
    in.names.of_worker([&] { inner.sum_over_ranks(told); });
    in.names.of_exchange([&] { fragments.front().exchange->level().sum_over_ranks(told); });
    change_of_workers change;
    in.member.together(
        [&] { change = change_of_workers::read(told, ranks_a_worker, {in.rank(), inner.place().round, "regroup"}); });
    brought_by_workers all(fragments.size(), change.staying);
    in.names.of_exchange([&] {
      for (std::size_t p = 0; p < fragments.size(); ++p) {
        if (change.staying != 0) fragments[p].exchange->hand_over(all.anchors_[p], to == nullptr, change);
        fragments[p].exchange->level().mark_finished();
      }
    });
    in.finish();
    return all;
  }
  /// `slots_too`: those that join begin with the mean slots of the others, after as many updates, and those take these.
  /// In a world that this rank has not joined yet, on ranks that stay, and on those that join, which bring nothing.
  /// Parameters and masters of all are the anchor then. Collective over it; blocks.
  template <class Backend, class Inner, class Fragments>
  void take_up(workers_world<Backend>& to, Inner& inner, Fragments& fragments, int ranks_a_worker,
               std::string const& construction, bool slots_too) {
    const bool stays = staying_ != 0;
    to.join(construction, stays ? "regroup" : "join", "regroup or join");
    std::vector<std::int64_t> told(static_cast<std::size_t>(to.size()));
    to.gather(staying_, std::span(told));
    bringing_workers who;
    to.member.together([&] { who = bringing_workers::read(told, ranks_a_worker, {to.rank(), inner.place().round, "regroup"}); });
    const int root = who.first * ranks_a_worker;
    to.broadcast(std::span(&steps, 1), root);
    if (who.joins) {
      auto initial = frozen_values(to, inner, stays, root);
      if (stays) {
        to.keep_worker();
      } else {
        to.names.of_worker([&] { inner.initialize(initial); });
      }
    }
    to.names.of_exchange([&] {
      for (std::size_t p = 0; p < fragments.size(); ++p) {
        auto& each = fragments[p];
        each.exchange->take_up(anchors_[p], who, inner.loop().masters().subspan(each.begin, each.count));
      }
    });
    if (who.joins && slots_too) {
      std::uint64_t updates = inner.steps();
      to.broadcast(std::span(&updates, 1), root);
      if (!stays) inner.begin_after(updates);
      (void)average_slots(to, inner, stays ? 1 : 0, [](std::size_t) { return true; });
    }
    if (!stays) {
      to.names.of_worker([&] { inner.loop().masters_changed(); });
      inner.mark_finished();
    }
    to.finish();
  }

 private:
  /// Of the whole layout; what is trained is 0.
  template <class Backend, class Inner>
  static auto frozen_values(workers_world<Backend>& to, Inner& inner, bool stays, int root) {
    parameter_layout const& layout = inner.layout();
    std::vector<typename Inner::parameter_type> values(layout.size());
    for (std::size_t k = 0; k < layout.tensor_count(); ++k) {
      auto const each = layout[k];
      if (!layout.groups()[each.group].frozen || each.size == 0) continue;
      const auto frozen = std::span(values).subspan(each.offset, each.size);
      if (stays) inner.copy_parameters(k, reinterpret_cast<std::byte*>(frozen.data()));
      to.broadcast(frozen, root);
    }
    return values;
  }

  std::vector<carried_anchor<Master>> anchors_;  // by fragment
  std::int64_t staying_;                         // workers
};

}  // namespace ACCO_SIMD_NAMESPACE
