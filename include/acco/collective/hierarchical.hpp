// SPDX-License-Identifier: Apache-2.0
// One world of two levels: fast groups of ranks, and what connects the groups (after the hierarchical collectives of NCCL and
// ZeRO++, arXiv 2306.10209, section 3.3). Between groups travels what a group's ranks have summed among themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/error.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/number/demand.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Memory for what has passed one level and not the other. It grows, and what works may still use stays: the trainer's thread
/// calls all members.
class level_scratch {
 public:
  /// Room for `count` numbers, the same for every operation: they run one after the other.
  template <class T>
  [[nodiscard]] std::span<T> room(std::size_t count) {
    if (count * sizeof(T) > largest_) add(count * sizeof(T));
    return {blocks_.empty() ? nullptr : reinterpret_cast<T*>(blocks_.back().get()), count};
  }
  /// While no operation is under way: room for so many bytes, and no more than is needed.
  void reserve(std::size_t bytes) {
    if (bytes <= largest_) return;
    blocks_.clear();
    bytes_ = largest_ = 0;
    add(bytes);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t bytes_with(std::size_t reserved) const noexcept { return reserved <= largest_ ? bytes_ : reserved; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct release {
    void operator()(std::byte* memory) const noexcept { ::operator delete(memory, alignment); }
  };
  void add(std::size_t bytes) {
    blocks_.emplace_back(static_cast<std::byte*>(::operator new(bytes, alignment)));
    largest_ = bytes;
    bytes_ += bytes;
  }

  std::vector<std::unique_ptr<std::byte, release>> blocks_;
  std::size_t largest_ = 0, bytes_ = 0;
};

/// A backend over two others: `Inner` connects the m ranks of a group, `Outer` the g ranks that have the same place in each of
/// the g groups. Its rank is
///     rank = inner.rank() g + outer.rank(),
/// not the rank in the world that was split: the slices of a group's ranks lie apart, those of one place together, so that every
/// message of both levels is contiguous. Whole arrays travel like this (docs/encodings.md has the bytes):
///  - `reduce_scatter`: inside the group, g slices to each rank; then between groups, where a rank sends (g-1)/g of its m-th
///  part;
///  - `all_gather`: between groups, then inside; `broadcast`: between the ranks of the root's place, then inside;
///  - `all_reduce`: both sums whole, for a few numbers. All ranks get the same bits where `Outer` gives the same sum of the same
///    addends in each of its worlds, as the library's backends do;
///  - `all_to_all`: inside, then between groups, with a copy on either side of that.
/// Sums are those of the groups, in the order of their ranks, summed in the order of the groups: rounding differs from a flat
/// world's where both m and g are more than 1. Gradients that travel encoded are summed exactly inside the group and encoded
/// between groups only (round/group_sums.hpp).
///
/// What one level needs for the other is kept in memory of this handle, which is allocated when first needed, never shrinks and
/// counts in `buffer_bytes`. Host memory only. A rank that leaves does so on both levels, and a rank whose operation fails tells
/// the other level at once. Errors say at which level they were met, "inside its group" or "between groups", and number its
/// ranks: rank k inside is rank k g + group(), rank k between groups rank place() g + k.
template <class Inner, class Outer>
class hierarchical {
  static consteval backend_traits of_both() {
    constexpr backend_traits in = traits_of<Inner>, out = traits_of<Outer>;
    static_assert(!in.watched && !out.watched && !in.shares_device && !out.shares_device,
                  "acco: hierarchical works on host memory, and one of its levels works on a GPU's");
    static_assert(
        !two_levels<Inner> && !two_levels<Outer>,
        "acco: hierarchical has two levels, and one of these has two already: encoded rounds know one inside and one between");
    static_assert(!in.sums_in_element_type && !out.sums_in_element_type,
                  "acco: hierarchical needs levels that sum in at least fp32");
    return {.accumulates = in.accumulates && out.accumulates,
            .passes = in.passes && out.passes,
            .tells_departures = in.tells_departures && out.tells_departures,
            .duplicates = in.duplicates && out.duplicates,
            .duplicates_together = in.duplicates && out.duplicates && (in.duplicates_together || out.duplicates_together),
            .driven = in.driven || out.driven,
            .meets_on_host = in.meets_on_host || out.meets_on_host,
            .issues_slowly = in.issues_slowly || out.issues_slowly,
            .counts_bytes = in.counts_bytes && out.counts_bytes,
            .allocates_messages = true,
            .names_progress = in.names_progress || out.names_progress,
            .works_of_a_call = in.works_of_a_call + out.works_of_a_call + works_of_levels};
  }
  /// One before and one behind each level, and two copies.
  static constexpr std::size_t works_of_levels = 6;

 public:
  static constexpr backend_traits traits = of_both();

  /// `inner` and `outer` are levels that fit, on every rank: `make_hierarchical` asks all of them. Throws `usage_error` where
  /// both make progress in the thread that waits, and not in the same way.
  hierarchical(Inner inner, Outer outer) : both_(std::make_shared<levels>(std::move(inner), std::move(outer))) {
    if constexpr (traits.driven) {
      const queue_driver of_inner = driver_of(both_->inner), of_outer = driver_of(both_->outer);
      if (of_inner.wait != of_outer.wait || of_inner.poll != of_outer.poll || of_inner.context != of_outer.context) {
        throw usage_error(
            {.rank = rank()},
            text("one level's messages make progress in another way than the other level's, and one queue has both"),
            text("Make both levels of one world, or let threads of their own move the messages (MPI: "
                 "mpi_progress::helper_thread)"));
      }
    }
  }

  [[nodiscard]] int rank() const noexcept { return both_->rank(); }
  [[nodiscard]] int size() const noexcept { return ranks_a_group() * groups(); }
  [[nodiscard]] int groups() const noexcept { return both_->outer.size(); }
  [[nodiscard]] int ranks_a_group() const noexcept { return both_->inner.size(); }
  /// This rank's group.
  [[nodiscard]] int group() const noexcept { return both_->outer.rank(); }
  /// Its rank in the group.
  [[nodiscard]] int place() const noexcept { return both_->inner.rank(); }

  /// Enqueues what call(level) enqueues there, inside the group or between groups: errors tell which, and the other level hears
  /// of them. For operations of one level alone.
  template <class Queue, class Call>
  void inside(Queue& queue, Call&& call) {
    on(queue, "inside its group", [&] { call(both_->inner); });
  }
  template <class Queue, class Call>
  void between(Queue& queue, Call&& call) {
    on(queue, "between groups", [&] { call(both_->outer); });
  }

  template <class Queue, class T>
  void all_reduce(Queue& queue, partial<T const> in, replicated<T> out) {
    demand_host<Queue>();
    if (one_group()) return both_->inner.all_reduce(queue, in, out);
    if (lone_ranks()) return both_->outer.all_reduce(queue, in, out);
    const std::span<T> sums = both_->scratch.template room<T>(out.whole().size());
    inside(queue, [&](Inner& level) { level.all_reduce(queue, in, replicated<T>(sums)); });
    between(queue, [&](Outer& level) { level.all_reduce(queue, partial<T const>(sums), out); });
  }

  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out) {
    reduce_scatter_into<Gradient, Sum>(queue, in, out);
  }
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t add)
    requires(traits.accumulates)
  {
    reduce_scatter_into<Gradient, Sum>(queue, in, out, add);
  }

  template <class Queue, class T>
  void all_gather(Queue& queue, sharded<T const> in, replicated<T> out) {
    demand_host<Queue>();
    if (one_group()) return both_->inner.all_gather(queue, in, out);
    if (lone_ranks()) return both_->outer.all_gather(queue, in, out);
    const std::size_t count = in.slice().size() * of_groups();
    const std::span<T> mine = out.whole().subspan(static_cast<std::size_t>(place()) * count, count);
    between(queue, [&](Outer& level) { level.all_gather(queue, in, replicated<T>(mine)); });
    inside(queue, [&](Inner& level) { level.all_gather(queue, sharded<T const>(mine), out); });
  }

  template <class Queue, class T>
  void broadcast(Queue& queue, replicated<T> whole, int root) {
    demand_host<Queue>();
    const int root_place = root / groups(), root_group = root % groups();
    if (!one_group() && place() == root_place) between(queue, [&](Outer& level) { level.broadcast(queue, whole, root_group); });
    if (!lone_ranks()) inside(queue, [&](Inner& level) { level.broadcast(queue, whole, root_place); });
  }

  /// Part (place, group) reaches its place inside the group, and its group between them.
  template <class Queue>
  void all_to_all(Queue& queue, std::span<std::byte const> in, std::span<std::byte> out)
    requires(traits.passes)
  {
    demand_host<Queue>();
    if (one_group()) return both_->inner.all_to_all(queue, in, out);
    if (lone_ranks()) return both_->outer.all_to_all(queue, in, out);
    const std::size_t places = static_cast<std::size_t>(ranks_a_group()), part = in.size() / (places * of_groups());
    const std::span<std::byte> turned = both_->scratch.template room<std::byte>(in.size());
    inside(queue, [&](Inner& level) { level.all_to_all(queue, in, out); });
    queue.enqueue([=, n = of_groups()] { turn(out.data(), turned.data(), places, n, part); });
    between(queue, [&](Outer& level) { level.all_to_all(queue, std::span<std::byte const>(turned), out); });
    queue.enqueue([=, n = of_groups()] {
      turn(out.data(), turned.data(), n, places, part);
      if (part != 0) std::memcpy(out.data(), turned.data(), out.size());
    });
  }

  /// This rank leaves both levels: for a reason, or in peace.
  void abandon(std::string_view reason) const noexcept
    requires(traits.tells_departures)
  {
    both_->abandon(reason);
  }
  void retire() const noexcept
    requires(traits.tells_departures)
  {
    both_->inner.retire();
    both_->outer.retire();
  }
  /// The same rank, over channels of its own on both levels, with memory of its own.
  [[nodiscard]] hierarchical duplicate() const
    requires(traits.duplicates)
  {
    return {both_->inner.duplicate(), both_->outer.duplicate()};
  }
  [[nodiscard]] queue_driver driver() const
    requires(traits.driven)
  {
    return driver_of(both_->inner);
  }
  /// On both levels, and between groups alone.
  [[nodiscard]] std::uint64_t bytes_sent() const
    requires(traits.counts_bytes)
  {
    return both_->inner.bytes_sent() + both_->outer.bytes_sent();
  }
  [[nodiscard]] std::uint64_t bytes_sent_between() const
    requires(traits_of<Outer>.counts_bytes)
  {
    return both_->outer.bytes_sent();
  }
  /// What both levels allocate for messages, and what lies between them; as if so many bytes of that had been reserved.
  [[nodiscard]] std::size_t buffer_bytes(std::size_t reserved = 0) const {
    return bytes_of(both_->inner) + bytes_of(both_->outer) + both_->scratch.bytes_with(needed(reserved));
  }
  /// While no operation is under way: memory for slices of so many bytes, all groups' of a place together, at once.
  void reserve(std::size_t bytes) { both_->scratch.reserve(needed(bytes)); }
  /// Who moves the messages between groups, where that level says it; else those inside.
  [[nodiscard]] char const* progress_policy() const
    requires(traits.names_progress)
  {
    if constexpr (traits_of<Outer>.names_progress) {
      return both_->outer.progress_policy();
    } else {
      return both_->inner.progress_policy();
    }
  }

 private:
  struct levels {
    Inner inner;
    Outer outer;
    level_scratch scratch;
    char const* phase = nullptr;  // of the queue's place, while a level's name stands there

    levels(Inner of_group, Outer of_groups) : inner(std::move(of_group)), outer(std::move(of_groups)) {}
    [[nodiscard]] int rank() const { return inner.rank() * outer.size() + outer.rank(); }
    /// The levels number this rank otherwise.
    void abandon(std::string_view reason) noexcept {
      if constexpr (traits.tells_departures) {
        const text told("(rank ", rank(), " of the whole) ", reason);
        inner.abandon(told.view());
        outer.abandon(told.view());
      }
    }
  };
  /// Behind the works of a level. Dropped after a failure: the other level's ranks cannot know of it.
  struct end_of_level {
    host_queue* queue;
    levels* both;
    void operator()() const noexcept { queue->place.phase = std::exchange(both->phase, nullptr); }
    void dropped() const noexcept {
      if (both->phase != nullptr) (*this)();
      if (!queue->failed()) return;
      try {
        queue->rethrow();
      } catch (std::exception const& e) {
        both->abandon(text("it cannot go on: ", std::string_view(e.what())).view());
      } catch (...) {
        both->abandon("it cannot go on: an exception that is not a std::exception");
      }
    }
  };

  template <class Queue>
  static constexpr void demand_host() {
    static_assert(std::is_same_v<Queue, host_queue>, "acco: hierarchical works on host memory: its queue is acco::host_queue");
  }
  template <class Queue, class Call>
  void on(Queue& queue, char const* level, Call&& call) {
    demand_host<Queue>();
    queue.enqueue([q = &queue, both = both_.get(), level] { both->phase = std::exchange(q->place.phase, level); });
    call();
    queue.enqueue(end_of_level{&queue, both_.get()});
  }

  template <class Gradient, class Sum, class Queue, class... Accumulate>
  void reduce_scatter_into(Queue& queue, partial<Gradient const> in, sharded<Sum> out, Accumulate... add) {
    demand_host<Queue>();
    if (one_group()) return both_->inner.reduce_scatter(queue, in, out, add...);
    if (lone_ranks()) return both_->outer.reduce_scatter(queue, in, out, add...);
    const std::span<Sum> sums = both_->scratch.template room<Sum>(out.slice().size() * of_groups());
    inside(queue, [&](Inner& level) { level.reduce_scatter(queue, in, sharded<Sum>(sums)); });
    between(queue, [&](Outer& level) { level.reduce_scatter(queue, partial<Sum const>(sums), out, add...); });
  }
  /// to[column][row] = from[row][column], of parts.
  static void turn(std::byte const* from, std::byte* to, std::size_t rows, std::size_t columns, std::size_t part) noexcept {
    for (std::size_t row = 0; row < rows && part != 0; ++row) {
      for (std::size_t column = 0; column < columns; ++column)
        std::memcpy(to + (column * rows + row) * part, from + (row * columns + column) * part, part);
    }
  }
  template <class Level>
  [[nodiscard]] static queue_driver driver_of(Level const& level) {
    if constexpr (traits_of<Level>.driven) {
      return level.driver();
    } else {
      return {};
    }
  }
  template <class Level>
  [[nodiscard]] static std::size_t bytes_of(Level const& level) {
    if constexpr (traits_of<Level>.allocates_messages) {
      return level.buffer_bytes();
    } else {
      return 0;
    }
  }
  /// Of so many bytes between the levels: none where one of them is alone.
  [[nodiscard]] std::size_t needed(std::size_t bytes) const noexcept { return one_group() || lone_ranks() ? 0 : bytes; }
  [[nodiscard]] bool one_group() const noexcept { return groups() == 1; }
  [[nodiscard]] bool lone_ranks() const noexcept { return ranks_a_group() == 1; }
  [[nodiscard]] std::size_t of_groups() const noexcept { return static_cast<std::size_t>(groups()); }

  std::shared_ptr<levels> both_;
};

/// What every rank answers, in the order of the ranks; all give equally many answers. Collective; blocks at most `deadline`
/// seconds for any rank.
template <class Backend, class Answer>
[[nodiscard]] std::vector<Answer> answers_of_all(Backend& world, std::span<Answer const> mine, error_place where,
                                                 double deadline) {
  std::vector<Answer> all(static_cast<std::size_t>(world.size()) * mine.size());
  auto queue = make_queue<host_queue>(world);
  queue.place = where;
  queue.deadline = deadline;
  world.all_gather(queue, sharded<Answer const>(mine), replicated<Answer>(std::span(all)));
  queue.wait();
  return all;
}
template <class Backend, class Answer>
[[nodiscard]] std::vector<Answer> answers_of_all(Backend& world, Answer const& mine, error_place where, double deadline) {
  return answers_of_all(world, std::span<Answer const>(&mine, 1), where, deadline);
}

/// Throws `usage_error`, on every rank, unless all groups have as many ranks, and `outer` connects the ranks of one place in all
/// groups, everywhere in the same order: the same groups at every place, too. Costs three exchanges of 48 bytes a rank and one
/// inside the group of 8 bytes a group and rank. Collective over both; blocks at most `deadline` seconds for any rank.
///
/// Every group is known by a number that its rank 0 draws, so that what two ranks of a group hear between groups can be compared.
/// A group that finds nothing wrong is connected, at every place, with the same groups and no others; these find nothing wrong
/// either. So all ranks that are connected, however far, throw or do not, and none waits for one that has thrown.
template <class Inner, class Outer>
void demand_levels_fit(Inner& inner, Outer& outer, double deadline) {
  const error_place where{-1, -1, "make_hierarchical"};
  demand_positive("make_hierarchical's deadline", deadline, where);
  // place, ranks of the group, group, groups, flaw, the number that the group is known by
  using facts = std::array<std::int64_t, 6>;
  enum flaw : std::int64_t { none, sizes, places };
  facts mine{inner.rank(), inner.size(), outer.rank(), outer.size(), none, 0};
  if (inner.rank() == 0) {
    std::random_device entropy;
    mine[5] = static_cast<std::int64_t>(std::uint64_t{entropy()} << 32U | entropy());
  }
  const auto hear = [&](std::vector<facts> const& all, std::size_t rank, std::size_t size) {
    for (facts const& each : all) {
      std::int64_t const found = each[size] != mine[size] ? sizes : each[rank] != mine[rank] ? places : each[4];
      if (mine[4] == none || found == sizes) mine[4] = found == none ? mine[4] : found;
    }
  };
  const auto ask = [&](auto& level) { return answers_of_all(level, mine, where, deadline); };
  const std::vector<facts> of_group = ask(inner);
  mine[5] = of_group[0][5];
  hear(of_group, 2, 3);  // a group's ranks are of one group, and
  const std::vector<facts> of_place = ask(outer);
  hear(of_place, 0, 1);  // ranks between groups of one place; what a group has found reaches the others
  hear(ask(inner), 2, 3);
  if (mine[4] == sizes) {
    throw usage_error(where, text("the groups do not all have the same number of ranks"),
                      text("Let every group have as many ranks, or train over one level"));
  }
  if (mine[4] == places) {
    throw usage_error(where,
                      text("the levels do not fit: a rank is not at the same place in its group as those it is connected with"),
                      text("The outer level connects the ranks of one place in all groups, in the same order at every place"));
  }
  std::vector<std::int64_t> met;
  met.reserve(of_place.size());
  for (facts const& each : of_place) met.push_back(each[5]);
  const std::vector<std::int64_t> met_by_all =
      answers_of_all(inner, std::span<std::int64_t const>(met), where, deadline);  // all ranks of a group have come here, or none
  for (std::size_t k = met.size(); k < met_by_all.size(); ++k) {
    if (met_by_all[k] == met_by_all[k % met.size()]) continue;
    throw usage_error(
        where,
        text("the levels do not fit: between groups, ranks 0 and ", k / met.size(),
             " of a group are connected with different groups, at rank ", k % met.size(), " of the outer level (this is rank ",
             inner.rank(), " of that group, and rank ", outer.rank(), " between groups)"),
        text("Let the ranks of every group be connected with the same groups at every place, in the same order: no rings"));
  }
}

/// The backend of two levels that the caller brings: `inner` of the ranks of this rank's group, `outer` of the ranks that have
/// this one's place in every group (threads in a process, say, and Gloo between processes). Collective over both; blocks at most
/// `deadline` seconds for any rank. Throws `usage_error`, on every rank,
/// where they do not fit (`demand_levels_fit`).
template <class Inner, class Outer>
[[nodiscard]] hierarchical<Inner, Outer> make_hierarchical(Inner inner, Outer outer, double deadline = 600) {
  demand_levels_fit(inner, outer, deadline);
  return {std::move(inner), std::move(outer)};
}

/// The backend of two levels of one world that splits: ranks k m to k m + m - 1 of the world, m = `ranks_a_group`, become group
/// k; the result numbers them otherwise (`hierarchical`). Collective; blocks at most `deadline` seconds for any rank. Throws
/// `usage_error`, on every rank alike, unless the world's ranks make whole groups, and where ranks ask for different ones.
template <class Backend>
[[nodiscard]] hierarchical<Backend, Backend> hierarchical_world(Backend const& world, int ranks_a_group, double deadline = 600) {
  static_assert(traits_of<Backend>.splits,
                "acco: hierarchical_world splits a world, and this backend cannot be split: make both levels, and call "
                "make_hierarchical(inner, outer)");
  const error_place where{world.rank(), -1, "hierarchical_world"};
  demand_positive("hierarchical_world's deadline", deadline, where);
  Backend whole = world;
  const std::vector<std::int32_t> asked = answers_of_all(whole, std::int32_t{ranks_a_group}, where, deadline);
  for (int rank = 1; rank < world.size(); ++rank) {
    if (asked[static_cast<std::size_t>(rank)] == asked[0]) continue;
    throw usage_error(where,
                      text("rank 0 asked for groups of ", asked[0], " ranks, rank ", rank, " for groups of ",
                           asked[static_cast<std::size_t>(rank)]),
                      text("Let every rank ask for the same groups"), world.rank() == rank ? 0 : rank);
  }
  if (ranks_a_group < 1 || world.size() % ranks_a_group != 0) {
    throw usage_error(where, text("groups of ", ranks_a_group, " ranks were asked for in a world of ", world.size()),
                      text("Let the number of ranks be a multiple of a group's"));
  }
  const int group = world.rank() / ranks_a_group, place = world.rank() % ranks_a_group;
  Backend inner = world.split(group, place, deadline), outer = world.split(place, group, deadline);
  return make_hierarchical(std::move(inner), std::move(outer), deadline);
}

}  // namespace ACCO_SIMD_NAMESPACE
