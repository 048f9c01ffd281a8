// SPDX-License-Identifier: Apache-2.0
// A decorator that records every collective in a trace, below the round it belongs to.
#pragma once

#include <memory>
#include <utility>

#include "acco/clock.hpp"
#include "acco/collective/around/decorator.hpp"
#include "acco/observe/trace.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

class trace_calls {
 public:
  explicit trace_calls(trace* into) : into_(into), begin_(std::make_unique<double>(0)) {}
  trace_calls(trace_calls const& other) : trace_calls(other.into_) {}
  trace_calls(trace_calls&&) noexcept = default;
  trace_calls& operator=(trace_calls const&) = delete;
  trace_calls& operator=(trace_calls&&) noexcept = default;
  ~trace_calls() = default;

  template <class Backend>
  void before(host_queue& queue, Backend const&, collective_call) const {
    queue.enqueue([begin = begin_.get()] { *begin = steady_seconds(); });
  }
  template <class Backend>
  void after(host_queue& queue, Backend const& backend, collective_call call) const {
    queue.enqueue([&queue, into = into_, begin = begin_.get(), rank = backend.rank(), operation = call.operation] {
      const auto round = queue.place.round < 0 ? 0 : static_cast<std::size_t>(queue.place.round);
      into->record(rank, trace::row::collectives, name_of(operation), round, {*begin, steady_seconds()});
    });
  }

 private:
  trace* into_;
  std::unique_ptr<double> begin_;  // of the collective under way
};

/// `acco::traced(world, trace)`: the same backend; `into` must outlive it.
template <class Backend>
[[nodiscard]] decorated_backend<Backend, trace_calls> traced(Backend backend, trace& into) {
  return {std::move(backend), trace_calls(&into)};
}

}  // namespace ACCO_SIMD_NAMESPACE
