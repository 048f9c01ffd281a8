// SPDX-License-Identifier: Apache-2.0
// A decorator that records every collective in a trace, below the round it belongs to. On a GPU events tell when it
// ran, and it is recorded when the host has waited for it.
#pragma once

#include <memory>
#include <utility>

#include "acco/collective/around/decorator.hpp"
#include "acco/observe/trace.hpp"

namespace ACCO_SIMD_NAMESPACE {

class trace_calls {
 public:
  /// `rank` is the row: also that of the worlds that are split off later, whose own ranks begin at 0 again.
  trace_calls(trace* into, int rank) : into_(into), rank_(rank), begin_(std::make_unique<double>(0)) {}
  trace_calls(trace_calls const& other) : trace_calls(other.into_, other.rank_) {}
  trace_calls(trace_calls&&) noexcept = default;
  trace_calls& operator=(trace_calls const&) = delete;
  trace_calls& operator=(trace_calls&&) noexcept = default;
  ~trace_calls() = default;

  template <class Queue, class Backend>
  void before(Queue& queue, Backend const&, collective_call) const {
    queue.stamp([begin = begin_.get()](double now) { *begin = now; });
  }
  template <class Queue, class Backend>
  void after(Queue& queue, Backend const&, collective_call call) const {
    queue.stamp([&queue, into = into_, begin = begin_.get(), rank = rank_, operation = call.operation](double now) {
      const auto round = queue.place.round < 0 ? 0 : static_cast<std::size_t>(queue.place.round);
      into->record(rank, trace::row::collectives, name_of(operation), round, {*begin, now});
    });
  }

 private:
  trace* into_;
  int rank_;
  std::unique_ptr<double> begin_;  // of the collective under way
};

/// `acco::traced(world, trace)`: the same backend; `into` must outlive it. In host and device memory.
template <class Backend>
[[nodiscard]] decorated_backend<Backend, trace_calls> traced(Backend backend, trace& into) {
  const int rank = backend.rank();
  return {std::move(backend), trace_calls(&into, rank)};
}

}  // namespace ACCO_SIMD_NAMESPACE
