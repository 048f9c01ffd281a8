// SPDX-License-Identifier: Apache-2.0
// The concept of a storage: which element types, where buffers live, which queue orders the work on them.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "acco/layout/distribution.hpp"
#include "acco/rule/update_rule.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class Storage>
concept has_element_types = requires {
  typename Storage::parameter_type;  // what the model computes with and what is gathered
  typename Storage::gradient_type;   // what micro-batches are accumulated in and what is reduced
  typename Storage::master_type;     // what the optimizer keeps: master parameters and slots
  typename Storage::sum_type;        // what gradients are summed to: at least fp32
};

template <class Storage>
concept has_queue = requires { typename Storage::queue; };

template <class Storage>
concept has_buffers = requires(Storage const& storage, std::size_t bytes) {
  { Storage::allocation_size(bytes, std::size_t{}) } -> std::convertible_to<std::size_t>;
  storage.allocate(bytes, std::size_t{});
};

template <class Storage>
concept has_sum_of_squares = requires(typename Storage::queue& queue, sharded<typename Storage::sum_type const> slice,
                                      double* result) { Storage::sum_of_squares(queue, slice, result); };

/// A storage names four element types, a `queue` and `numbers<T>`, allocates buffers (`allocation_size(bytes, stagger)` tells
/// what they cost), and has as static members, queue first:
///  - between the trainer's own computations: `clear`, `copy`; `visit_on_host`, which waits;
///  - enqueued: `run` (a step of a round), `sum_of_squares`, `find_non_finite`, `clear_if`, `convert`, `add`, and `apply`, the
///  update.
/// storage/host.hpp says what each does; cuda/storage.hpp has the same.
template <class Storage>
concept storage = has_element_types<Storage> && has_queue<Storage> && has_buffers<Storage> && has_sum_of_squares<Storage>;

/// The same, one sentence each.
template <class Storage>
consteval bool check_storage() {
  static_assert(has_element_types<Storage>,
                "acco: the storage lacks one of the types parameter_type, gradient_type, master_type, sum_type");
  static_assert(has_queue<Storage>, "acco: the storage lacks a type `queue`");
  static_assert(has_buffers<Storage>,
                "acco: the storage lacks `allocate(bytes, stagger) const` or `static allocation_size(bytes, stagger)`");
  if constexpr (has_element_types<Storage> && has_queue<Storage>) {
    static_assert(has_sum_of_squares<Storage>,
                  "acco: the storage lacks `static sum_of_squares(queue&, sharded<sum_type const>, double*)`");
  }
  return true;
}

}  // namespace ACCO_SIMD_NAMESPACE
