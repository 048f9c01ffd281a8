// SPDX-License-Identifier: Apache-2.0
// The concept of a storage: which element types, where buffers live, which queue orders the work on them. One
// requirement per member, combined by name; the engine uses nothing else.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "acco/code/encoding.hpp"
#include "acco/error.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/layout/trainable_runs.hpp"
#include "acco/rule/update_rule.hpp"
#include "acco/storage/host_clock.hpp"
#include "acco/storage/lane.hpp"
#include "acco/storage/refused.hpp"
#include "acco/storage/update_table.hpp"

namespace ACCO_SIMD_NAMESPACE {

// The queue of a storage.

template <class Queue>
concept queue_reserves = requires(Queue& q, std::size_t tasks, bool lanes_overlap) { q.reserve(tasks, lanes_overlap); };
template <class Queue>
concept queue_has_lanes = requires(Queue& q, queue_mark mark) {
  q.on(lane::network);
  { q.mark() } -> std::same_as<queue_mark>;
  q.after(mark);
};
template <class Queue>
concept queue_stamps = requires(Queue& q, void (*tell)(double)) { q.stamp(tell); };
template <class Queue>
concept queue_orders_computation = requires(Queue& q) {
  q.after_computation();
  q.before_computation();
};
template <class Queue>
concept queue_has_clock = requires(Queue& q, std::size_t micro_batches) {
  q.clock().begin();
  q.clock().arrive(micro_batches);
  q.clock().start();
  { q.clock().land() } -> std::same_as<computation_times>;
  q.clock().resume();
  q.clock().interrupt();
  q.clock().go_on();
  { q.clock().micro_batch_seconds() } -> std::convertible_to<double>;
};
template <class Queue>
concept queue_tells_whether_over = requires(Queue& q) {
  q.pass();
  { q.over() } -> std::convertible_to<bool>;
};
template <class Queue>
concept queue_waits = requires(Queue& q) {
  q.wait();
  q.poll();
  q.stop();
};
template <class Queue>
concept queue_has_place = requires(Queue& q) {
  { q.place } -> std::same_as<error_place&>;
  { q.deadline } -> std::same_as<double&>;
};

// The storage itself.

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
concept has_buffers = requires(Storage const& storage, std::size_t bytes, std::size_t stagger) {
  { Storage::allocation_size(bytes, stagger) } -> std::convertible_to<std::size_t>;
  { storage.allocate(bytes, stagger) } -> std::same_as<typename Storage::buffer>;
};
template <class Storage>
concept has_arrays = std::movable<typename Storage::buffer> && std::default_initializable<typename Storage::buffer> &&
                     requires(typename Storage::buffer const& buffer) {
                       { buffer.template as<float>() } -> std::same_as<float*>;
                     };
template <class Storage>
concept has_numbers = requires { typename Storage::template numbers<double>; } &&
                      std::default_initializable<typename Storage::template numbers<double>> &&
                      std::constructible_from<typename Storage::template numbers<double>, Storage const&, std::size_t> &&
                      std::movable<typename Storage::template numbers<double>> &&
                      requires(typename Storage::queue& q, typename Storage::template numbers<double>& n,
                               typename Storage::template numbers<double> const& shown) {
                        { n[0] } -> std::same_as<double&>;
                        { shown[0] } -> std::same_as<double const&>;
                        { n.there() } -> std::same_as<double*>;
                        { n.there(std::size_t{0}) } -> std::same_as<double*>;
                        shown.there();
                        n.upload(q);
                        n.download(q);
                      };
template <class Storage>
concept has_usual_share = requires {
  { Storage::usual_share } -> std::convertible_to<std::size_t>;
};
template <class Storage>
concept has_host_memory = requires {
  { Storage::host_memory } -> std::convertible_to<bool>;
};
template <class Storage>
concept has_clear = requires(typename Storage::queue& q, float* to) { Storage::clear(q, to, std::size_t{}); };
template <class Storage>
concept has_copy =
    requires(typename Storage::queue& q, float const* from, float* to) { Storage::copy(q, from, to, std::size_t{}); };
template <class Storage>
concept has_visit_on_host =
    requires(typename Storage::queue& q, float const* from, void (*visit)(float const*, std::size_t, std::size_t)) {
      Storage::visit_on_host(q, from, std::size_t{}, visit);
    };
template <class Storage>
concept has_run = requires(typename Storage::queue& q, void (*step)(), bool (*step_that_decides)()) {
  Storage::run(q, step);
  Storage::run(q, step_that_decides);
};
template <class Storage>
concept has_find_non_finite =
    requires(typename Storage::queue& q, bool const* wanted, typename Storage::gradient_type const* from,
             unsigned long long* number) { Storage::find_non_finite(q, wanted, from, std::size_t{}, number, number); };
template <class Storage>
concept has_clear_if = requires(typename Storage::queue& q, bool const* wanted, typename Storage::sum_type* to) {
  Storage::clear_if(q, wanted, to, std::size_t{});
};
template <class Storage>
concept has_sum_of_squares = requires(typename Storage::queue& q, sharded<typename Storage::sum_type const> slice,
                                      double* result) { Storage::sum_of_squares(q, slice, result); };
template <class Storage>
concept has_squares_of_blocks =
    requires(typename Storage::queue& q, typename Storage::sum_type const* slice, update_block const* blocks, double* results) {
      Storage::squares_of_blocks(q, slice, blocks, std::size_t{}, std::size_t{}, results);
    };
template <class Storage>
concept has_average =
    requires(typename Storage::queue& q, bool const* wanted, typename Storage::master_type const* from,
             typename Storage::master_type* to) { Storage::average(q, wanted, from, to, std::size_t{}, double{}); };
template <class Storage>
concept has_convert =
    requires(typename Storage::queue& q, typename Storage::parameter_type const* given, typename Storage::master_type* masters,
             typename Storage::master_type const* kept, typename Storage::parameter_type* out) {
      Storage::convert(q, given, masters, std::size_t{});
      Storage::convert(q, kept, out, std::size_t{});
    };
template <class Storage>
concept has_replace_edited =
    requires(typename Storage::queue& q, typename Storage::parameter_type const* given, typename Storage::master_type* masters) {
      Storage::replace_edited(q, given, masters, std::size_t{});
    };
template <class Storage>
concept has_add_now = requires(typename Storage::queue& q, typename Storage::gradient_type const* from,
                               typename Storage::gradient_type* to) { Storage::add_now(q, from, to, std::size_t{}); };
template <class Storage>
concept has_add =
    requires(typename Storage::queue& q, typename Storage::gradient_type const* from, typename Storage::sum_type* to,
             typename Storage::master_type const* ahead, typename Storage::master_type* masters) {
      Storage::add(q, from, to, std::size_t{});
      Storage::add(q, ahead, masters, std::size_t{});
    };
template <class Storage, class Rule>
concept applies = requires(typename Storage::queue& q,
                           update_table<Rule, typename Storage::master_type, typename Storage::sum_type> const* table,
                           typename Storage::parameter_type* out) {
  Storage::template apply<Rule, update::commit>(q, table, std::size_t{}, std::size_t{}, out);
};
/// For a rule that updates matrices.
template <class Storage, class Rule>
concept applies_to_matrices = requires(typename Storage::queue& q,
                                       update_table<Rule, typename Storage::master_type, typename Storage::sum_type> const* table,
                                       typename Storage::parameter_type* out) {
  Storage::template apply_to_matrices<Rule, update::commit>(q, table, std::size_t{}, std::size_t{}, out);
};
/// For what travels in few bits.
template <class Storage, class Encoding>
concept has_encode = requires(typename Storage::queue& q, Encoding const& e, typename Storage::gradient_type const* from,
                              std::byte* to, coding::refused bad) {
  Storage::forget(q, bad);
  Storage::encode_now(q, e, from, std::size_t{}, std::size_t{}, std::size_t{}, to, bad);
  Storage::encode(q, e, from, std::size_t{}, std::size_t{}, std::size_t{}, to, bad, std::uint64_t{});
};
template <class Storage, class Encoding>
concept has_decode_sum =
    requires(typename Storage::queue& q, Encoding const& e, std::byte const* from, typename Storage::sum_type* out) {
      Storage::decode_sum(q, e, from, 1, out, std::size_t{}, true);
    };
template <class Storage, class Encoding>
concept has_differences = requires(typename Storage::queue& q, Encoding const& e, typename Storage::parameter_type const* values,
                                   trainable_view<typename Storage::parameter_type> reference, std::byte* to,
                                   std::byte const* from, typename Storage::parameter_type* out, coding::refused bad) {
  Storage::encode_difference(q, e, values, reference, std::size_t{}, std::size_t{}, to, bad);
  Storage::decode_onto(q, e, from, reference, std::size_t{}, std::size_t{}, std::size_t{}, out);
};

/// For estimates that remember other ranks' gradients.
template <class Storage>
concept has_combine =
    requires(typename Storage::queue& q, combination const* how, typename Storage::gradient_type const* gradients,
             typename Storage::master_type* masters, typename Storage::master_type const* kept, typename Storage::sum_type* sums,
             typename Storage::sum_type const* summed) {
      Storage::combine(q, how, gradients, kept, sums, std::size_t{});
      Storage::combine(q, how, summed, gradients, masters, std::size_t{});
    };

/// What any queue of a storage has.
template <class Queue>
concept storage_queue =
    queue_reserves<Queue> && queue_has_lanes<Queue> && queue_stamps<Queue> && queue_orders_computation<Queue> &&
    queue_waits<Queue> && queue_has_place<Queue> && queue_has_clock<Queue> && queue_tells_whether_over<Queue>;

/// A storage names four element types, a `queue`, a `buffer` and `numbers<T>` (a few numbers that the host and the
/// tasks both use), allocates buffers (`allocation_size(bytes, stagger)` tells what they cost), and has as static
/// members, queue first:
///  - between the trainer's own computations: `clear`, `copy`, `add_now`; `visit_on_host`, which waits;
///  - enqueued: `run` (a step of a round), `sum_of_squares`, `squares_of_blocks`, `find_non_finite`, `clear_if`,
///    `convert`, `replace_edited`, `add`, `apply`, the update, and `average`.
/// One whose gradients or parameters may travel encoded has `forget`, `encode_now`, `encode`, `decode_sum`,
/// `encode_difference` and `decode_onto`; one for estimates that are `own_corrected`, `combine`. What else it can do it
/// declares in its `traits` (storage/storage_traits.hpp). storage/host.hpp says what each does; cuda/storage.hpp has
/// the same.
template <class Storage>
concept storage =
    has_element_types<Storage> && has_queue<Storage> && storage_queue<typename Storage::queue> && has_buffers<Storage> &&
    has_arrays<Storage> && has_numbers<Storage> && has_usual_share<Storage> && has_host_memory<Storage> && has_clear<Storage> &&
    has_copy<Storage> && has_add_now<Storage> && has_visit_on_host<Storage> && has_run<Storage> && has_find_non_finite<Storage> &&
    has_clear_if<Storage> && has_sum_of_squares<Storage> && has_squares_of_blocks<Storage> && has_average<Storage> &&
    has_convert<Storage> && has_replace_edited<Storage> && has_add<Storage>;

/// The same of a queue, one sentence each.
template <class Queue>
consteval bool check_queue() {
  static_assert(queue_reserves<Queue>, "acco: the storage's queue lacks `reserve(std::size_t tasks, bool lanes_overlap)`");
  static_assert(queue_has_lanes<Queue>, "acco: the storage's queue lacks `on(lane)`, `queue_mark mark()` or `after(queue_mark)`");
  static_assert(queue_stamps<Queue>, "acco: the storage's queue lacks `stamp(tell)`, which calls tell(seconds)");
  static_assert(queue_orders_computation<Queue>,
                "acco: the storage's queue lacks `after_computation()` or `before_computation()`");
  static_assert(queue_has_clock<Queue>,
                "acco: the storage's queue lacks a `clock()` with `begin()`, `arrive(micro_batches)`, `start()`, "
                "`computation_times land()`, `resume()`, `interrupt()`, `go_on()` and `double micro_batch_seconds()`");
  static_assert(queue_tells_whether_over<Queue>, "acco: the storage's queue lacks `pass()` or `bool over()`");
  static_assert(queue_waits<Queue>, "acco: the storage's queue lacks `wait()`, `poll()` or `stop()`");
  static_assert(queue_has_place<Queue>,
                "acco: the storage's queue lacks its data members `error_place place` and `double deadline`");
  return storage_queue<Queue>;
}

/// What travels encoded, if anything does.
template <class Storage, class Gradients, class Parameters>
consteval bool check_codes() {
  constexpr bool encodes = !encoding<Gradients> || has_encode<Storage, Gradients>;
  static_assert(encodes, "acco: gradients are to travel encoded: the storage lacks `forget`, `encode_now` or `encode`");
  constexpr bool decodes = !encoding<Gradients> || has_decode_sum<Storage, Gradients>;
  static_assert(decodes, "acco: gradients are to travel encoded: the storage lacks `decode_sum`");
  constexpr bool multiplies = !low_rank<Gradients> || Storage::host_memory;
  static_assert(multiplies,
                "acco: gradients are to travel as products of thin matrices (power_sgd): storages in host memory do that, "
                "storages on a GPU do not");
  constexpr bool plans = !planned_wire<Gradients> || Storage::host_memory;
  static_assert(plans,
                "acco: gradients are to travel as a plan says (planned): storages in host memory measure what codes lose, "
                "storages on a GPU do not");
  constexpr bool differs = !encoding<Parameters> || has_differences<Storage, Parameters>;
  static_assert(differs, "acco: parameters are to travel encoded: the storage lacks `encode_difference` or `decode_onto`");
  return encodes && decodes && multiplies && plans && differs;
}

/// The same of a storage, one sentence each.
template <class Storage, class Rule, class Gradients = void, class Parameters = void>
consteval bool check_storage() {
  static_assert(has_element_types<Storage>,
                "acco: the storage lacks one of the types parameter_type, gradient_type, master_type, sum_type");
  static_assert(has_queue<Storage>, "acco: the storage lacks a type `queue`");
  if constexpr (!has_element_types<Storage> || !has_queue<Storage>) {
    return false;
  } else {
    constexpr bool queue_is_one = check_queue<typename Storage::queue>();
    static_assert(has_buffers<Storage>,
                  "acco: the storage lacks a type `buffer`, `buffer allocate(bytes, stagger) const` or `static "
                  "allocation_size(bytes, stagger)`");
    if constexpr (has_buffers<Storage>)
      static_assert(has_arrays<Storage>,
                    "acco: the storage's `buffer` is not movable, or lacks `template <class T> T* as() const`");
    static_assert(
        has_numbers<Storage>,
        "acco: the storage lacks `template <class T> numbers`, which is made by `(storage, count)` and by nothing, and has "
        "`operator[]` and `there(index = 0)`, both also const, `upload(queue)` and `download(queue)`");
    static_assert(has_usual_share<Storage>, "acco: the storage lacks `static constexpr std::size_t usual_share`");
    static_assert(
        has_host_memory<Storage>,
        "acco: the storage lacks `static constexpr bool host_memory`: whether the trainer's thread may read its buffers");
    static_assert(has_clear<Storage>, "acco: the storage lacks `static clear(queue&, T*, count)`");
    static_assert(has_copy<Storage>, "acco: the storage lacks `static copy(queue&, T const* from, T* to, count)`");
    static_assert(has_add_now<Storage>,
                  "acco: the storage lacks `static add_now(queue&, gradient_type const* from, gradient_type* to, count)`");
    static_assert(has_visit_on_host<Storage>, "acco: the storage lacks `static visit_on_host(queue&, T const*, count, visitor)`");
    static_assert(has_run<Storage>, "acco: the storage lacks `static run(queue&, step)` for steps that return void or bool");
    static_assert(has_find_non_finite<Storage>,
                  "acco: the storage lacks `static find_non_finite(queue&, bool const* wanted, gradient_type const*, count, "
                  "unsigned long long* found, unsigned long long* first)`");
    static_assert(has_clear_if<Storage>, "acco: the storage lacks `static clear_if(queue&, bool const* wanted, T*, count)`");
    static_assert(has_sum_of_squares<Storage>,
                  "acco: the storage lacks `static sum_of_squares(queue&, sharded<sum_type const>, double*)`");
    static_assert(has_squares_of_blocks<Storage>,
                  "acco: the storage lacks `static squares_of_blocks(queue&, sum_type const*, update_block const*, first block, "
                  "last block, double* results)`");
    static_assert(has_average<Storage>,
                  "acco: the storage lacks `static average(queue&, bool const* wanted, master_type const*, master_type*, count, "
                  "double keep)`");
    static_assert(has_convert<Storage>, "acco: the storage lacks `static convert(queue&, From const*, To*, count)`");
    static_assert(has_replace_edited<Storage>,
                  "acco: the storage lacks `static replace_edited(queue&, parameter_type const*, master_type*, count)`");
    static_assert(has_add<Storage>, "acco: the storage lacks `static add(queue&, From const*, To*, count)`");
    static_assert(
        applies<Storage, Rule>,
        "acco: the storage lacks `template <class Rule, update kind> static apply(queue&, update_table<Rule, master_type, "
        "sum_type> const*, first block, last block, parameter_type* out)`");
    constexpr bool takes_matrices = !matrix_rule<Rule> || applies_to_matrices<Storage, Rule>;
    static_assert(
        takes_matrices,
        "acco: the rule updates whole matrices, and the storage lacks `apply_to_matrices`: host_storage has it, storages "
        "on a GPU have not");
    constexpr bool codes = check_codes<Storage, Gradients, Parameters>();
    constexpr bool combines = !(remembers_others<Rule> || remembers_reference<Rule>) || has_combine<Storage>;
    static_assert(combines,
                  "acco: the schedule has own_corrected or a reference point: the storage lacks `static combine(queue&, "
                  "combination const*, A const*, B const*, To*, count)`");
    return queue_is_one && storage<Storage> && applies<Storage, Rule> && takes_matrices && codes && combines;
  }
}

}  // namespace ACCO_SIMD_NAMESPACE
