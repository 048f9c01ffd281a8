// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer state in host memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/half.hpp"
#include "acco/storage/coding.hpp"
#include "acco/storage/elementwise.hpp"
#include "acco/storage/elementwise_tasks.hpp"
#include "acco/storage/host_queue.hpp"
#include "acco/storage/matrix_update.hpp"
#include "acco/storage/staged_range.hpp"
#include "acco/storage/storage.hpp"
#include "acco/storage/storage_traits.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A range of memory from a memory resource; freed with the object. Aligned to 64 bytes.
class host_buffer {
 public:
  static constexpr std::size_t alignment = 64;

  host_buffer() = default;
  host_buffer(std::pmr::memory_resource* resource, std::size_t bytes, std::size_t lead)
      : resource_(resource), memory_(bytes != 0 ? resource->allocate(bytes, alignment) : nullptr), bytes_(bytes), lead_(lead) {}
  host_buffer(host_buffer&& other) noexcept
      : resource_(other.resource_),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        lead_(other.lead_) {}
  host_buffer& operator=(host_buffer&& other) noexcept {
    std::swap(resource_, other.resource_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(lead_, other.lead_);
    return *this;
  }
  host_buffer(host_buffer const&) = delete;
  host_buffer& operator=(host_buffer const&) = delete;
  ~host_buffer() {
    if (memory_ != nullptr) resource_->deallocate(memory_, bytes_, alignment);
  }

  /// The memory as an array of trivial T.
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    return memory_ == nullptr ? nullptr : static_cast<T*>(static_cast<void*>(static_cast<std::byte*>(memory_) + lead_));
  }

 private:
  std::pmr::memory_resource* resource_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0, lead_ = 0;
};

/// A few numbers that the trainer's thread and the tasks of a queue both use; on the host they are the same memory.
template <class T>
class host_numbers {
 public:
  host_numbers() = default;
  template <class Storage>
  host_numbers(Storage const&, std::size_t count) : values_(count) {}

  [[nodiscard]] T& operator[](std::size_t i) noexcept { return values_[i]; }
  [[nodiscard]] T const& operator[](std::size_t i) const noexcept { return values_[i]; }
  /// Where tasks find them.
  [[nodiscard]] T* there(std::size_t i = 0) noexcept { return values_.data() + i; }
  [[nodiscard]] T const* there(std::size_t i = 0) const noexcept { return values_.data() + i; }
  void upload(host_queue&) const noexcept {}
  void download(host_queue&) const noexcept {}

 private:
  std::vector<T> values_;
};

template <class T>
concept host_element =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bfloat16> || std::is_same_v<T, half>;

/// Host memory with a communication thread. Three independent element types: what the model computes with
/// (`Parameter`), what micro-batches are accumulated in and what travels (`Gradient`), what the optimizer keeps
/// (`Master`). Sums over ranks are at least fp32.
template <class Parameter, class Gradient = Parameter,
          class Master = std::conditional_t<std::is_same_v<Parameter, double>, double, float>>
struct host_storage {
  static_assert(host_element<Parameter>, "acco: host_storage's Parameter must be float, double, acco::bfloat16 or acco::half");
  static_assert(host_element<Gradient>, "acco: host_storage's Gradient must be float, double, acco::bfloat16 or acco::half");
  static_assert(scalar_real<Master>, "acco: host_storage's Master must be float or double: a 16-bit master loses small updates");

  using parameter_type = Parameter;
  using gradient_type = Gradient;
  using master_type = Master;
  using sum_type = elementwise::wider<Gradient, Master>;
  using queue = host_queue;
  using buffer = host_buffer;
  template <class T>
  using numbers = host_numbers<T>;

  /// The trainer's thread may read and write the buffers.
  static constexpr bool host_memory = true;
  /// Elements of a rank's share of a bucket, if options::bucket_elements does not say otherwise.
  static constexpr std::size_t usual_share = std::size_t{1} << 20U;

  static constexpr storage_traits traits{.digests = true, .stages = true};

  /// Where the buffers come from; must outlive the optimizer.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();

  /// What `allocate` takes from the resource. Buffers of one optimizer get different `stagger`: arrays that lie a large
  /// power of two apart alias in the cache, a shift of 64 bytes each makes the update up to three times as fast.
  [[nodiscard]] static constexpr std::size_t allocation_size(std::size_t bytes, std::size_t stagger) noexcept {
    return bytes == 0 ? 0
                      : (bytes + host_buffer::alignment - 1) / host_buffer::alignment * host_buffer::alignment +
                            stagger * host_buffer::alignment;
  }
  [[nodiscard]] host_buffer allocate(std::size_t bytes, std::size_t stagger) const {
    return {memory, allocation_size(bytes, stagger), stagger * host_buffer::alignment};
  }

  /// Room for a copy of state.
  [[nodiscard]] host_buffer allocate_staging(std::size_t bytes) const { return allocate(bytes, 0); }
  /// Enqueues copies to host memory. The ranges stay where they are until that is done.
  static void stage(host_queue& queue, std::span<staged_range const> ranges) {
    queue.enqueue([ranges] {
      for (staged_range const& each : ranges) {
        if (each.bytes != 0) std::memcpy(each.to, each.from, each.bytes);
      }
    });
  }

  /// Enqueues sums[k] = the digest of the ranges of this sum, for `count` sums. The ranges stay where they are until
  /// that is done.
  template <class T>
  static void digest(host_queue& queue, std::span<digest_range<T> const> ranges, unsigned long long* sums, std::size_t count) {
    queue.enqueue([=] {
      std::fill_n(sums, count, 0ULL);
      for (digest_range<T> const& each : ranges) sums[each.sum] += digest_of(each.values, each.count, each.key);
    });
  }

  /// Between the trainer's own computations, at once: to[i] = 0.
  template <class T>
  static void clear(host_queue&, T* to, std::size_t count) noexcept {
    if (count != 0) std::memset(static_cast<void*>(to), 0, count * sizeof(T));
  }
  /// Between the trainer's own computations, at once: to[i] = from[i].
  template <class T>
  static void copy(host_queue&, T const* from, T* to, std::size_t count) noexcept {
    if (count != 0) std::memcpy(static_cast<void*>(to), from, count * sizeof(T));
  }
  /// Between the trainer's own computations, at once: to[i] += from[i].
  template <class T>
  static void add_now(host_queue&, T const* from, T* to, std::size_t count) noexcept {
    elementwise::add(from, to, count);
  }
  /// Waits for the queue, and calls visit(elements, index of the first, how many).
  template <class T, class Visitor>
  static void visit_on_host(host_queue& queue, T const* from, std::size_t count, Visitor&& visit) {
    queue.wait();
    visit(from, std::size_t{0}, count);
  }

  /// Enqueues a step of a round: a small function object. One that returns false ends the round.
  template <class Step>
  static void run(host_queue& queue, Step step) {
    queue.enqueue([step] {
      if constexpr (std::is_void_v<decltype(step())>) {
        step();
      } else {
        return step() ? progress::done : progress::ended;
      }
    });
  }
  /// Enqueues, where *wanted: how many elements are infinite or not a number, and the index of the first of them.
  template <class T>
  static void find_non_finite(host_queue& queue, bool const* wanted, T const* from, std::size_t count, unsigned long long* found,
                              unsigned long long* first) {
    queue.enqueue([=] {
      if (!*wanted) return;
      std::size_t index = 0;
      *found = elementwise::count_non_finite(from, count, index);
      *first = index;
    });
  }
  /// Enqueues to[i] = 0 where *wanted.
  template <class T>
  static void clear_if(host_queue& queue, bool const* wanted, T* to, std::size_t count) {
    queue.enqueue([=] {
      if (*wanted && count != 0) std::memset(static_cast<void*>(to), 0, count * sizeof(T));
    });
  }
  static void clear_if(host_queue& queue, bool const* wanted, int8_place to, std::size_t count) {
    clear_if(queue, wanted, to.codes, count);
  }

  /// Enqueues *result = the sum of the squares of the slice.
  static void sum_of_squares(host_queue& queue, sharded<sum_type const> slice, double* result) {
    queue.enqueue([=] { *result = elementwise::sum_of_squares(slice.slice().data(), slice.slice().size()); });
  }

  /// Enqueues results[k] = the sum of the squares of block k, from block `first` to before `last`.
  static void squares_of_blocks(host_queue& queue, sum_type const* slice, update_block const* blocks, std::size_t first,
                                std::size_t last, double* results) {
    queue.enqueue([=] {
      for (std::size_t k = first; k < last; ++k)
        results[k] = elementwise::sum_of_squares(slice + blocks[k].begin, blocks[k].count);
    });
  }
  /// Enqueues, where *wanted: to[i] = keep to[i] + (1 - keep) from[i].
  static void average(host_queue& queue, bool const* wanted, Master const* from, Master* to, std::size_t count, double keep) {
    queue.enqueue([=] {
      if (*wanted) elementwise::average(from, to, count, keep);
    });
  }
  /// Enqueues, where how->wanted: to[i] = first a[i] + second b[i]. `how` is read when the task runs.
  template <class A, class B, class To>
  static void combine(host_queue& queue, combination const* how, A const* a, B const* b, To* to, std::size_t count) {
    queue.enqueue([=] {
      if (how->wanted) elementwise::combine(how->first, a, how->second, b, to, count);
    });
  }
  /// Enqueues the update of the blocks from `first` to before `last` by `Rule` (elementwise.hpp). `out`, indexed like
  /// the slice, gets what the ranks will get; where nothing is wanted, the masters, unchanged.
  template <class Rule, update kind>
  static void apply(host_queue& queue, update_table<Rule, Master, sum_type> const* table, std::size_t first, std::size_t last,
                    Parameter* out) {
    queue.enqueue([=] {
      for (update_block const* block = table->blocks + first; block != table->blocks + last; ++block) {
        if (table->decided[block->region].wanted) {
          if constexpr (has_apply<Rule>) elementwise::apply<Rule, kind>(*table, *block, out);
        } else {
          elementwise::stand_still<Rule, kind>(*table, *block, out);
        }
      }
    });
  }

  /// The same of matrices.
  template <class Rule, update kind>
  static void apply_to_matrices(host_queue& queue, update_table<Rule, Master, sum_type> const* table, std::size_t first,
                                std::size_t last, Parameter* out) {
    queue.enqueue([=] {
      for (update_matrix const* matrix = table->matrices + first; matrix != table->matrices + last; ++matrix)
        matrices::apply<Rule, kind>(*table, *matrix, out);
    });
  }

  /// At once: nothing has been refused yet.
  static void forget(host_queue&, coding::refused bad) noexcept {
    *bad.found = 0;
    *bad.first = ~0ULL;
  }
  /// Encodes `slices` slices of `count` numbers, the first of which is element `index`, one after the other: at once,
  /// between the trainer's own computations, or as a task, rounding at random by `seed` where that is not 0. What is
  /// not finite is noted in `bad`.
  template <encoding Encoding, class T>
  static void encode_now(host_queue&, Encoding const& e, T const* from, std::size_t index, std::size_t slices, std::size_t count,
                         std::byte* to, coding::refused bad, std::uint64_t seed = 0) {
    for (std::size_t k = 0; k < slices; ++k)
      coding::encode_values(of_slice(e, k), from + k * count, index + k * count, count, to + k * code_size(e, count), bad, seed);
  }
  template <encoding Encoding, class T>
  static void encode(host_queue& queue, Encoding const& e, T const* from, std::size_t index, std::size_t slices,
                     std::size_t count, std::byte* to, coding::refused bad, std::uint64_t seed) {
    queue.enqueue([=, &queue] { encode_now(queue, e, from, index, slices, count, to, bad, seed); });
  }
  /// As `encode`, of what the encoding's feedback sends of these slices and their state, which a pointer shows or, in
  /// slices of multiples of 64, an int8_place.
  template <feeds_back Encoding, class T, class Place>
  static void encode_with_feedback(host_queue& queue, Encoding const& e, T const* from, Place state, std::size_t index,
                                   std::size_t slices, std::size_t count, std::byte* to, coding::refused bad, double rate) {
    queue.enqueue([=] {
      for (std::size_t k = 0; k < slices; ++k) {
        coding::encode_with_feedback(of_slice(e, k), from + k * count, state + k * count, rate, index + k * count, count,
                                     to + k * code_size(e, count), bad);
      }
    });
  }
  /// Enqueues, where *wanted: the state becomes what the feedback keeps of what it has `sent` of these slices.
  template <feeds_back Encoding, class T, class Place>
  static void keep_feedback(host_queue& queue, bool const* wanted, Encoding const& e, T const* from, Place state,
                            std::size_t slices, std::size_t count, std::byte const* sent, double rate) {
    queue.enqueue([=] {
      for (std::size_t k = 0; *wanted && k < slices; ++k) {
        coding::keep_feedback(of_slice(e, k), from + k * count, state + k * count, rate, count, sent + k * code_size(e, count));
      }
    });
  }
  /// Enqueues: encodes values[i] - (element index + i of the reference).
  template <encoding Encoding>
  static void encode_difference(host_queue& queue, Encoding const& e, Parameter const* values,
                                trainable_view<Parameter> reference, std::size_t index, std::size_t count, std::byte* to,
                                coding::refused bad) {
    queue.enqueue([=] { coding::encode_difference(e, values, reference, index, count, to, bad); });
  }
  /// Enqueues out = (or +=) the sum of `sources` encoded slices of `count` numbers that follow each other, in their
  /// order. `bringing`: where the number of ranks that bring samples will be; nullptr: all do.
  template <encoding Encoding>
  static void decode_sum(host_queue& queue, Encoding const& e, std::byte const* from, int sources, sum_type* out,
                         std::size_t count, bool add, int const* bringing = nullptr) {
    queue.enqueue([=] {
      const auto source = [&](int k) { return from + static_cast<std::size_t>(k) * code_size(e, count); };
      coding::decode_sum(e, sources, source, out, count, add, bringing != nullptr ? *bringing : 0);
    });
  }
  /// Enqueues out[i] = (element index + i of the reference) + the decoded difference, for `total` elements in slices of
  /// `slice`.
  template <encoding Encoding>
  static void decode_onto(host_queue& queue, Encoding const& e, std::byte const* from, trainable_view<Parameter> reference,
                          std::size_t index, std::size_t slice, std::size_t total, Parameter* out) {
    queue.enqueue([=] {
      std::byte const* encoded = from;
      for (std::size_t i = 0; i < total; i += slice, encoded += encoded_size<Encoding>(slice))
        coding::decode_onto(e, encoded, reference, index + i, std::min(slice, total - i), out + i);
    });
  }

  /// Enqueues to[i] += from[i].
  template <class From, class To>
  static void add(host_queue& queue, From const* from, To* to, std::size_t count) {
    enqueue_add(queue, from, to, count);
  }
  /// Enqueues to[i] = from[i], converted, where to[i] converts to another number: masters keep what their parameters do
  /// not show.
  template <class From, class To>
  static void replace_edited(host_queue& queue, From const* from, To* to, std::size_t count) {
    queue.enqueue([=] { elementwise::replace_edited(from, to, count); });
  }
  /// Enqueues to[i] = from[i], converted.
  template <class From, class To>
  static void convert(host_queue& queue, From const* from, To* to, std::size_t count) {
    enqueue_convert(queue, from, to, count);
  }
};
static_assert(storage<host_storage<float>>);

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
