// SPDX-License-Identifier: Apache-2.0
// One rank: every collective is a copy at most.
#pragma once

#include "acco/collective/backend.hpp"
#include "acco/collective/split.hpp"
#include "acco/storage/elementwise_tasks.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A world of one rank, for training without peers and as the baseline of everything else. On host and device memory.
class solo_backend {
 public:
  static constexpr backend_traits traits{
      .accumulates = true, .passes = true, .tells_departures = true, .duplicates = true, .splits = true, .counts_bytes = true};

  [[nodiscard]] int rank() const noexcept { return 0; }
  [[nodiscard]] int size() const noexcept { return 1; }

  template <class Queue, class T>
  void all_reduce(Queue& queue, partial<T const> in, replicated<T> out) const {
    enqueue_convert(queue, in.local().data(), out.whole().data(), in.local().size());
  }
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    enqueue_convert(queue, in.local().data(), out.slice().data(), in.local().size());
  }
  template <class Queue, class Gradient, class Sum>
  void reduce_scatter(Queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t) const {
    enqueue_add(queue, in.local().data(), out.slice().data(), in.local().size());
  }
  template <class Queue, class T>
  void all_gather(Queue& queue, sharded<T const> in, replicated<T> out) const {
    enqueue_convert(queue, in.slice().data(), out.whole().data(), in.slice().size());
  }
  template <class Queue>
  void all_to_all(Queue& queue, std::span<std::byte const> in, std::span<std::byte> out) const {
    enqueue_convert(queue, in.data(), out.data(), in.size());
  }
  template <class Queue, class T>
  void broadcast(Queue&, replicated<T>, int) const {}

  /// Nobody is there to be told, to be disturbed, or to be sent anything.
  void abort(std::string_view) const noexcept {}
  void close() const noexcept {}
  [[nodiscard]] solo_backend duplicate() const noexcept { return *this; }
  /// Itself; throws `usage_error` where the color is negative.
  [[nodiscard]] solo_backend split(int color, int key = 0, double deadline = 600) const {
    const error_place where{0, -1, "split"};
    require_positive("split's deadline", deadline, where);
    (void)part_of({split_answer{color, key}}, color, 0, where);
    return *this;
  }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return 0; }
};
static_assert(collective_backend<solo_backend, host_queue>);

}  // namespace ACCO_SIMD_NAMESPACE
