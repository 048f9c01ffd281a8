// SPDX-License-Identifier: Apache-2.0
// A decorator that checks before every collective that all ranks are about to call the same one with the same size.
// Costs an all-reduce each: for finding mistakes, not for production.
#pragma once

#include <array>
#include <utility>

#include "acco/collective/around/decorator.hpp"
#include "acco/error.hpp"
#include "acco/storage/host_queue.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What a rank tells of a call: kind and size, in digits so small that sums of their squares are exact in double for up
/// to a thousand ranks; and the same squared.
struct call_numbers {
  static constexpr std::size_t digits = 5;
  std::array<double, 2 * digits> values{};

  call_numbers() = default;
  explicit call_numbers(collective_call const& call) noexcept {
    values[0] = static_cast<double>(call.operation);
    for (std::size_t k = 1; k < digits; ++k) values[k] = static_cast<double>((call.whole_bytes >> (16 * (k - 1))) & 0xffffU);
    for (std::size_t k = 0; k < digits; ++k) values[digits + k] = values[k] * values[k];
  }
};
/// Throws `mismatch_error` unless these are the sums of `ranks` calls that were all alike.
inline void require_alike(call_numbers const& sums, collective_call const& call, int ranks, error_place const& where) {
  for (std::size_t k = 0; k < call_numbers::digits; ++k) {
    const double sum = sums.values[k];
    if (static_cast<double>(ranks) * sums.values[call_numbers::digits + k] == sum * sum)
      continue;  // the mean of squares is the square of the mean: all are equal
    throw mismatch_error(where,
                         text("this rank is about to call ", name_of(call.operation), " of ", call.whole_bytes,
                              " bytes, and another rank something else"),
                         text("Every rank must make the same calls in the same order"));
  }
}

/// What a check needs in a queue's memory: another queue has its own, beside it.
template <class Queue>
struct call_check_memory;
template <>
struct call_check_memory<host_queue> {
  call_numbers mine, sums;
  explicit call_check_memory(host_queue&) {}
  template <class Backend>
  void check(host_queue& queue, Backend& backend, collective_call const& call) {
    queue.enqueue([this, call] { mine = call_numbers(call); });
    backend.all_reduce(queue, partial<double const>(mine.values), replicated<double>(sums.values));
    queue.enqueue([this, call, &queue, ranks = backend.size(), rank = backend.rank()] {
      error_place where = queue.place;
      where.rank = rank;
      require_alike(sums, call, ranks, where);
    });
  }
};

class call_check {
 public:
  static constexpr bool meets_on_host = true;
  /// A sum of its own, with a task before and one behind it.
  static constexpr std::size_t tasks(std::size_t of_backend) { return 2 * of_backend + 2; }

  template <class Queue, class Backend>
  void before(Queue& queue, Backend& backend, collective_call call) {
    using memory = call_check_memory<Queue>;
    static_assert(
        requires { sizeof(memory); },
        "acco: debug cannot check tasks of this queue: on a GPU include acco/cuda.hpp; of your own queue, specialise "
        "acco::call_check_memory");
    memory_.of<memory>(queue).check(queue, backend, call);
  }
  template <class Queue, class Backend>
  void after(Queue&, Backend const&, collective_call) const {}

 private:
  memory_by_queue memory_;
};

/// `acco::debug(world)`: the same backend with every call checked, in host and device memory. A wrong call is never
/// made: on a GPU a thread of the queue's own issues the tasks, and waits for each check.
template <class Backend>
[[nodiscard]] decorated_backend<Backend, call_check> debug(Backend backend) {
  return {std::move(backend), call_check()};
}

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
