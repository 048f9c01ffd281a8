// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process. Sums in rank order, in at least fp32; waits sleep, have a deadline, and name who is
// missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "acco/collective/backend.hpp"
#include "acco/collective/meeting_point.hpp"
#include "acco/collective/redistribution.hpp"
#include "acco/function_view.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

class threads_world;

/// A handle on one rank of an in-process world; cheap to copy. All copies of one rank's handle speak for that rank.
/// Works on host memory; on device memory with cuda/threads.hpp.
class ACCO_VISIBLE threads_backend {
 public:
  static constexpr backend_traits traits{.accumulates = true,
                                         .passes = true,
                                         .tells_departures = true,
                                         .duplicates = true,
                                         .splits = true,
                                         .meets_on_host = true,
                                         .counts_bytes = true};

  /// Runs `function(threads_backend)` on `ranks` threads and returns when all have ended. An exception on one rank ends
  /// the waits of all others with an error that names it; `run` rethrows the exception that came first and was not such
  /// a consequence.
  template <class Function>
  static void run(int ranks, Function&& function) {
    const auto calls = [&function](threads_backend const& handle) { function(handle); };
    run_each(ranks, calls);
  }

  /// The handles of a new world, for programs that start their threads themselves.
  [[nodiscard]] static std::vector<threads_backend> world(int ranks);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return point_->size(); }

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    meet_and_read(queue, collective::all_reduce, in.local(), 0,
                  [out](meeting_point const& point, int) { sum<T>(point, 0, out.whole(), false); });
  }

  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    reduce_scatter_into<Gradient, Sum, false>(queue, in, out);
  }
  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t) const {
    reduce_scatter_into<Gradient, Sum, true>(queue, in, out);
  }

  template <class T>
  void all_gather(host_queue& queue, sharded<T const> in, replicated<T> out) const {
    meet_and_read(queue, collective::all_gather, in.slice(), 0, [out](meeting_point const& point, int) {
      for (int peer = 0; peer < point.size(); ++peer) {
        auto const& post = point.of(peer);
        T* const to = out.whole().data() + static_cast<std::size_t>(peer) * post.count;
        if (post.data != to && post.count != 0) std::memcpy(static_cast<void*>(to), post.data, post.count * sizeof(T));
      }
    });
  }

  void all_to_all(host_queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    meet_and_read(queue, collective::all_to_all, in, 0, [out](meeting_point const& point, int rank) {
      const std::size_t part = out.size() / static_cast<std::size_t>(point.size());
      for (int peer = 0; peer < point.size() && part != 0; ++peer) {
        std::memcpy(out.data() + static_cast<std::size_t>(peer) * part,
                    static_cast<std::byte const*>(point.of(peer).data) + static_cast<std::size_t>(rank) * part, part);
      }
    });
  }

  template <class T>
  void broadcast(host_queue& queue, replicated<T> whole, int root) const {
    meet_and_read(queue, collective::broadcast, whole.whole(), root, [whole, root](meeting_point const& point, int rank) {
      if (rank != root && !whole.whole().empty())
        std::memcpy(static_cast<void*>(whole.whole().data()), point.of(root).data, whole.whole().size_bytes());
    });
  }

  /// The same over queues of other memory, whose header defines how ranks `meet` there.
  template <class Queue, class T>
  void all_reduce(Queue& queue, partial<T const> in, replicated<T> out) const
    requires requires(meeting_point& p) { meet(queue, p, 0, in, out); }
  {
    meet(queue, *point_, rank_, in, out);
  }
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    meet(queue, *point_, rank_, in, out, std::false_type{});
  }
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t) const {
    meet(queue, *point_, rank_, in, out, std::true_type{});
  }
  template <class Queue, class T>
  void all_gather(Queue& queue, sharded<T const> in, replicated<T> out) const {
    meet(queue, *point_, rank_, in, out);
  }
  template <class Queue>
  void all_to_all(Queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    meet(queue, *point_, rank_, in, out);
  }
  template <class Queue, class T>
  void broadcast(Queue& queue, replicated<T> whole, int root) const {
    meet(queue, *point_, rank_, whole, root);
  }

  /// This rank leaves this channel: for a reason, or in peace. Another channel of the world can be used again.
  void abort(std::string_view reason) const noexcept { point_->fail(rank_, reason); }
  void close() const noexcept { point_->leave(rank_, "has finished, left,"); }
  /// The same rank, over a channel of its own. Waits for nobody.
  [[nodiscard]] threads_backend duplicate() const;
  /// A world of the ranks that give the same color, 0 or more, ordered by key and then by rank; errors name its ranks.
  /// Every rank of this handle calls it; blocks at most `deadline` seconds for any of them. What ends a rank's thread
  /// ends it in every world.
  [[nodiscard]] threads_backend split(int color, int key = 0, double deadline = 600) const;
  /// Of this channel.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return point_->sent(rank_); }

 private:
  /// Compiled once: of a function it knows only how to call it.
  static void run_each(int ranks, function_view<void(threads_backend const&)> function);

  threads_backend(std::shared_ptr<threads_world> all, int rank);

  template <class Gradient, class Sum, bool add>
  void reduce_scatter_into(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    meet_and_read(queue, collective::reduce_scatter, in.local(), 0, [out](meeting_point const& point, int rank) {
      sum<Gradient>(point, static_cast<std::size_t>(rank) * out.slice().size(), out.slice(), add);
    });
  }

  /// Meet, read the others' data with `work`, and part when all have read.
  template <class T, class Work>
  void meet_and_read(host_queue& queue, collective operation, std::span<T> mine, int root, Work work) const {
    queue.enqueue([point = point_.get(), &queue, operation, mine, root, work, rank = rank_] {
      point->arrive(rank, {operation, mine.size(), sizeof(T), root, mine.data()}, queue.place, queue.deadline);
      work(*point, rank);
      point->count(rank);
      point->depart(queue.place, queue.deadline);
    });
  }

  template <class From, class To>
  static void sum(meeting_point const& point, std::size_t offset, std::span<To> out, bool add) {
    elementwise::sum_sources(
        point.size(), [&](int peer) { return static_cast<From const*>(point.of(peer).data) + offset; }, out.data(), out.size(),
        add);
  }

  std::shared_ptr<threads_world> world_;
  std::shared_ptr<meeting_point> point_;
  int rank_;
};
static_assert(collective_backend<threads_backend, host_queue>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
#if !ACCO_ENGINES_ARE_COMPILED
#include "acco/collective/threads_world.hpp"
#endif
