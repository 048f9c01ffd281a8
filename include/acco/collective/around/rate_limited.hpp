// SPDX-License-Identifier: Apache-2.0
// A decorator that stretches every collective to the time it would take on a slower link. A simulation: the waiting
// rank sleeps; on a GPU one thread of it does.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "acco/collective/around/decorator.hpp"
#include "acco/number/require.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// How long a collective lasts at least: latency + (bytes that a rank sends in a ring) / rate.
struct link_model {
  double bytes_per_second = 0;  ///< must be given
  double latency = 0;           ///< in seconds

  /// Throws `usage_error` unless the rate is positive, the latency not negative, and both are finite.
  void check(error_place where = {}) const {
    require_positive("link_model::bytes_per_second", bytes_per_second, where);
    require_not_negative("link_model::latency", latency, where);
  }
  [[nodiscard]] constexpr double seconds(collective operation, int ranks, std::size_t whole_bytes) const noexcept {
    return latency + static_cast<double>(bytes_sent(operation, ranks, whole_bytes)) / bytes_per_second;
  }
};

/// How a queue waits: another queue has its own, beside it.
template <class Queue>
struct delay;
template <>
struct delay<host_queue> {
  std::chrono::steady_clock::time_point begun;  // of the collective under way
  explicit delay(host_queue&) {}
  void begin(host_queue& queue) {
    queue.enqueue([this] { begun = std::chrono::steady_clock::now(); });
  }
  void end(host_queue& queue, double seconds) {
    queue.enqueue([this, seconds] {
      std::this_thread::sleep_until(
          begun + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds)));
    });
  }
};

class rate_limit {
 public:
  explicit rate_limit(link_model link) noexcept : link_(link) {}

  template <class Queue, class Backend>
  void before(Queue& queue, Backend const&, collective_call) {
    static_assert(
        requires { sizeof(delay<Queue>); },
        "acco: rate_limited cannot delay tasks of this queue: on a GPU compile with nvcc and include acco/cuda.hpp; of your own "
        "queue, specialise acco::delay");
    delays_.of<delay<Queue>>(queue).begin(queue);
  }
  template <class Queue, class Backend>
  void after(Queue& queue, Backend const& backend, collective_call call) {
    const double seconds =
        backend.size() > 1 ? std::min(link_.seconds(call.operation, backend.size(), call.whole_bytes), 1e9) : 0.0;
    delays_.of<delay<Queue>>(queue).end(queue, seconds);
  }

 private:
  link_model link_;
  memory_by_queue delays_;
};

/// `acco::rate_limited(world, {.bytes_per_second = 25e6})` behaves like `world` on a link of 200 Mbit/s. For
/// experiments on one machine; what it shows is no measurement of a network. Each channel has a link of its own: two
/// optimizers, or two fragments of local updates, that send at the same time do not share it. Throws `usage_error` as
/// `link_model::check` does; a latency alone is simulated with a rate that is out of reach, 1e15 say.
template <class Backend>
[[nodiscard]] decorated_backend<Backend, rate_limit> rate_limited(Backend backend, link_model link) {
  link.check({.rank = backend.rank()});
  return {std::move(backend), rate_limit(link)};
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
