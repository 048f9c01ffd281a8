// SPDX-License-Identifier: Apache-2.0
// The concept of a collective backend: one requirement per operation, combined by name.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "acco/collective/distribution.hpp"

namespace ACCO_NAMESPACE {

template <class Backend>
concept has_rank = requires(Backend const& backend) {
  { backend.rank() } -> std::convertible_to<int>;
  { backend.size() } -> std::convertible_to<int>;
};

template <class Backend>
concept sums_natively = requires { requires Backend::sums_in_element_type; };

/// What a backend's reduce-scatter writes: sums in `Sum`, or, where it declares `static constexpr bool sums_in_element_type =
/// true` (NCCL), in the gradient's own type.
template <class Backend, class Gradient, class Sum>
using reduced_by = std::conditional_t<sums_natively<Backend>, Gradient, Sum>;

template <class Backend, class Queue>
concept has_all_reduce = requires(Backend& backend, Queue& queue, partial<double const> in, replicated<double> out) {
  backend.all_reduce(queue, in, out);
};

template <class Backend, class Queue, class Gradient, class Sum>
concept has_reduce_scatter = requires(Backend& backend, Queue& queue, partial<Gradient const> in, sharded<Sum> out) {
  backend.reduce_scatter(queue, in, out);
};

/// Optional: a reduce-scatter that adds to its destination saves the engine one slice-sized buffer under `two_phase`.
template <class Backend, class Queue, class Gradient, class Sum>
concept has_accumulating_reduce_scatter = requires(Backend& backend, Queue& queue, partial<Gradient const> in, sharded<Sum> out) {
  backend.reduce_scatter(queue, in, out, accumulate);
};

template <class Backend, class Queue, class Parameter>
concept has_all_gather = requires(Backend& backend, Queue& queue, sharded<Parameter const> in, replicated<Parameter> out) {
  backend.all_gather(queue, in, out);
};

template <class Backend, class Queue, class T>
concept has_broadcast = requires(Backend& backend, Queue& queue, replicated<T> whole) { backend.broadcast(queue, whole, 0); };

/// Needed where gradients travel encoded.
template <class Backend, class Queue>
concept has_all_to_all = requires(Backend& backend, Queue& queue, std::span<std::byte const> in, std::span<std::byte> out) {
  backend.all_to_all(queue, in, out);
};

/// A backend is a copyable handle on a group of ranks. Its operations are *enqueued* (the queue comes first, always) and take
/// effect in the queue's order; every rank must enqueue the same operations in the same order, and one at a time. When an
/// operation is done on a rank, that rank may reuse the operation's buffers. Until then the buffers belong to it.
///  - `rank()`, `size()`;
///  - `all_reduce(queue, partial<T const>, replicated<T>)`: sums; input and output must not overlap;
///  - `reduce_scatter(queue, partial<Gradient const>, sharded<Sum>)`: the input is `size()` slices long; summed in at least fp32;
///  - `all_gather(queue, sharded<T const>, replicated<T>)`: the input may be this rank's slice inside the output;
///  - `broadcast(queue, replicated<T>, root)` for trivially copyable T;
///  - `all_to_all(queue, span<std::byte const> in, span<std::byte> out)`, if gradients are to travel encoded: both are `size()`
///    parts of the same length; part r of `in` goes to rank r, part r of `out` came from rank r. They do not overlap.
/// Optional: `abandon(reason)`, called when this rank leaves with a round in flight: the other ranks must then fail, not hang;
/// and `driver()`, for backends whose progress the waiting thread makes itself.
template <class Backend, class Queue, class Gradient = float, class Sum = float, class Parameter = float>
concept collective_backend =
    has_rank<Backend> && has_all_reduce<Backend, Queue> && has_reduce_scatter<Backend, Queue, Gradient, Sum> &&
    has_all_gather<Backend, Queue, Parameter> && has_broadcast<Backend, Queue, Parameter> && has_broadcast<Backend, Queue, char>;

/// The same, one sentence each.
template <class Backend, class Queue, class Gradient, class Sum, class Parameter>
consteval bool check_collective_backend() {
  static_assert(has_rank<Backend>, "acco: the backend lacks `rank() const` and `size() const` returning int");
  static_assert(has_all_reduce<Backend, Queue>,
                "acco: the backend lacks `all_reduce(queue, partial<double const>, replicated<double>)`");
  static_assert(has_reduce_scatter<Backend, Queue, Gradient, Sum>,
                "acco: the backend lacks `reduce_scatter(queue, partial<Gradient const>, sharded<Sum>)`");
  static_assert(has_all_gather<Backend, Queue, Parameter>,
                "acco: the backend lacks `all_gather(queue, sharded<Parameter const>, replicated<Parameter>)`");
  static_assert(has_broadcast<Backend, Queue, Parameter> && has_broadcast<Backend, Queue, char>,
                "acco: the backend lacks `broadcast(queue, replicated<T>, int root)`");
  return true;
}

}  // namespace ACCO_NAMESPACE
