// SPDX-License-Identifier: Apache-2.0
// Each member of a storage and of its queue is asked for by one requirement: hide it, and that one fails, no other.
#include <acco/code/block_integer.hpp>
#include <acco/rule/adamw.hpp>
#include <acco/storage/host.hpp>

namespace {

using host = acco::host_storage<float>;

template <class Queue>
constexpr int queue_lacks() {
  return !acco::queue_reserves<Queue> + !acco::queue_has_lanes<Queue> + !acco::queue_stamps<Queue> +
         !acco::queue_orders_computation<Queue> + !acco::queue_has_clock<Queue> + !acco::queue_tells_whether_over<Queue> +
         !acco::queue_waits<Queue> + !acco::queue_has_place<Queue>;
}
template <class S>
constexpr int lacks() {
  using coding = acco::block_int8<>;
  return queue_lacks<typename S::queue>() + !acco::has_buffers<S> + !acco::has_arrays<S> + !acco::has_numbers<S> +
         !acco::has_usual_share<S> + !acco::has_host_memory<S> + !acco::has_clear<S> + !acco::has_copy<S> +
         !acco::has_add_now<S> + !acco::has_visit_on_host<S> + !acco::has_run<S> + !acco::has_find_non_finite<S> +
         !acco::has_clear_if<S> + !acco::has_sum_of_squares<S> + !acco::has_squares_of_blocks<S> + !acco::has_average<S> +
         !acco::has_convert<S> + !acco::has_replace_edited<S> + !acco::has_add<S> + !acco::applies<S, acco::adamw> +
         !acco::has_encode<S, coding> + !acco::has_decode_sum<S, coding> + !acco::has_differences<S, coding> +
         !acco::has_combine<S>;
}
static_assert(lacks<host>() == 0 && acco::storage<host>);

struct hidden {};
#define WITHOUT(member, requirement)  \
  struct without_##member : host {    \
    static constexpr hidden member{}; \
  };                                  \
  static_assert(!requirement<without_##member> && lacks<without_##member>() == 1, #member)
#define WITHOUT_FOR(member, requirement, argument) \
  struct without_##member : host {                 \
    static constexpr hidden member{};              \
  };                                               \
  static_assert(!requirement<without_##member, argument> && lacks<without_##member>() == 1, #member)

WITHOUT(allocate, acco::has_buffers);
WITHOUT(allocation_size, acco::has_buffers);
WITHOUT(usual_share, acco::has_usual_share);
WITHOUT(host_memory, acco::has_host_memory);
WITHOUT(clear, acco::has_clear);
WITHOUT(copy, acco::has_copy);
WITHOUT(add_now, acco::has_add_now);
WITHOUT(visit_on_host, acco::has_visit_on_host);
WITHOUT(run, acco::has_run);
WITHOUT(find_non_finite, acco::has_find_non_finite);
WITHOUT(clear_if, acco::has_clear_if);
WITHOUT(sum_of_squares, acco::has_sum_of_squares);
WITHOUT(squares_of_blocks, acco::has_squares_of_blocks);
WITHOUT(average, acco::has_average);
WITHOUT(convert, acco::has_convert);
WITHOUT(replace_edited, acco::has_replace_edited);
WITHOUT(add, acco::has_add);
WITHOUT(combine, acco::has_combine);
WITHOUT_FOR(forget, acco::has_encode, acco::block_int8<>);
WITHOUT_FOR(encode_now, acco::has_encode, acco::block_int8<>);
WITHOUT_FOR(encode, acco::has_encode, acco::block_int8<>);
WITHOUT_FOR(decode_sum, acco::has_decode_sum, acco::block_int8<>);
WITHOUT_FOR(encode_difference, acco::has_differences, acco::block_int8<>);
WITHOUT_FOR(decode_onto, acco::has_differences, acco::block_int8<>);

#define QUEUE_WITHOUT(member, requirement)           \
  struct queue_without_##member : acco::host_queue { \
    static constexpr hidden member{};                \
  };                                                 \
  static_assert(!requirement<queue_without_##member> && queue_lacks<queue_without_##member>() == 1, #member)

QUEUE_WITHOUT(reserve, acco::queue_reserves);
QUEUE_WITHOUT(on, acco::queue_has_lanes);
QUEUE_WITHOUT(mark, acco::queue_has_lanes);
QUEUE_WITHOUT(after, acco::queue_has_lanes);
QUEUE_WITHOUT(stamp, acco::queue_stamps);
QUEUE_WITHOUT(after_computation, acco::queue_orders_computation);
QUEUE_WITHOUT(before_computation, acco::queue_orders_computation);
QUEUE_WITHOUT(clock, acco::queue_has_clock);
QUEUE_WITHOUT(pass, acco::queue_tells_whether_over);
QUEUE_WITHOUT(over, acco::queue_tells_whether_over);
QUEUE_WITHOUT(wait, acco::queue_waits);
QUEUE_WITHOUT(poll, acco::queue_waits);
QUEUE_WITHOUT(stop, acco::queue_waits);
QUEUE_WITHOUT(place, acco::queue_has_place);
QUEUE_WITHOUT(deadline, acco::queue_has_place);

struct without_apply : host {
  template <class Rule, acco::update kind>
  static void apply(hidden);
};
static_assert(!acco::applies<without_apply, acco::adamw> && lacks<without_apply>() == 1);
struct other_buffers : host {
  using buffer = int;  // what allocate gives is none of these
};
static_assert(!acco::has_buffers<other_buffers>);
struct other_numbers : host {
  template <class T>
  using numbers = std::vector<T>;
};
static_assert(!acco::has_numbers<other_numbers> && lacks<other_numbers>() == 1);
struct bare_arrays : host {
  struct buffer {};
  [[nodiscard]] buffer allocate(std::size_t, std::size_t) const { return {}; }
};
static_assert(!acco::has_arrays<bare_arrays> && lacks<bare_arrays>() == 1);

}  // namespace
