// SPDX-License-Identifier: Apache-2.0
// A decorator that stretches every collective to the time it would take on a slower link. A simulation: the waiting rank sleeps.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "acco/collective/around/decorator.hpp"
#include "acco/number/demand.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// How long a collective lasts at least: latency + (bytes that a rank sends in a ring) / rate.
struct link_model {
  double bytes_per_second = 0;  ///< must be given
  double latency = 0;           ///< in seconds

  /// Throws `usage_error` unless the rate is positive, the latency not negative, and both are finite.
  void check(error_place where = {}) const {
    demand_positive("link_model::bytes_per_second", bytes_per_second, where);
    demand_not_negative("link_model::latency", latency, where);
  }
  [[nodiscard]] constexpr double seconds(collective operation, int ranks, std::size_t whole_bytes) const noexcept {
    return latency + static_cast<double>(bytes_sent(operation, ranks, whole_bytes)) / bytes_per_second;
  }
};

class rate_limit {
 public:
  explicit rate_limit(link_model link) : link_(link), until_(std::make_unique<std::chrono::steady_clock::time_point>()) {}
  rate_limit(rate_limit const& other) : rate_limit(other.link_) {}
  rate_limit(rate_limit&&) noexcept = default;
  rate_limit& operator=(rate_limit const&) = delete;
  rate_limit& operator=(rate_limit&&) noexcept = default;
  ~rate_limit() = default;

  template <class Backend>
  void before(host_queue& queue, Backend const& backend, collective_call call) const {
    const double seconds =
        backend.size() > 1 ? std::min(link_.seconds(call.operation, backend.size(), call.whole_bytes), 1e9) : 0.0;
    queue.enqueue([until = until_.get(), seconds] {
      *until = std::chrono::steady_clock::now() +
               std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    });
  }
  template <class Backend>
  void after(host_queue& queue, Backend const&, collective_call) const {
    queue.enqueue([until = until_.get()] { std::this_thread::sleep_until(*until); });
  }

 private:
  link_model link_;
  std::unique_ptr<std::chrono::steady_clock::time_point> until_;  // of the collective under way
};

/// `acco::rate_limited(world, {.bytes_per_second = 25e6})` behaves like `world` on a link of 200 Mbit/s. For experiments on one
/// machine; what it shows is no measurement of a network. Throws `usage_error` as `link_model::check` does; a latency alone is
/// simulated with a rate that is out of reach, 1e15 say.
template <class Backend>
[[nodiscard]] decorated_backend<Backend, rate_limit> rate_limited(Backend backend, link_model link) {
  link.check({.rank = backend.rank()});
  return {std::move(backend), rate_limit(link)};
}

}  // namespace ACCO_SIMD_NAMESPACE
