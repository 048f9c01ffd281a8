// SPDX-License-Identifier: Apache-2.0
// Elementwise tasks for whoever has a queue and no storage: the backends of one rank. Queues of other memory have their
// own overloads, beside the storage.
#pragma once

#include <cstddef>

#include "acco/storage/elementwise.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Enqueues to[i] = from[i], converted; nothing where they are the same memory.
template <class From, class To>
void enqueue_convert(host_queue& queue, From const* from, To* to, std::size_t count) {
  if (static_cast<void const*>(from) == static_cast<void*>(to)) return;
  queue.enqueue([=] { elementwise::convert(from, to, count); });
}
/// Enqueues to[i] += from[i].
template <class From, class To>
void enqueue_add(host_queue& queue, From const* from, To* to, std::size_t count) {
  queue.enqueue([=] { elementwise::add(from, to, count); });
}

}  // namespace ACCO_SIMD_NAMESPACE
