// SPDX-License-Identifier: Apache-2.0
// What a storage and its queue can do beside what every one of them can: declared, and compared with their members.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "acco/storage/staged_range.hpp"
#include "acco/storage/update_table.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A storage declares `static constexpr acco::storage_traits traits{.digests = true, ...}`; one without the member has
/// none of them. A trait without its members, and a member without its trait, do not compile.
struct storage_traits {
  /// `static take_sums(queue&, gradient_type const* from, sum_type* to, count, bool adds, double* result)`, and
  /// `take_blocks` for blocks: sums that a backend left in the gradient's type are converted, or added, and measured in
  /// one pass.
  bool takes_sums = false;
  /// `static digest(queue&, std::span<digest_range<T> const>, unsigned long long* sums, count)`, for parameters and for
  /// masters. Without it the ranks' parameters are not compared, and `options::digest_every` is refused.
  bool digests = false;
  /// `static stage(queue&, std::span<staged_range const>)` and `allocate_staging(bytes) const`: copies to host memory.
  /// Without them a training cannot be saved.
  bool stages = false;
  /// `make_queue(backend) const`: for a queue that needs more than a backend's driver.
  bool makes_queue = false;
};

/// A queue declares `static constexpr acco::queue_traits traits{...}` likewise.
struct queue_traits {
  /// Its tasks run on a device, and may still do so when an error has ended the wait for them: `keep(buffer&&)` takes a
  /// buffer that they may use, `run_out()` waits until they use nobody's memory.
  bool works_elsewhere = false;
};

template <class Storage>
concept has_storage_traits = requires {
  { Storage::traits } -> std::convertible_to<storage_traits>;
};
template <class Queue>
concept has_queue_traits = requires {
  { Queue::traits } -> std::convertible_to<queue_traits>;
};
template <class Storage>
consteval storage_traits find_storage_traits() {
  if constexpr (has_storage_traits<Storage>) {
    return Storage::traits;
  } else {
    return {};
  }
}
template <class Storage>
inline constexpr storage_traits storage_traits_of = find_storage_traits<Storage>();
template <class Queue>
consteval queue_traits find_queue_traits() {
  if constexpr (has_queue_traits<Queue>) {
    return Queue::traits;
  } else {
    return {};
  }
}
template <class Queue>
inline constexpr queue_traits queue_traits_of = find_queue_traits<Queue>();

template <class Storage>
concept has_take_sums =
    requires(typename Storage::queue& q, typename Storage::gradient_type const* from, typename Storage::sum_type* to,
             double* result) { Storage::take_sums(q, from, to, std::size_t{}, true, result); };
template <class Storage>
concept has_take_blocks = requires(typename Storage::queue& q, typename Storage::gradient_type const* from,
                                   typename Storage::sum_type* to, update_block const* blocks, double* results) {
  Storage::take_blocks(q, from, to, true, blocks, std::size_t{}, std::size_t{}, results);
};
template <class Storage, class T>
concept has_digest = requires(typename Storage::queue& q, std::span<digest_range<T> const> ranges, unsigned long long* sums) {
  Storage::digest(q, ranges, sums, std::size_t{});
};
template <class Storage>
concept has_stage = requires(typename Storage::queue& q, std::span<staged_range const> ranges) { Storage::stage(q, ranges); };
template <class Storage>
concept has_allocate_staging = requires(Storage const& storage) { storage.allocate_staging(std::size_t{}); };
template <class Storage, class Backend>
concept has_make_queue = requires(Storage const& storage, Backend& backend) {
  { storage.make_queue(backend) } -> std::same_as<typename Storage::queue>;
};
template <class Queue, class Buffer>
concept has_keep = requires(Queue& q, Buffer buffer) { q.keep(std::move(buffer)); };
template <class Queue>
concept has_run_out = requires(Queue& q) { q.run_out(); };

/// Whether what a storage and its queue declare are the members that they have, one sentence each.
template <class Storage, class Backend>
consteval bool check_storage_traits() {
  using queue = typename Storage::queue;
  constexpr storage_traits t = storage_traits_of<Storage>;
  constexpr queue_traits of_queue = queue_traits_of<queue>;
  constexpr bool declares = !requires { Storage::traits; } || has_storage_traits<Storage>;
  static_assert(declares, "acco: the storage's `traits` is no `static constexpr acco::storage_traits`");
  constexpr bool queue_declares = !requires { queue::traits; } || has_queue_traits<queue>;
  static_assert(queue_declares, "acco: the storage's queue's `traits` is no `static constexpr acco::queue_traits`");

  constexpr bool sums = has_take_sums<Storage>, blocks = has_take_blocks<Storage>;
  static_assert(
      !t.takes_sums || (sums && blocks),
      "acco: the storage's traits declare `takes_sums`, and it lacks `static take_sums(queue&, gradient_type const*, "
      "sum_type*, count, bool adds, double*)` or `static take_blocks(queue&, gradient_type const*, sum_type*, bool adds, "
      "update_block const*, first block, last block, double*)`");
  static_assert(
      t.takes_sums || !(sums || blocks),
      "acco: the storage has `take_sums` or `take_blocks`, and its traits do not declare `takes_sums`: they would never "
      "be called");
  constexpr bool parameters = has_digest<Storage, typename Storage::parameter_type>;
  constexpr bool masters = has_digest<Storage, typename Storage::master_type>;
  static_assert(!t.digests || (parameters && masters),
                "acco: the storage's traits declare `digests`, and it lacks `static digest(queue&, std::span<digest_range<T> "
                "const>, unsigned long long* sums, count)` for parameters or for masters");
  static_assert(t.digests || !(parameters || masters),
                "acco: the storage has `digest`, and its traits do not declare `digests`: it would never be called");
  constexpr bool stage = has_stage<Storage>, room = has_allocate_staging<Storage>;
  static_assert(
      !t.stages || (stage && room),
      "acco: the storage's traits declare `stages`, and it lacks `static stage(queue&, std::span<staged_range const>)` or "
      "`allocate_staging(bytes) const`");
  static_assert(
      t.stages || !(stage || room),
      "acco: the storage has `stage` or `allocate_staging`, and its traits do not declare `stages`: they would never be "
      "called");
  constexpr bool makes = has_make_queue<Storage, Backend>;
  static_assert(!t.makes_queue || makes,
                "acco: the storage's traits declare `makes_queue`, and it lacks `queue make_queue(backend) const`");
  static_assert(t.makes_queue || !makes,
                "acco: the storage has `make_queue`, and its traits do not declare `makes_queue`: it would never be called");
  constexpr bool keep = has_keep<queue, typename Storage::buffer>, run_out = has_run_out<queue>;
  static_assert(
      !of_queue.works_elsewhere || (keep && run_out),
      "acco: the traits of the storage's queue declare `works_elsewhere`, and it lacks `keep(buffer&&)` or `run_out()`");
  static_assert(of_queue.works_elsewhere || !(keep || run_out),
                "acco: the storage's queue has `keep` or `run_out`, and its traits do not declare `works_elsewhere`: they would "
                "never be called");
  return declares && queue_declares && t.takes_sums == (sums && blocks) && t.digests == (parameters && masters) &&
         t.stages == (stage && room) && t.makes_queue == makes && of_queue.works_elsewhere == (keep && run_out);
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
