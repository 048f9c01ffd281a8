// SPDX-License-Identifier: Apache-2.0
// One rank: every collective is a copy at most.
#pragma once

#include "acco/collective/backend.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_NAMESPACE {

/// A world of one rank, for training without peers and as the baseline of everything else.
class solo_backend {
 public:
  [[nodiscard]] int rank() const noexcept { return 0; }
  [[nodiscard]] int size() const noexcept { return 1; }

  template <class T>
  void all_reduce(host_queue& queue, partial<T const> in, replicated<T> out) const {
    copy(queue, in.local().data(), out.whole().data(), in.local().size());
  }
  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out) const {
    copy(queue, in.local().data(), out.slice().data(), in.local().size());
  }
  template <class Gradient, class Sum>
  void reduce_scatter(host_queue& queue, partial<Gradient const> in, sharded<Sum> out, accumulate_t) const {
    queue.enqueue([=] { elementwise::add(in.local().data(), out.slice().data(), in.local().size()); });
  }
  template <class T>
  void all_gather(host_queue& queue, sharded<T const> in, replicated<T> out) const {
    copy(queue, in.slice().data(), out.whole().data(), in.slice().size());
  }
  template <class T>
  void broadcast(host_queue&, replicated<T>, int) const {}

 private:
  template <class From, class To>
  static void copy(host_queue& queue, From const* from, To* to, std::size_t count) {
    queue.enqueue([=] {
      if (static_cast<void const*>(from) != static_cast<void*>(to)) elementwise::convert(from, to, count);
    });
  }
};
static_assert(collective_backend<solo_backend, host_queue>);

}  // namespace ACCO_NAMESPACE
