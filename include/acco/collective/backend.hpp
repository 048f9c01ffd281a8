// SPDX-License-Identifier: Apache-2.0
// The concept of a collective backend: one requirement per operation, combined by name; and its traits, which declare
// what else it can do.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "acco/layout/distribution.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a backend can do beside the operations that every backend has, and members go with it. A backend declares
/// `static constexpr acco::backend_traits traits{.accumulates = true, ...}`; one without the member has none of them.
/// Decorators pass traits and members on. A trait without its member, and a member without its trait, do not compile.
struct backend_traits {
  /// `reduce_scatter(queue, in, out, accumulate)` adds to its destination: saves a slice-sized buffer under
  /// `two_phase`.
  bool accumulates = false;
  /// `all_to_all(queue, span<std::byte const> in, span<std::byte> out)`: needed where gradients travel encoded. Both
  /// are `size()` parts of the same length; part r of `in` goes to rank r, part r of `out` came from rank r. They do
  /// not overlap.
  bool passes = false;
  /// `reduce_scatter` writes sums in the gradient's own type (NCCL), not in at least fp32.
  bool sums_in_element_type = false;
  /// `abort(std::string_view reason) noexcept`: this rank leaves for that reason, and the others' operations fail at
  /// once, with an error that tells it; `close() noexcept`: it leaves in peace, and an operation that would need it
  /// fails at once. Any thread.
  bool tells_departures = false;
  /// `duplicate()`: a handle on the same ranks whose operations and failures are its own. Every rank calls it in the
  /// same order. Each optimizer takes one: several on one world do not disturb each other.
  bool duplicates = false;
  /// `duplicate()` is a collective: it may wait for all ranks.
  bool duplicates_together = false;
  /// `split(int color, int key, double deadline)`: a world of the ranks that give the same color, 0 or more, ordered by
  /// key and then by rank, with channels and failures of its own; errors name its ranks. Collective; blocks at most
  /// `deadline` seconds for any rank.
  bool splits = false;
  /// `inside()` and `between()` give backends of the two levels of which it is made (collective/hierarchical.hpp):
  /// of the ranks of this rank's group; of those that have its place in every group. Rank = place x groups + group.
  bool has_levels = false;
  /// `driver()` gives the `queue_driver` of a backend that makes progress in the thread that waits.
  bool driven = false;
  /// `watch()` gives what a queue of device memory asks while it waits.
  bool watched = false;
  /// Its operations on device memory wait for the other ranks in the thread that issues them.
  bool meets_on_host = false;
  /// Issuing one of its operations on device memory takes the host so long that a thread of the queue's own does it,
  /// not the trainer's.
  bool issues_slowly = false;
  /// `share(bool same_everywhere)`: told by an optimizer that uses this handle, beside others on its device, whether
  /// its rounds start after as many micro-batches on every rank, until `close` or `abort`. Throws `usage_error`
  /// where they cannot go together. The order of operations on a device is that of the calls, whichever thread issues
  /// them.
  bool shares_device = false;
  /// `bytes_sent()`: what this rank has handed over so far, counted where it is handed over.
  bool counts_bytes = false;
  /// `buffer_bytes()`: what it allocates for messages.
  bool allocates_messages = false;
  /// `progress_policy()`: who moves messages while the trainer computes, in words.
  bool names_progress = false;
  /// Tasks that one of its operations enqueues. A queue has room for all tasks of a round, so that the
  /// trainer who enqueues them never waits for room.
  std::size_t tasks_of_a_call = 1;
};

template <class Backend>
concept has_traits = requires {
  { Backend::traits } -> std::convertible_to<backend_traits>;
};
template <class Backend>
consteval backend_traits find_traits() {
  if constexpr (has_traits<Backend>) {
    return Backend::traits;
  } else {
    return {};
  }
}
template <class Backend>
inline constexpr backend_traits traits_of = find_traits<std::remove_cvref_t<Backend>>();

template <class Backend>
concept has_rank = requires(Backend const& backend) {
  { backend.rank() } -> std::convertible_to<int>;
  { backend.size() } -> std::convertible_to<int>;
};

/// What a backend's reduce-scatter writes.
template <class Backend, class Gradient, class Sum>
using reduced_by = std::conditional_t<traits_of<Backend>.sums_in_element_type, Gradient, Sum>;

template <class Backend, class Queue>
concept has_all_reduce = requires(Backend& backend, Queue& queue, partial<double const> in, replicated<double> out) {
  backend.all_reduce(queue, in, out);
};

template <class Backend, class Queue, class Gradient, class Sum>
concept has_reduce_scatter = requires(Backend& backend, Queue& queue, partial<Gradient const> in, sharded<Sum> out) {
  backend.reduce_scatter(queue, in, out);
};

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

template <class Backend, class Queue>
concept has_all_to_all = requires(Backend& backend, Queue& queue, std::span<std::byte const> in, std::span<std::byte> out) {
  backend.all_to_all(queue, in, out);
};

template <class Backend>
concept has_abort = requires(Backend const& backend, std::string_view reason) { backend.abort(reason); };
template <class Backend>
concept has_close = requires(Backend const& backend) { backend.close(); };
template <class Backend>
concept has_duplicate = requires(Backend const& backend) {
  { backend.duplicate() } -> std::convertible_to<Backend>;
};
template <class Backend>
concept has_split = requires(Backend const& backend) {
  { backend.split(0, 0, 1.0) } -> std::convertible_to<Backend>;
};
template <class Backend>
concept has_inside_and_between = requires(Backend const& backend) {
  { backend.inside().size() } -> std::convertible_to<int>;
  { backend.between().size() } -> std::convertible_to<int>;
};
template <class Backend>
concept has_share = requires(Backend const& backend) { backend.share(true); };
template <class Backend>
concept has_driver = requires(Backend const& backend) { backend.driver(); };
template <class Backend>
concept has_watch = requires(Backend const& backend) { backend.watch(); };
template <class Backend>
concept has_bytes_sent = requires(Backend const& backend) {
  { backend.bytes_sent() } -> std::convertible_to<std::uint64_t>;
};
template <class Backend>
concept has_buffer_bytes = requires(Backend const& backend) {
  { backend.buffer_bytes() } -> std::convertible_to<std::size_t>;
};
template <class Backend>
concept has_progress_policy = requires(Backend const& backend) {
  { backend.progress_policy() } -> std::convertible_to<char const*>;
};

/// A backend is a copyable handle on a rank of a world. Its operations are *enqueued* (the queue comes first, always)
/// and take effect in the queue's order; every rank must enqueue the same operations in the same order, and one at a
/// time. When an operation is done on a rank, that rank may reuse the operation's buffers. Until then the buffers
/// belong to it.
///  - `rank()`, `size()`;
///  - `all_reduce(queue, partial<T const>, replicated<T>)`: sums, the same bits on every rank; input and output must
///    not overlap;
///  - `reduce_scatter(queue, partial<Gradient const>, sharded<Sum>)`: the input is `size()` slices long; summed in at
///    least fp32;
///  - `all_gather(queue, sharded<T const>, replicated<T>)`: the input may be this rank's slice inside the output;
///  - `broadcast(queue, replicated<T>, root)` for trivially copyable T;
///  - what its `traits` declare. An operation gives up after `queue.deadline` seconds.
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

  constexpr backend_traits t = traits_of<Backend>;
  static_assert(
      !requires { Backend::traits; } || has_traits<Backend>,
      "acco: the backend's `traits` is no `static constexpr acco::backend_traits`");
  static_assert(!t.accumulates || has_accumulating_reduce_scatter<Backend, Queue, Gradient, Sum>,
                "acco: the backend's traits declare `accumulates`, and it lacks `reduce_scatter(queue, in, out, accumulate)`");
  static_assert(!t.passes || has_all_to_all<Backend, Queue>,
                "acco: the backend's traits declare `passes`, and it lacks `all_to_all(queue, span<std::byte const>, "
                "span<std::byte>)`");
  static_assert(!t.tells_departures || (has_abort<Backend> && has_close<Backend>),
                "acco: the backend's traits declare `tells_departures`, and it lacks `abort(std::string_view) const` or "
                "`close() const`");
  static_assert(!t.duplicates || has_duplicate<Backend>,
                "acco: the backend's traits declare `duplicates`, and it lacks `duplicate() const`");
  static_assert(!t.duplicates_together || t.duplicates,
                "acco: the backend's traits declare `duplicates_together`, and do not declare `duplicates`");
  static_assert(!t.splits || has_split<Backend>,
                "acco: the backend's traits declare `splits`, and it lacks `split(int color, int key, double deadline) const`");
  static_assert(!t.has_levels || has_inside_and_between<Backend>,
                "acco: the backend's traits declare `has_levels`, and it lacks `inside() const` or `between() const`");
  static_assert(!t.shares_device || has_share<Backend>,
                "acco: the backend's traits declare `shares_device`, and it lacks `share(bool same_everywhere) const`");
  static_assert(!t.driven || has_driver<Backend>, "acco: the backend's traits declare `driven`, and it lacks `driver() const`");
  static_assert(!t.watched || has_watch<Backend>, "acco: the backend's traits declare `watched`, and it lacks `watch() const`");
  static_assert(!t.counts_bytes || has_bytes_sent<Backend>,
                "acco: the backend's traits declare `counts_bytes`, and it lacks `bytes_sent() const`");
  static_assert(!t.allocates_messages || has_buffer_bytes<Backend>,
                "acco: the backend's traits declare `allocates_messages`, and it lacks `buffer_bytes() const`");
  static_assert(!t.names_progress || has_progress_policy<Backend>,
                "acco: the backend's traits declare `names_progress`, and it lacks `progress_policy() const`");

  static_assert(t.passes || !has_all_to_all<Backend, Queue>,
                "acco: the backend has `all_to_all`, and its traits do not declare `passes`: it would never be called");
  static_assert(t.tells_departures || !(has_abort<Backend> || has_close<Backend>),
                "acco: the backend has `abort` or `close`, and its traits do not declare `tells_departures`: they would never "
                "be called");
  static_assert(t.duplicates || !has_duplicate<Backend>,
                "acco: the backend has `duplicate`, and its traits do not declare `duplicates`: it would never be called");
  static_assert(t.splits || !has_split<Backend>,
                "acco: the backend has `split`, and its traits do not declare `splits`: decorators would not pass it on");
  static_assert(t.has_levels || !has_inside_and_between<Backend>,
                "acco: the backend has `inside` and `between`, and its traits do not declare `has_levels`: they would never be "
                "called");
  static_assert(t.shares_device || !has_share<Backend>,
                "acco: the backend has `share`, and its traits do not declare `shares_device`: it would never be called");
  static_assert(t.driven || !has_driver<Backend>,
                "acco: the backend has `driver`, and its traits do not declare `driven`: it would never be called");
  static_assert(t.watched || !has_watch<Backend>,
                "acco: the backend has `watch`, and its traits do not declare `watched`: it would never be called");
  static_assert(t.counts_bytes || !has_bytes_sent<Backend>,
                "acco: the backend has `bytes_sent`, and its traits do not declare `counts_bytes`: it would never be called");
  static_assert(t.allocates_messages || !has_buffer_bytes<Backend>,
                "acco: the backend has `buffer_bytes`, and its traits do not declare `allocates_messages`: it would never be "
                "called");
  static_assert(t.names_progress || !has_progress_policy<Backend>,
                "acco: the backend has `progress_policy`, and its traits do not declare `names_progress`: it would never be "
                "called");
  return true;
}

/// A queue of type `Queue` in which the backend's collectives make progress.
template <class Queue, class Backend>
[[nodiscard]] Queue make_queue(Backend const& backend) {
  if constexpr (traits_of<Backend>.driven) {
    return Queue(backend.driver());
  } else {
    return Queue();
  }
}

}  // namespace ACCO_SIMD_NAMESPACE
