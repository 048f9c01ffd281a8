// SPDX-License-Identifier: Apache-2.0
// One world of two levels: fast groups of ranks, and what connects the groups (after the hierarchical collectives of
// ZeRO++, arXiv 2306.10209, section 3.3). Between groups travels what a group's ranks have summed among themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "acco/collective/backend.hpp"
#include "acco/collective/two_levels.hpp"
#include "acco/error.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A backend over two others: `Inner` connects the m ranks of a group, `Outer` the g ranks that have the same place in
/// each of the g groups. Its rank is
///
///   rank = inner.rank() g + outer.rank(),
///
/// not the rank in the world that was split: slices of the ranks of one place lie together, so that every message of
/// both levels is contiguous. Whole arrays travel like this:
///  - `reduce_scatter`: inside the group, g slices to each rank; then between groups, where a rank sends (g-1)/g of its
///    m-th part, so that a group sends (g-1)/g of an array, however many ranks it has;
///  - `all_gather`: between groups, then inside; `broadcast`: between the ranks of the root's place, then inside;
///  - `all_reduce`: both sums whole, for a few numbers. All ranks get the same bits where `Outer` gives the same sum of
///    the same addends in each of its worlds, as the library's backends do;
///  - `all_to_all`: inside, then between groups, with a copy on either side of that.
/// Sums are those of the groups, in the order of their ranks, summed in the order of the groups. Gradients that travel
/// in a code are summed in full inside the group where the code is `between_groups` (code/between_groups.hpp);
/// otherwise every rank's codes travel.
///
/// What one level needs for the other lies in memory of this handle, which is allocated when first needed, never
/// shrinks and counts in `buffer_bytes`. Host memory only. A rank that leaves does so on both levels, and a rank whose
/// operation fails tells the other level at once. Errors say at which level they were met, "inside its group" or
/// "between groups", and number its ranks: rank k inside is rank k g + group(), rank k between groups is rank
/// place() g + k.
template <class Inner, class Outer>
class hierarchical {
  using levels = two_levels<Inner, Outer>;
  static consteval backend_traits of_both() {
    constexpr backend_traits in = traits_of<Inner>, out = traits_of<Outer>;
    static_assert(!in.watched && !out.watched && !in.shares_device && !out.shares_device,
                  "acco: hierarchical works on host memory, and one of its levels works on a GPU's");
    static_assert(!in.has_levels && !out.has_levels, "acco: hierarchical has two levels, and one of these has two already");
    static_assert(!in.sums_in_element_type && !out.sums_in_element_type,
                  "acco: hierarchical needs levels that sum in at least fp32");
    return {.accumulates = in.accumulates && out.accumulates,
            .passes = in.passes && out.passes,
            .tells_departures = levels::tell,
            .duplicates = in.duplicates && out.duplicates,
            .duplicates_together = in.duplicates && out.duplicates && (in.duplicates_together || out.duplicates_together),
            .has_levels = true,
            .driven = in.driven || out.driven,
            .meets_on_host = in.meets_on_host || out.meets_on_host,
            .issues_slowly = in.issues_slowly || out.issues_slowly,
            .counts_bytes = in.counts_bytes && out.counts_bytes,
            .allocates_messages = true,
            .names_progress = in.names_progress || out.names_progress,
            .tasks_of_a_call = in.tasks_of_a_call + out.tasks_of_a_call + tasks_of_levels};
  }
  /// One before and one behind each level, two copies, and the marks of a stage between them.
  static constexpr std::size_t tasks_of_levels = 8;

 public:
  static constexpr backend_traits traits = of_both();

  /// `inner` and `outer` are levels that fit, on every rank: `make_hierarchical` asks all of them. Throws `usage_error`
  /// where both make progress in the thread that waits, and not in the same way.
  hierarchical(Inner inner, Outer outer) : both_(std::make_shared<levels>(levels{std::move(inner), std::move(outer)})) {
    if constexpr (traits.driven) {
      const queue_driver of_inner = driver_of(both_->inner), of_outer = driver_of(both_->outer);
      if (of_inner.wait != of_outer.wait || of_inner.poll != of_outer.poll || of_inner.context != of_outer.context)
        throw usage_error(
            {.rank = rank()},
            text("one level's messages make progress in another way than the other level's, and one queue has both"),
            text("Make both levels of one world, or let threads of their own move the messages (MPI: "
                 "mpi_progress::helper_thread)"));
    }
  }

  [[nodiscard]] int rank() const { return both_->rank(); }
  [[nodiscard]] int size() const { return both_->inner.size() * groups(); }
  [[nodiscard]] int groups() const { return both_->outer.size(); }
  [[nodiscard]] int ranks_a_group() const { return both_->inner.size(); }
  /// This rank's group.
  [[nodiscard]] int group() const { return both_->outer.rank(); }
  /// Its rank in the group.
  [[nodiscard]] int place() const { return both_->inner.rank(); }
  /// The ranks of this rank's group; those of its place, one in each group.
  [[nodiscard]] auto inside() const { return level_backend<levels, true>(both_); }
  [[nodiscard]] auto between() const { return level_backend<levels, false>(both_); }

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    if (one_group()) return inside().all_reduce(queue, in, out);
    if (lone_ranks()) return between().all_reduce(queue, in, out);
    const std::span<T> sums = both_->scratch.template room<T>(out.whole().size());
    inside().all_reduce(queue, in, replicated<T>(sums));
    between().all_reduce(queue, partial<T const>(sums), out);
  }

  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    reduce_scatter_into<Gradient, Sum>(queue, in, out);
  }
  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t add) const
    requires(traits.accumulates)
  {
    reduce_scatter_into<Gradient, Sum>(queue, in, out, add);
  }

  template <class T>
  void all_gather(host_queue& queue, sharded<T const> in, replicated<T> out) const {
    if (one_group()) return inside().all_gather(queue, in, out);
    if (lone_ranks()) return between().all_gather(queue, in, out);
    const std::size_t count = in.slice().size() * of_groups();
    const std::span<T> mine = out.whole().subspan(static_cast<std::size_t>(place()) * count, count);
    between().all_gather(queue, in, replicated<T>(mine));
    inside().all_gather(queue, sharded<T const>(mine), out);
  }

  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) const {
    const int root_place = root / groups(), root_group = root % groups();
    if (!one_group() && place() == root_place) between().broadcast(queue, whole, root_group);
    if (!lone_ranks()) inside().broadcast(queue, whole, root_place);
  }

  /// Part (place, group) reaches its place inside the group, and its group between them.
  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const
    requires(traits.passes)
  {
    if (one_group()) return inside().all_to_all(queue, in, out);
    if (lone_ranks()) return between().all_to_all(queue, in, out);
    const std::size_t places = static_cast<std::size_t>(ranks_a_group()), part = in.size() / (places * of_groups());
    const std::span<std::byte> turned = both_->scratch.template room<std::byte>(in.size());
    inside().all_to_all(queue, in, out);
    queue.enqueue([=, n = of_groups()] { turn(out.data(), turned.data(), places, n, part); });
    between().all_to_all(queue, std::span<std::byte const>(turned), out);
    queue.enqueue([=, n = of_groups()] {
      turn(out.data(), turned.data(), n, places, part);
      if (part != 0) std::memcpy(out.data(), turned.data(), out.size());
    });
  }

  /// This rank leaves both levels: for a reason, or in peace.
  void abort(std::string_view reason) const noexcept
    requires(traits.tells_departures)
  {
    both_->abort(reason);
  }
  void close() const noexcept
    requires(traits.tells_departures)
  {
    both_->inner.close();
    both_->outer.close();
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
  /// On both levels; between groups alone.
  [[nodiscard]] std::uint64_t bytes_sent() const
    requires(traits.counts_bytes)
  {
    return both_->inner.bytes_sent() + bytes_sent_between();
  }
  [[nodiscard]] std::uint64_t bytes_sent_between() const
    requires(traits.counts_bytes)
  {
    return both_->outer.bytes_sent();
  }
  /// What both levels allocate for messages, and what lies between them.
  [[nodiscard]] std::size_t buffer_bytes() const {
    return bytes_of(both_->inner) + bytes_of(both_->outer) + both_->scratch.bytes();
  }
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
  template <class Gradient, class Sum, class... Accumulate>
  void reduce_scatter_into(host_queue& queue, partial<Gradient const> in, sharded<Sum> out, Accumulate... add) const {
    if (one_group()) return inside().reduce_scatter(queue, in, out, add...);
    if (lone_ranks()) return between().reduce_scatter(queue, in, out, add...);
    const std::span<Sum> sums = both_->scratch.template room<Sum>(out.slice().size() * of_groups());
    inside().reduce_scatter(queue, in, sharded<Sum>(sums));
    between().reduce_scatter(queue, partial<Sum const>(sums), out, add...);
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
  [[nodiscard]] bool one_group() const { return groups() == 1; }
  [[nodiscard]] bool lone_ranks() const { return ranks_a_group() == 1; }
  [[nodiscard]] std::size_t of_groups() const { return static_cast<std::size_t>(groups()); }

  std::shared_ptr<levels> both_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
