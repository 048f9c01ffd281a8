// SPDX-License-Identifier: Apache-2.0
// A decorator that checks before every collective that all ranks are about to call the same one with the same size. Costs an
// all-reduce each: for finding mistakes, not for production.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "acco/collective/around/decorator.hpp"
#include "acco/error.hpp"
#include "acco/storage/host_queue.hpp"

namespace ACCO_SIMD_NAMESPACE {

class call_check {
 public:
  call_check() : numbers_(std::make_unique<numbers>()) {}
  call_check(call_check const&) : call_check() {}
  call_check(call_check&&) noexcept = default;
  call_check& operator=(call_check const&) = delete;
  call_check& operator=(call_check&&) noexcept = default;
  ~call_check() = default;

  template <class Backend>
  void before(host_queue& queue, Backend& backend, collective_call call) const {
    numbers* const n = numbers_.get();
    queue.enqueue([n, call] {
      // kind and size in pieces so small that sums of their squares are exact in double for up to a thousand ranks
      n->mine[0] = static_cast<double>(call.operation);
      for (std::size_t k = 1; k < pieces; ++k) n->mine[k] = static_cast<double>((call.whole_bytes >> (16 * (k - 1))) & 0xffffU);
      for (std::size_t k = 0; k < pieces; ++k) n->mine[pieces + k] = n->mine[k] * n->mine[k];
    });
    backend.all_reduce(queue, partial<double const>(n->mine), replicated<double>(n->sums));
    queue.enqueue([n, call, &queue, ranks = static_cast<double>(backend.size()), rank = backend.rank()] {
      for (std::size_t k = 0; k < pieces; ++k) {
        if (ranks * n->sums[pieces + k] == n->sums[k] * n->sums[k])
          continue;  // the mean of squares is the square of the mean: all are equal
        error_place where = queue.place;
        where.rank = rank;
        throw mismatch_error(where,
                             text("this rank is about to call ", name_of(call.operation), " of ", call.whole_bytes,
                                  " bytes, and another rank something else"),
                             text("Every rank must make the same calls in the same order"));
      }
    });
  }
  template <class Backend>
  void after(host_queue&, Backend const&, collective_call) const {}

 private:
  static constexpr std::size_t pieces = 5;
  struct numbers {
    std::array<double, 2 * pieces> mine{}, sums{};
  };
  std::unique_ptr<numbers> numbers_;
};

/// `acco::debug(world)`: the same backend with every call checked.
template <class Backend>
[[nodiscard]] decorated_backend<Backend, call_check> debug(Backend backend) {
  return {std::move(backend), call_check()};
}

}  // namespace ACCO_SIMD_NAMESPACE
