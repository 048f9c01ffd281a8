// SPDX-License-Identifier: Apache-2.0
// One rank: every collective is a copy at most.
#pragma once

#include "acco/collective/backend.hpp"
#include "acco/storage/elementwise_works.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

/// A world of one rank, for training without peers and as the baseline of everything else. On host and device memory.
class solo_backend {
 public:
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
};
static_assert(collective_backend<solo_backend, host_queue>);

}  // namespace ACCO_NAMESPACE
