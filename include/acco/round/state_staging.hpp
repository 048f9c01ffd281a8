// SPDX-License-Identifier: Apache-2.0
// Room in host memory for a copy of this rank's part of the state, and the tasks of a round that fill it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "acco/layout/partition.hpp"
#include "acco/number/int8_place.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/storage/staged_range.hpp"
#include "acco/storage/storage_traits.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A storage whose tasks can copy to host memory; others cannot be saved.
template <class Storage>
concept stages = storage_traits_of<Storage>.stages;

/// Owns the room, of which the arrays are slices. Filled by tasks of a round; the trainer's thread calls all members.
template <class Storage>
class state_staging {
 public:
  /// `shape`, which must outlive it, `shares`, `rank` of the engine; whether there may be parameters in use, and
  /// parameters that arrive, which do not follow from the masters.
  state_staging(state_shape const& shape, partition shares, int rank, bool may_show, bool may_arrive)
      : shape_(shape), shares_(shares), rank_(rank), may_show_(may_show), may_arrive_(may_arrive) {}

  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (std::size_t k = 0; k < shape_.arrays(); ++k) sum += rounded(bytes_of(k));
    return sum;
  }
  /// For copies of at most so many ranges, packed arrays two each, and the norms of so many regions.
  void allocate(Storage const& storage, std::size_t ranges, std::size_t regions) {
    buffer_ = storage.allocate_staging(bytes());
    ranges_.reserve(ranges);
    arrays_.resize(shape_.arrays(), nullptr);
    numbers.last.measured.reserve(regions);
    numbers.updates.reserve(regions);
  }
  [[nodiscard]] bool may_show() const noexcept { return may_show_; }
  [[nodiscard]] bool may_arrive() const noexcept { return may_arrive_; }

  /// Begins a new copy, of nothing yet.
  void clear() noexcept {
    ranges_.clear();
    for (std::byte const*& each : arrays_) each = nullptr;
    arrays_.resize(shape_.arrays(), nullptr);
    std::vector<double> measured = std::move(numbers.last.measured);  // their room is kept
    std::vector<std::uint64_t> updates = std::move(numbers.updates);
    numbers = {};
    measured.clear();
    updates.clear();
    numbers.last.measured = std::move(measured);
    numbers.updates = std::move(updates);
  }
  /// Adds elements of an array, from `offset` of it on.
  void add(std::size_t array, std::size_t offset, void const* from, std::size_t count) {
    std::byte* const begin = begin_of(array);
    arrays_[array] = begin;
    const std::size_t size = size_of(shape_.type(array));
    ranges_.push_back({from, begin + offset * size, count * size});
  }
  /// The same of numbers that are packed, all of an array's.
  void add(std::size_t array, std::size_t, int8_place from, std::size_t count) {
    const int8_place to = packed_in(array);
    arrays_[array] = begin_of(array);
    ranges_.push_back({from.codes, reinterpret_cast<std::byte*>(to.codes), count});
    ranges_.push_back({from.exponents, reinterpret_cast<std::byte*>(to.exponents), count / int8_blocks::block_size});
    unpacked_ = false;
  }
  /// Enqueues the copying of what was added.
  void enqueue(typename Storage::queue& q) { Storage::stage(q, std::span<staged_range const>(ranges_)); }

  /// When the copy is complete.
  [[nodiscard]] state_view view() noexcept {
    for (std::size_t k = 0; k < shape_.owned() && !unpacked_; ++k) {
      if (shape_.kept[k].packed && arrays_[k] != nullptr) unpack(k);
    }
    unpacked_ = true;
    return {&numbers, &shape_, shares_, rank_, arrays_, shows, arrives};
  }

  run_numbers numbers;
  bool shows = false, arrives = false;  ///< parameters in use, and parameters that arrive

 private:
  [[nodiscard]] static constexpr std::size_t rounded(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
  [[nodiscard]] std::size_t bytes_of(std::size_t array) const noexcept {
    if ((array == shape_.shown() && !may_show_) || (array == shape_.arriving() && !may_arrive_)) return 0;
    const std::size_t packed = is_packed(array) ? elements(array) / int8_blocks::block_size : 0;
    return elements(array) * size_of(shape_.type(array)) + packed;
  }
  [[nodiscard]] bool is_packed(std::size_t array) const noexcept { return array < shape_.owned() && shape_.kept[array].packed; }
  [[nodiscard]] std::size_t elements(std::size_t array) const noexcept {
    return shape_.extent(array) == array_extent::whole ? shares_.padded_size() : shares_.slice_size();
  }
  /// Of n numbers codes come into the second half of 2 n bytes, exponents behind these. What is unpacked from the front
  /// on never reaches codes that are still to be.
  [[nodiscard]] int8_place packed_in(std::size_t array) const noexcept {
    const std::size_t count = elements(array);
    std::byte* const codes = begin_of(array) + count;
    return {reinterpret_cast<std::int8_t*>(codes), reinterpret_cast<std::uint8_t*>(codes + count), 0};
  }
  void unpack(std::size_t array) const noexcept {
    std::byte* const to = begin_of(array);
    packed_in(array).unpack(elements(array), [to](float const* values, std::size_t i, std::size_t n) {
      bfloat16 narrow[int8_blocks::block_size];
      elementwise::convert(values, narrow, n);
      std::memcpy(to + i * sizeof(bfloat16), narrow, n * sizeof(bfloat16));
    });
  }
  [[nodiscard]] std::byte* begin_of(std::size_t array) const noexcept {
    std::byte* at = buffer_.template as<std::byte>();
    for (std::size_t k = 0; k < array; ++k) at += rounded(bytes_of(k));
    return at;
  }

  state_shape const& shape_;
  partition shares_;
  int rank_;
  bool may_show_, may_arrive_;
  decltype(std::declval<Storage const&>().allocate_staging(std::size_t{})) buffer_;
  std::vector<staged_range> ranges_;
  bool unpacked_ = true;
  std::vector<std::byte const*> arrays_;
};

/// Of a storage that cannot: nobody ever makes one.
template <class Storage>
  requires(!stages<Storage>)
class state_staging<Storage> {
 public:
  state_staging(state_shape const& shape, partition shares, int rank, bool, bool) : shape_(shape), shares_(shares), rank_(rank) {}
  [[nodiscard]] static constexpr std::size_t bytes() noexcept { return 0; }
  [[nodiscard]] static constexpr bool may_show() noexcept { return false; }
  [[nodiscard]] static constexpr bool may_arrive() noexcept { return false; }
  void allocate(Storage const&, std::size_t, std::size_t) noexcept {}
  void clear() noexcept {}
  template <class Place>
  void add(std::size_t, std::size_t, Place, std::size_t) noexcept {}
  void enqueue(typename Storage::queue&) noexcept {}
  [[nodiscard]] state_view view() const noexcept { return {&numbers, &shape_, shares_, rank_, {}, false, false}; }

  run_numbers numbers;
  bool shows = false, arrives = false;

 private:
  state_shape const& shape_;
  partition shares_;
  int rank_;
};

/// What is wanted of a round once its tasks are done.
template <class Storage>
struct round_end {
  state_staging<Storage>* copy = nullptr;  ///< to which the state is copied
  bool shown = false;                      ///< digests the parameters in use
  bool state = false;                      ///< digests the state
};

}  // namespace ACCO_SIMD_NAMESPACE
