// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer state in the memory of an NVIDIA GPU (component `cuda`). Any compiler can include
// this; what launches kernels is instantiated by nvcc (or clang) with -std=c++20 --expt-relaxed-constexpr, which
// acco::cuda carries.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "acco/bfloat16.hpp"
#include "acco/collective/backend.hpp"
#include "acco/cuda/blocking.hpp"
#include "acco/cuda/memory.hpp"
#include "acco/cuda/numbers.hpp"
#include "acco/cuda/queue.hpp"
#include "acco/cuda/runtime.hpp"
#include "acco/half.hpp"
#include "acco/layout/distribution.hpp"
#include "acco/storage/coding.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/scoped_buffer.hpp"
#include "acco/storage/staged_range.hpp"
#include "acco/storage/storage.hpp"
#include "acco/storage/storage_traits.hpp"
#include "acco/storage/update_table.hpp"
#if defined(__CUDACC__)
#include "acco/cuda/choices.cuh"
#include "acco/cuda/coding.cuh"
#include "acco/cuda/feedback.cuh"
#include "acco/cuda/kernels.cuh"
#include "acco/cuda/majority_vote.cuh"
#include "acco/cuda/rotated.cuh"
#endif

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class T>
concept cuda_element =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bfloat16> || std::is_same_v<T, half>;

/// Device memory with a communication stream. `parameters()` and `gradients()` are device pointers; the trainer
/// computes on `computation` and never has to synchronise with acco: the order between the two streams is kept by
/// events. Types as in `host_storage`; bfloat16 and half have the bits of __nv_bfloat16 and __half.
template <class Parameter, class Gradient = Parameter,
          class Master = std::conditional_t<std::is_same_v<Parameter, double>, double, float>>
struct cuda_storage {
  static_assert(cuda_element<Parameter>, "acco: cuda_storage's Parameter must be float, double, acco::bfloat16 or acco::half");
  static_assert(cuda_element<Gradient>, "acco: cuda_storage's Gradient must be float, double, acco::bfloat16 or acco::half");
  static_assert(scalar_real<Master>, "acco: cuda_storage's Master must be float or double: a 16-bit master loses small updates");

  using parameter_type = Parameter;
  using gradient_type = Gradient;
  using master_type = Master;
  using sum_type = elementwise::wider<Gradient, Master>;
  using queue = cuda_queue;
  using buffer = cuda_buffer;
  template <class T>
  using numbers = cuda_numbers<T>;

  static constexpr bool host_memory = false;
  /// Elements of a rank's share of a bucket, if options::bucket_elements does not say otherwise.
  static constexpr std::size_t usual_share = std::size_t{1} << 24U;
  static constexpr storage_traits traits{.takes_sums = true, .digests = true, .stages = true, .makes_queue = true};

  /// The trainer's stream: gradients are ready, and parameters in use, in its order. Must outlive the optimizer.
  cudaStream_t computation = nullptr;
  /// Where device memory comes from; must outlive the optimizer.
  cuda_memory_resource* memory = default_cuda_memory();
  /// Priority of the communication stream, as in cudaStreamCreateWithPriority: its kernels are few and others wait for
  /// them.
  int priority = highest_priority;
  /// Most thread blocks, so most multiprocessors, that a kernel of acco's own takes from the computation, as
  /// nccl_options::max_ctas does for NCCL's; 0: as many as there is work for.
  int max_ctas = 0;
  /// Told once of settings that defeat overlap; null: never.
  void (*warn)(char const* sentence) = [](char const* sentence) { std::fprintf(stderr, "%s\n", sentence); };

  template <class Backend>
  [[nodiscard]] cuda_queue make_queue(Backend& backend) const {
    warn_of_cuda_settings(warn);
    cuda_watch watch;
    cuda_issue issue = cuda_issue::at_once;
    if constexpr (traits_of<Backend>.watched) watch = backend.watch();
    if constexpr (traits_of<Backend>.meets_on_host || traits_of<Backend>.issues_slowly) issue = cuda_issue::thread;
    if (max_ctas < 0) {
      throw usage_error({.rank = backend.rank()}, text("cuda_storage::max_ctas is ", max_ctas),
                        text("Give the largest number of thread blocks, or 0 for no limit"));
    }
    return with_place([&] { return error_place{.rank = backend.rank()}; },
                      [&] {
#if defined(__CUDACC__)
                        cuda_kernels::kernel_list::load();
#endif
                        return cuda_queue(computation, watch, priority, issue, static_cast<unsigned>(max_ctas));
                      });
  }

  [[nodiscard]] static constexpr std::size_t allocation_size(std::size_t bytes, std::size_t) noexcept {
    return (bytes + cuda_buffer::alignment - 1) / cuda_buffer::alignment * cuda_buffer::alignment;
  }
  [[nodiscard]] cuda_buffer allocate(std::size_t bytes, std::size_t stagger) const {
    return {memory, computation, allocation_size(bytes, stagger)};
  }

  /// Room for a copy of state: pinned, so that copying to it goes on by itself.
  [[nodiscard]] pinned_buffer allocate_staging(std::size_t bytes) const { return pinned_buffer(std::max(bytes, std::size_t{1})); }
  /// As in host_storage.
  static void stage(cuda_queue& queue, std::span<staged_range const> ranges) {
    queue.issue([ranges](cudaStream_t stream) {
      for (staged_range const& each : ranges) {
        if (each.bytes == 0) continue;
        check_cuda(cudaMemcpyAsync(each.to, each.from, each.bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
      }
    });
  }

  /// On the trainer's stream: to[i] = 0.
  template <class T>
  static void clear(cuda_queue& queue, T* to, std::size_t count) {
    if (count != 0) check_cuda(cudaMemsetAsync(to, 0, count * sizeof(T), queue.computation()), "cudaMemsetAsync", queue.place);
  }
  /// On the trainer's stream: to[i] = from[i], on either side of the bus.
  template <class T>
  static void copy(cuda_queue& queue, T const* from, T* to, std::size_t count) {
    if (count == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, queue.computation()), "cudaMemcpyAsync",
               queue.place);
  }
  /// Waits for the queue, and calls visit(elements, index of the first, how many) on copies in host memory.
  template <class T, class Visitor>
  static void visit_on_host(cuda_queue& queue, T const* from, std::size_t count, Visitor&& visit) {
    queue.wait();
    constexpr std::size_t block = std::size_t{1} << 20U;
    std::vector<T> copy(std::min(block, count));
    const cuda_drained copied(queue.computation());
    for (std::size_t i = 0; i < count; i += block) {
      const std::size_t n = std::min(block, count - i);
      check_cuda(cudaMemcpyAsync(copy.data(), from + i, n * sizeof(T), cudaMemcpyDeviceToHost, queue.computation()),
                 "cudaMemcpyAsync");
      check_cuda(cudaStreamSynchronize(queue.computation()), "cudaStreamSynchronize");
      visit(copy.data(), i, n);
    }
  }

#if defined(__CUDACC__)
  /// Enqueues a step of a round, for one thread. (One that wants to end the round cannot: what it decides is
  /// looked at later.)
  template <class Step>
  static void run(cuda_queue& queue, Step step) {
    queue.issue([step](cudaStream_t stream) { cuda_kernels::launch_one({stream}, step); });
  }
  /// This one for many threads: blocks are as many as the slice is long.
  static void run(cuda_queue& queue, add_region_squares step) {
    issue(queue, [step](cuda_kernels::on where) {
      cuda_kernels::launch_add_squares(where, step.squares, step.regions, step.of_blocks, step.blocks, step.count);
    });
  }
  /// Enqueues to[i] = 0 where *wanted.
  template <class Place>
  static void clear_if(cuda_queue& queue, bool const* wanted, Place to, std::size_t count) {
    issue(queue, [=](cuda_kernels::on where) { cuda_kernels::launch_clear(where, wanted, to, count); });
  }
  /// Enqueues, where *wanted: how many elements are infinite or not a number, and the index of the first of them.
  template <class T>
  static void find_non_finite(cuda_queue& queue, bool const* wanted, T const* from, std::size_t count, unsigned long long* found,
                              unsigned long long* first) {
    issue(queue, [=](cuda_kernels::on where) { cuda_kernels::launch_find(where, wanted, from, count, found, first); });
  }
  /// As in host_storage.
  template <class T>
  static void digest(cuda_queue& queue, std::span<digest_range<T> const> ranges, unsigned long long* sums, std::size_t count) {
    issue(queue, [=](cuda_kernels::on where) {
      check_cuda(cudaMemsetAsync(sums, 0, count * sizeof *sums, where.stream), "cudaMemsetAsync");
      for (digest_range<T> const& each : ranges)
        cuda_kernels::launch_digest(where, each.values, each.count, each.key, sums + each.sum);
    });
  }
  /// Enqueues *result = the sum of the squares of the slice: the same bits on every GPU.
  static void sum_of_squares(cuda_queue& queue, sharded<sum_type const> slice, double* result) {
    sum_type const* const from = slice.slice().data();
    all_squares(queue, slice.slice().size(), cuda_kernels::square_step<sum_type>{from}, result, from, from);
  }
  /// As in host_storage.
  static void squares_of_blocks(cuda_queue& queue, sum_type const* slice, update_block const* blocks, std::size_t first,
                                std::size_t last, double* results) {
    squares(queue, blocks + first, last - first, 0, cuda_kernels::square_step<sum_type>{slice}, results + first, slice, slice);
  }
  /// Sums that a backend left in the gradient's type: enqueues to[i] = from[i], or += from[i] where `adds`, and *result
  /// = the sum of the squares of what is there then, in one pass.
  static void take_sums(cuda_queue& queue, Gradient const* from, sum_type* to, std::size_t count, bool adds, double* result) {
    adds ? all_squares(queue, count, cuda_kernels::take_step<Gradient, sum_type, true>{from, to}, result, from, to)
         : all_squares(queue, count, cuda_kernels::take_step<Gradient, sum_type, false>{from, to}, result, from, to);
  }
  /// The same for the blocks from `first` to before `last`, of which each has its own result; arrays are indexed like
  /// the slice.
  static void take_blocks(cuda_queue& queue, Gradient const* from, sum_type* to, bool adds, update_block const* blocks,
                          std::size_t first, std::size_t last, double* results) {
    blocks += first;
    results += first;
    const std::size_t many = last - first;
    adds ? squares(queue, blocks, many, 0, cuda_kernels::take_step<Gradient, sum_type, true>{from, to}, results, from, to)
         : squares(queue, blocks, many, 0, cuda_kernels::take_step<Gradient, sum_type, false>{from, to}, results, from, to);
  }
  static void average(cuda_queue& queue, bool const* wanted, Master const* from, Master* to, std::size_t count, double keep) {
    elements(queue, count, cuda_kernels::average_body<Master>{wanted, from, to, keep}, from, to);
  }
  /// As in host_storage.
  template <class A, class B, class To>
  static void combine(cuda_queue& queue, combination const* how, A const* a, B const* b, To* to, std::size_t count) {
    issue(queue, [=](cuda_kernels::on where) {
      cuda_kernels::launch_elements(where, count, cuda_kernels::combine_body<A, B, To>{how, a, b, to},
                                    cuda_kernels::head_of({a, b, to}));
    });
  }
  /// Enqueues the update of the blocks from `first` to before `last`, in one launch. `out`, indexed like the slice,
  /// gets what the ranks will get. What the table's pointers show is read by the kernel.
  template <class Rule, update kind>
  static void apply(cuda_queue& queue, update_table<Rule, Master, sum_type> const* table, std::size_t first, std::size_t last,
                    Parameter* out) {
    issue(queue, [=](cuda_kernels::on where) {
      static_assert(Rule::slot_count <= 4, "acco: cuda_storage takes rules of at most four slots");
      using cuda_kernels::head_of;
      const cuda_kernels::update_body<Rule, kind, Master, sum_type, Parameter> body{*table, out};
      const unsigned head = [&]<std::size_t... slot>(std::index_sequence<slot...>) {
        return head_of({table->master, table->gradient, out, table->slots[slot]...});
      }(std::make_index_sequence<Rule::slot_count>());
      cuda_kernels::launch_table(where, table->blocks + first, last - first, head, body);
    });
  }
  /// On the trainer's stream: to[i] += from[i].
  template <class T>
  static void add_now(cuda_queue& queue, T const* from, T* to, std::size_t count) {
    cuda_kernels::launch_elements({queue.computation(), queue.max_ctas}, count, cuda_kernels::convert_body<T, T, true>{from, to},
                                  cuda_kernels::head_of({from, to}));
  }
  /// As in host_storage; at once means on the trainer's stream.
  static void forget(cuda_queue& queue, coding::refused bad) {
    check_cuda(cudaMemsetAsync(bad.found, 0, sizeof *bad.found, queue.computation()), "cudaMemsetAsync", queue.place);
    check_cuda(cudaMemsetAsync(bad.first, 0xff, sizeof *bad.first, queue.computation()), "cudaMemsetAsync", queue.place);
  }
  template <encoding Encoding, class T>
  static void encode_now(cuda_queue& queue, Encoding const& e, T const* from, std::size_t index, std::size_t slices,
                         std::size_t count, std::byte* to, coding::refused bad) {
    encode_slices({queue.computation(), queue.max_ctas}, e, from, index, slices, count, to, bad, 0);
  }
  template <encoding Encoding, class T>
  static void encode(cuda_queue& queue, Encoding const& e, T const* from, std::size_t index, std::size_t slices,
                     std::size_t count, std::byte* to, coding::refused bad, std::uint64_t seed) {
    issue(queue, [=](cuda_kernels::on where) { encode_slices(where, e, from, index, slices, count, to, bad, seed); });
  }
  template <feeds_back Encoding, class T, class Place>
  static void encode_with_feedback(cuda_queue& queue, Encoding const& e, T const* from, Place state, std::size_t index,
                                   std::size_t slices, std::size_t count, std::byte* to, coding::refused bad, double rate) {
    issue(queue, [=](cuda_kernels::on where) {
      cuda_kernels::launch_encode_with_feedback(where, e, from, state, index, slices, count, to, bad, rate);
    });
  }
  template <feeds_back Encoding, class T, class Place>
  static void keep_feedback(cuda_queue& queue, bool const* wanted, Encoding const& e, T const* from, Place state,
                            std::size_t slices, std::size_t count, std::byte const* sent, double rate) {
    issue(queue, [=](cuda_kernels::on where) {
      cuda_kernels::launch_keep_feedback(where, wanted, e, from, state, slices, count, sent, rate);
    });
  }
  /// The reference's runs lie where kernels find them.
  template <encoding Encoding>
  static void encode_difference(cuda_queue& queue, Encoding const& e, Parameter const* values,
                                trainable_view<Parameter> reference, std::size_t index, std::size_t count, std::byte* to,
                                coding::refused bad) {
    issue(queue, [=](cuda_kernels::on where) {
      using source = cuda_kernels::difference_to_encode<Encoding, Parameter>;
      const cuda_kernels::blocks_at<Encoding> places(e, count);
      cuda_kernels::launch_blocks(
          where, places.blocks,
          cuda_kernels::encode_body<Encoding, source>{{{values, values + count}, {reference}, index}, index, places, to, bad});
    });
  }
  template <encoding Encoding>
  static void decode_sum(cuda_queue& queue, Encoding const& e, std::byte const* from, int sources, sum_type* out,
                         std::size_t count, bool add, int const* bringing = nullptr) {
    issue(queue, [=](cuda_kernels::on where) {
      const auto go = [&](auto adds) {
        using body = cuda_kernels::decode_sum_body<Encoding, adds(), sum_type>;
        cuda_kernels::launch_blocks(where, blocks_in(e, count),
                                    body{from, code_size(e, count), sources, out, {e, count}, bringing});
      };
      add ? go(std::true_type()) : go(std::false_type());
    });
  }
  template <encoding Encoding>
  static void decode_onto(cuda_queue& queue, Encoding const& e, std::byte const* from, trainable_view<Parameter> reference,
                          std::size_t index, std::size_t slice, std::size_t total, Parameter* out) {
    issue(queue, [=](cuda_kernels::on where) {
      if (total == 0) return;
      const std::size_t blocks = blocks_in(e, slice);
      cuda_kernels::launch_blocks(
          where, (total + slice - 1) / slice * blocks,
          cuda_kernels::decode_onto_body<Encoding, Parameter>{from, {reference}, index, slice, blocks, total, out});
    });
  }

  /// Enqueues to[i] += from[i].
  template <class From, class To>
  static void add(cuda_queue& queue, From const* from, To* to, std::size_t count) {
    elements(queue, count, cuda_kernels::convert_body<From, To, true>{from, to}, from, to);
  }
  /// As in host_storage.
  template <class From, class To>
  static void replace_edited(cuda_queue& queue, From const* from, To* to, std::size_t count) {
    elements(queue, count, cuda_kernels::edit_body<From, To>{from, to}, from, to);
  }
  /// Enqueues to[i] = from[i], converted.
  template <class From, class To>
  static void convert(cuda_queue& queue, From const* from, To* to, std::size_t count) {
    elements(queue, count, cuda_kernels::convert_body<From, To, false>{from, to}, from, to);
  }

 private:
  /// launch(where) launches kernels, by whichever thread issues the queue's tasks.
  template <class Launch>
  static void issue(cuda_queue& queue, Launch launch) {
    queue.issue([launch, most = queue.max_ctas](cudaStream_t stream) { launch(cuda_kernels::on{stream, most}); });
  }
  template <class Body, class From, class To>
  static void elements(cuda_queue& queue, std::size_t count, Body const& body, From const* from, To* to) {
    issue(queue,
          [=](cuda_kernels::on where) { cuda_kernels::launch_elements(where, count, body, cuda_kernels::head_of({from, to})); });
  }
  template <class Step, class From, class To>
  static void squares(cuda_queue& queue, update_block const* table, std::size_t blocks, std::size_t count, Step const& step,
                      double* results, From const* from, To* to) {
    issue(queue,
          [=](cuda_kernels::on where) { cuda_kernels::launch_squares(where, table, blocks, count, step, results, {from, to}); });
  }
  /// Without a table: of everything, in one number.
  template <class Step, class From, class To>
  static void all_squares(cuda_queue& queue, std::size_t count, Step const& step, double* result, From const* from, To* to) {
    const std::size_t blocks = (count + update_block::most - 1) / update_block::most;
    auto* const partial = static_cast<double*>(queue.scratch(std::max(blocks, std::size_t{1}) * sizeof(double)));
    squares(queue, nullptr, blocks, count, step, partial, from, to);
    run(queue, add_region_squares{result, 1, partial, nullptr, blocks});
  }
  template <encoding Encoding, class T>
  static void encode_slices(cuda_kernels::on where, Encoding const& e, T const* from, std::size_t index, std::size_t slices,
                            std::size_t count, std::byte* to, coding::refused const& bad, [[maybe_unused]] std::uint64_t seed) {
    const cuda_kernels::blocks_at<Encoding> places(e, count);
    using source = cuda_kernels::values_to_encode<Encoding, T>;
    if constexpr (rounds_at_random<Encoding>) {
      if (seed != 0) {
        cuda_kernels::launch_blocks(
            where, slices * places.blocks,
            cuda_kernels::encode_body<Encoding, source, true>{{{from, from + slices * count}}, index, places, to, bad, seed});
        return;
      }
    }
    cuda_kernels::launch_blocks(
        where, slices * places.blocks,
        cuda_kernels::encode_body<Encoding, source>{{{from, from + slices * count}}, index, places, to, bad});
  }
#endif  // its tasks need nvcc
};

#if defined(__CUDACC__)
static_assert(storage<cuda_storage<float>>);

/// Elementwise tasks for backends (storage/elementwise_tasks.hpp).
template <class From, class To>
void enqueue_convert(cuda_queue& queue, From const* from, To* to, std::size_t count) {
  if (static_cast<void const*>(from) == static_cast<void*>(to) || count == 0) return;
  if constexpr (std::is_same_v<From, To>) {
    queue.issue([=](cudaStream_t stream) {
      check_cuda(cudaMemcpyAsync(to, from, count * sizeof(To), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    });
  } else {
    cuda_storage<float>::convert(queue, from, to, count);
  }
}
template <class From, class To>
void enqueue_add(cuda_queue& queue, From const* from, To* to, std::size_t count) {
  cuda_storage<float>::add(queue, from, to, count);
}
#endif

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
