// SPDX-License-Identifier: Apache-2.0
// The state of local updates as it is kept: the anchor's arrays, by the elements of the layout, whoever has which; and
// beside them each worker's.
//
// The anchor's are called as those of a training without workers: `master`, `sgd.0`, `average`, `shown`, `arriving`. A
// worker's have its number before their names, and two more: `kept`, what it keeps from one exchange to the next, and
// `lost`, what codes have lost of its changes. What every rank of a worker has of its own has that rank's number behind
// its name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "acco/outer/exchange_settings.hpp"
#include "acco/outer/level_saves.hpp"
#include "acco/outer/regroup.hpp"
#include "acco/outer/world_ranks.hpp"
#include "acco/round/agreement.hpp"
#include "acco/round/checkpointer.hpp"
#include "acco/stage/level_copy.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/stage/world_digest.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where a level is.
struct level_position {
  std::uint64_t seen = 0;    ///< the worker's updates when the level acted last
  std::uint64_t before = 0;  ///< the level's steps when its first round began
  position_by_worker by_worker;

  /// Where a state was kept.
  [[nodiscard]] static level_position of(level_numbers const& n, int workers, unsigned nominal) {
    const unsigned own = n.own_round != 0 ? static_cast<unsigned>(n.own_round) : nominal;
    return {n.seen, n.steps_before, {workers, {n.whole_samples, n.whole_steps}, {n.own_samples, n.own_steps}, nominal, own}};
  }
};

/// A worker's part of a state that comes back.
class worker_source final : public state_source {
 public:
  /// `same`: it is this worker's, and rank `rank` of it; else it begins anew.
  worker_source(state_source& from, state_shape const& shape, std::string prefix, int rank, int ranks, bool same)
      : from_(from), shape_(shape), prefix_(std::move(prefix)), rank_(rank), ranks_(ranks), same_(same) {}

  /// An array of a worker's; of what every rank of it has, that of one.
  [[nodiscard]] static std::string name_of(state_shape const& shape, std::size_t array, int rank, int ranks) {
    if (shape.extent(array) == array_extent::shard) return shape.name(array);
    return name_of_rank(shape.name(array), static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
  }

  [[nodiscard]] run_numbers const& numbers() const noexcept override { return same_ ? from_.level()->worker : fresh_; }
  [[nodiscard]] bool has(std::size_t array) const noexcept override {
    if (array < shape_.owned()) return !same_ || shape_.kept[array].use != array_use::feedback || from_.has_of_level(name(array));
    return same_ && (array == shape_.shown() ? from_.level()->shows : from_.level()->arrives);
  }
  void expect(std::size_t, std::size_t, std::size_t) override {}
  void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) override {
    const element_type type = shape_.type(array);
    if (!same_) return static_cast<void>(std::memset(to, 0, count * size_of(type)));
    from_.read_of_level(name(array), type, first, count, to);
  }
  void read_frozen(std::size_t tensor, std::byte* to) override { from_.read_frozen(tensor, to); }

 private:
  [[nodiscard]] std::string name(std::size_t array) const { return prefix_ + name_of(shape_, array, rank_, ranks_); }

  state_source& from_;
  state_shape const& shape_;
  std::string prefix_;
  int rank_, ranks_;
  bool same_;
  run_numbers fresh_;
};

/// Which trainable elements lie in which part of a rank's slice.
class elements_of_slice {
 public:
  elements_of_slice(partition const& shares, int rank) {
    shares.for_shares(
        rank, [&](std::size_t offset, std::size_t first, std::size_t count) { parts_.push_back({offset, first, count}); });
  }
  /// Calls visit(offset from `begin`, first element, count) for those of `count` numbers from `begin` on; the rest is
  /// padding.
  template <class Visitor>
  void visit(std::size_t begin, std::size_t count, Visitor&& visitor) const {
    auto at =
        std::partition_point(parts_.begin(), parts_.end(), [&](part const& each) { return each.offset + each.count <= begin; });
    for (; at != parts_.end() && at->offset < begin + count; ++at) {
      const std::size_t from = std::max(begin, at->offset), until = std::min(begin + count, at->offset + at->count);
      visitor(from - begin, at->first + (from - at->offset), until - from);
    }
  }

 private:
  struct part {
    std::size_t offset, first, count;
  };
  std::vector<part> parts_;
};

/// A fragment's part of an anchor that comes back.
class anchor_source final : public state_source {
 public:
  anchor_source(state_source& from, fragment_numbers const& numbers, state_shape const& shape, elements_of_slice const& elements,
                std::size_t begin)
      : from_(from), numbers_(numbers), shape_(shape), elements_(elements), begin_(begin) {}

  [[nodiscard]] run_numbers const& numbers() const noexcept override { return numbers_.run; }
  [[nodiscard]] bool has(std::size_t array) const noexcept override {
    if (array < shape_.owned()) return array < shape_.shards();
    return array == shape_.shown() ? numbers_.shows : numbers_.arrives;
  }
  void expect(std::size_t, std::size_t, std::size_t) override {}
  void read(std::size_t array, std::size_t first, std::size_t count, std::byte* to) override {
    read_elements(from_, shape_.name(array), shape_.type(array), elements_, begin_ + first, count, to);
  }
  void read_frozen(std::size_t, std::byte*) override {}  // an anchor has none

  /// Numbers of the slice from `begin` on; padding is 0.
  static void read_elements(state_source& from, std::string const& array, element_type type, elements_of_slice const& elements,
                            std::size_t begin, std::size_t count, std::byte* to) {
    const std::size_t size = size_of(type);
    std::memset(to, 0, count * size);
    elements.visit(begin, count, [&](std::size_t at, std::size_t first, std::size_t n) {
      from.read_of_level(array, type, first, n, to + at * size);
    });
  }

 private:
  state_source& from_;
  fragment_numbers const& numbers_;
  state_shape const& shape_;
  elements_of_slice const& elements_;
  std::size_t begin_;
};

/// One rank's. Refers to what an engine of local updates owns. The trainer's thread calls all members.
template <class Inner, class Exchanges>
class level_state final : public level_saves {
 public:
  level_state(Inner& inner, Exchanges& exchanges, exchange_settings const& settings, level_position& at) noexcept
      : inner_(inner), exchanges_(exchanges), settings_(settings), at_(at) {}

  /// Of this rank in its world.
  void stand(world_ranks const& names) {
    worker_ = names.worker();
    elements_ = elements_of_slice(inner_.shares(), names.inner.rank_of(names.rank));
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t sum = zeros_.size();
    for (auto const& each : own_) sum += each.size();
    return sum;
  }

  [[nodiscard]] state_view whole(state_view const& of_worker, char const* problem) noexcept override {
    view_ = {&numbers_, {}, 0, problem};
    arrays_.clear();
    try {
      copy(of_worker);
      view_.arrays = arrays_;
    } catch (std::exception const& e) {  // an exchange has failed, say: the training hears of it when that lands
      words_ = e.what();
      view_.problem = words_.c_str();
    } catch (...) {
      view_.problem = "the state of the exchanges could not be copied";
    }
    state_view found = of_worker;
    found.numbers = &common_;
    found.level = &view_;
    return found;
  }

  /// Whether what was loaded is of the same workers.
  [[nodiscard]] bool same() const noexcept { return same_; }
  [[nodiscard]] level_numbers const& loaded() const noexcept { return loaded_; }
  [[nodiscard]] std::uint64_t loaded_steps() const noexcept { return common_.run.steps; }
  [[nodiscard]] std::uint64_t digest_of_numbers() const noexcept { return digest_of(common_.steps(), common_.samples()); }

  void load(state_source& source) {
    loaded_ = *source.level();
    common_ = source.numbers();
    same_ = loaded_.workers == settings_.workers && loaded_.ranks_a_worker == settings_.ranks_a_worker &&
            loaded_.fragments.size() == settings_.fragments;
    // none is in flight
    for (auto& each : exchanges_.all()) each.exchange->level().for_arrays([](std::size_t, auto const*) {});
    worker_source worker(source, inner_.shape(), prefix_of(worker_), inner_.place().rank, settings_.ranks_a_worker, same_);
    inner_.load(worker);
    for (std::size_t p = 0; p < exchanges_.all().size(); ++p) {
      auto& each = exchanges_.all()[p];
      auto& level = each.exchange->level();
      anchor_source anchor(source, loaded_fragment(p), level.shape(), elements_, each.begin);
      level.load(anchor);
      each.exchange->for_own([&](char const* name, auto values) {
        auto* const to = reinterpret_cast<std::byte*>(values.data());
        if (!same_) return static_cast<void>(std::memset(to, 0, values.size_bytes()));
        anchor_source::read_elements(source, prefix_of(worker_) + name, level.shape().master, elements_, each.begin,
                                     values.size(), to);
      });
    }
  }
  /// What was loaded of the anchor is its state; `same`: as it was, else the masters become the anchor. Collective over
  /// the exchange; blocks.
  void resume_exchanges(bool same) {
    auto const w = inner_.loop().masters();
    for (std::size_t p = 0; p < exchanges_.all().size(); ++p) {
      auto& each = exchanges_.all()[p];
      each.exchange->resume(loaded_fragment(p), same, each.of(w));
    }
  }
  /// This rank's part of the anchor's digest, without the numbers.
  [[nodiscard]] std::uint64_t part_of_digest() {
    std::uint64_t sum = 0;
    for (auto& each : exchanges_.all()) {
      auto& level = each.exchange->level();
      level.for_arrays([&](std::size_t array, auto const* values) {
        for_share(each, level.shares(), level.place().rank, [&](std::size_t offset, std::size_t first, std::size_t n) {
          sum += digest_of(values + offset, n, key_of(first, array, level.shape().shards()));
        });
      });
    }
    return sum;
  }

 private:
  [[nodiscard]] fragment_numbers const& loaded_fragment(std::size_t p) const noexcept {
    return loaded_.fragments[p % loaded_.fragments.size()];
  }
  [[nodiscard]] std::string prefix_of(int worker) const {
    char name[64];
    std::snprintf(name, sizeof name, "worker-%05d-of-%05d.", worker, settings_.workers);
    return name;
  }
  /// Calls visit(offset in the rank's slice of the exchange, first element, count).
  template <class Fragment, class Visitor>
  void for_share(Fragment const& of, partition const& shares, int rank, Visitor&& visit) const {
    shares.for_shares(rank, [&](std::size_t offset, std::size_t first, std::size_t count) {
      elements_.visit(of.begin + first, count,
                      [&](std::size_t at, std::size_t element, std::size_t n) { visit(offset + at, element, n); });
    });
  }

  void copy(state_view const& of_worker) {
    describe(of_worker);
    own_.clear();
    zeros_.assign(inner_.shares().slice_size() * sizeof(double), std::byte{0});
    std::vector<state_view> copies;
    for (auto& each : exchanges_.all()) {
      copies.push_back(each.exchange->level().copy_now(true));
      fragment_numbers& of = numbers_.fragments.emplace_back();
      of.run = *copies.back().numbers;
      of.pending = each.pending;
      of.sent_samples = each.sent_samples;
      of.exchanges_before = each.exchanges_before;
      each.exchange->describe(of);
      of.shows = copies.back().shows;  // also where this rank owns nothing
      of.arrives = copies.back().arrives;
    }
    add_anchor(copies);
    for (int worker = 0; worker < settings_.workers; ++worker) add_worker(of_worker, worker);
  }
  void describe(state_view const& of_worker) {
    common_ = {};
    common_.run.steps = at_.before + exchanges_.steps();
    common_.run.samples = exchanges_.samples();
    common_.micro_batches = of_worker.numbers->micro_batches;
    common_.bytes_sent = of_worker.numbers->bytes_sent;
    numbers_ = {.workers = settings_.workers,
                .ranks_a_worker = settings_.ranks_a_worker,
                .worker = *of_worker.numbers,
                .shows = of_worker.shows,
                .arrives = of_worker.arrives,
                .phase = exchanges_.phase(),
                .seen = at_.seen,
                .steps_before = at_.before,
                .whole_steps = at_.by_worker.whole.steps,
                .own_steps = at_.by_worker.own.steps,
                .whole_samples = at_.by_worker.whole.samples,
                .own_samples = at_.by_worker.own.samples,
                .own_round = settings_.by_speed ? exchanges_.own().steps() : 0,
                .seconds_a_step = exchanges_.own().seconds(),
                .fragments = {}};
  }
  /// Where an array begins, or zeros.
  [[nodiscard]] std::byte const* begin_of(state_view const& copy, std::size_t array) const noexcept {
    return copy.arrays[array] != nullptr ? copy.arrays[array] : zeros_.data();
  }
  template <class Room>
  [[nodiscard]] static bool is_kept(state_shape const& shape, std::size_t array, Room const& room) noexcept {
    return array < shape.owned() || (array == shape.shown() ? room.may_show() : room.may_arrive());
  }
  void add_anchor(std::vector<state_view> const& copies) {
    auto& fragments = exchanges_.all();
    state_shape const& shape = *copies.front().shape;
    for (std::size_t array = 0; array < shape.arrays(); ++array) {
      if (!is_kept(shape, array, exchanges_.first().room()) || shape.extent(array) == array_extent::whole) continue;
      level_array& to = arrays_.emplace_back(level_array{shape.name(array), shape.type(array), {}});
      for (std::size_t p = 0; p < fragments.size(); ++p) {
        std::byte const* const from = begin_of(copies[p], array);
        for_share(fragments[p], copies[p].shares, copies[p].rank, [&](std::size_t offset, std::size_t first, std::size_t n) {
          to.mine.push_back({first, n, from + offset * size_of(to.type)});
          if (array < shape.owned())
            view_.digest += digest_of(to.type, from + offset * size_of(to.type), n, key_of(first, array, shape.shards()));
        });
      }
    }
  }
  void add_worker(state_view const& copy, int worker) {
    const std::string prefix = prefix_of(worker);
    state_shape const& shape = *copy.shape;
    for (std::size_t array = 0; array < shape.arrays(); ++array) {
      if (!is_kept(shape, array, inner_.room())) continue;
      const array_extent extent = shape.extent(array);
      for (int rank = 0; rank < (extent == array_extent::whole ? copy.shares.ranks() : 1); ++rank) {
        const std::string name = worker_source::name_of(shape, array, rank, copy.shares.ranks());
        level_array& to = arrays_.emplace_back(level_array{prefix + name, shape.type(array), {}});
        if (worker != worker_ || (extent == array_extent::whole && rank != copy.rank)) continue;
        std::byte const* const from = begin_of(copy, array);
        for_elements_of(extent, copy.shares, copy.rank, [&](std::size_t index, std::size_t first, std::size_t n) {
          to.mine.push_back({first, n, from + index * size_of(to.type)});
        });
      }
    }
    const std::size_t first_of_own = arrays_.size();
    for (auto& each : exchanges_.all()) {
      std::size_t k = first_of_own;
      each.exchange->for_own([&](char const* name, auto values) {
        if (k == arrays_.size()) arrays_.push_back({prefix + name, shape.master, {}});
        level_array& to = arrays_[k++];
        if (worker != worker_) return;
        auto const bytes = std::as_bytes(values);
        auto const& kept = own_.emplace_back(bytes.begin(), bytes.end());
        elements_.visit(each.begin, each.count, [&](std::size_t at, std::size_t first, std::size_t n) {
          to.mine.push_back({first, n, kept.data() + at * size_of(to.type)});
        });
      });
    }
  }

  Inner& inner_;
  Exchanges& exchanges_;
  exchange_settings const& settings_;
  level_position& at_;
  int worker_ = 0;
  elements_of_slice elements_{partition(0, 1), 0};

  // A copy, from a cut to the next one.
  run_numbers common_;  // or of what was loaded
  level_numbers numbers_;
  std::vector<level_array> arrays_;
  std::vector<std::vector<std::byte>> own_;
  std::vector<std::byte> zeros_;
  level_view view_{nullptr, {}, 0, ""};
  std::string words_;

  level_numbers loaded_;
  bool same_ = false;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
