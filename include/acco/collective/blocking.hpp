// SPDX-License-Identifier: Apache-2.0
// Collectives of a few numbers in host memory that return when they are done: for start-up and rare questions. Queues
// that order work on other memory have their own overloads, beside the queue.
#pragma once

#include <concepts>
#include <span>

#include "acco/layout/distribution.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Every rank gets the root's; collective.
template <std::derived_from<host_queue> Queue, class Backend, class T>
void broadcast_and_wait(Queue& queue, Backend& backend, std::span<T> whole, int root) {
  backend.broadcast(queue, replicated<T>(whole), root);
  queue.wait();
}

/// out = the sums over all ranks; `in` and `out` must not overlap; collective.
template <std::derived_from<host_queue> Queue, class Backend>
void all_reduce_and_wait(Queue& queue, Backend& backend, std::span<double const> in, std::span<double> out) {
  backend.all_reduce(queue, partial<double const>(in), replicated<double>(out));
  queue.wait();
}

}  // namespace ACCO_SIMD_NAMESPACE
