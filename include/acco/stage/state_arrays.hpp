// SPDX-License-Identifier: Apache-2.0
// The arrays of one rank's optimizer: each is declared once, by who works on it, before any is allocated. The memory
// table, the allocation, digests, checkpoints and what becomes of an array on other ranks follow from the declaration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "acco/bfloat16.hpp"
#include "acco/error.hpp"
#include "acco/half.hpp"
#include "acco/layout/partition.hpp"
#include "acco/number/int8_place.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/stage/state_copy.hpp"
#include "acco/stage/world_digest.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class T>
[[nodiscard]] constexpr element_type element_type_of() noexcept {
  if constexpr (std::is_same_v<T, double>) {
    return element_type::float64;
  } else if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, int8_blocks>) {
    return element_type::bfloat16;
  } else {
    return std::is_same_v<T, half> ? element_type::float16 : element_type::float32;
  }
}

/// How an array lies in memory.
struct array_place {
  std::size_t cache_offset;         ///< stagger.hpp
  std::size_t memory_table::* row;  ///< the row of the memory table that counts it
};

/// Owns the arrays. Declared while the optimizer is made, allocated once, by the trainer's thread; then read by
/// anybody.
template <class Storage>
class state_arrays {
 public:
  using queue = typename Storage::queue;

  state_arrays(partition const& shares, int rank) : state_arrays(shares, rank, shares.ranks()) {}
  /// Of `ranks` ranks, all of which may have the one share.
  state_arrays(partition const& shares, int rank, int ranks) : shares_(shares), rank_(rank), ranks_(ranks) {
    shape_.master = element_type_of<typename Storage::master_type>();
    shape_.parameter = element_type_of<typename Storage::parameter_type>();
  }

  /// Whether there may be arrays of `T`: the storage's master, gradient or parameter type, float, bfloat16 or
  /// int8_blocks.
  template <class T>
  static constexpr bool may_have =
      std::is_same_v<T, typename Storage::master_type> || std::is_same_v<T, typename Storage::gradient_type> ||
      std::is_same_v<T, typename Storage::parameter_type> || std::is_same_v<T, float> || std::is_same_v<T, bfloat16> ||
      std::is_same_v<T, int8_blocks>;
  /// An array of `T` that digests and checkpoints have. `what.type` is filled in; a second array of a name gets ".2"
  /// behind it. Returns its number.
  template <class T>
  std::size_t declare(kept_array what, array_place const& place) {
    static_assert(may_have<T>,
                  "acco: an array of the state has the storage's master, gradient or parameter type, or is of float, bfloat16 or "
                  "int8_blocks");
    require_name(what);
    what.type = element_type_of<T>();
    what.packed = std::is_same_v<T, int8_blocks>;
    const std::string name = what.name;
    for (std::size_t n = 2; shape_.has(what.name); ++n) what.name = name + "." + std::to_string(n);
    const array_use use = what.use;
    const std::size_t count = elements(what.extent);
    const std::size_t bytes = what.packed ? int8_blocks::bytes_of(count) : count * sizeof(T), at = shape_.add(std::move(what));
    kept_.insert(kept_.begin() + static_cast<std::ptrdiff_t>(at), arrays_.size());
    arrays_.push_back({"", use, bytes, place, {}});
    return arrays_.size() - 1;
  }
  /// That of an array that has been declared.
  [[nodiscard]] std::size_t number_of(std::string_view name) const noexcept {
    std::size_t k = 0;
    while (shape_.kept[k].name != name) ++k;
    return kept_[k];
  }
  /// So many bytes that only the round in flight needs; 0: nothing is allocated. `name` is a literal. A room whose name
  /// is declared already is the same one, and as large as the larger asks for: wires share rooms. One without a name is
  /// nobody else's.
  std::size_t declare_room(char const* name, std::size_t bytes, array_place const& place) {
    for (std::size_t k = 0; k < arrays_.size(); ++k) {
      if (*name == 0 || arrays_[k].use != array_use::room || std::strcmp(arrays_[k].room, name) != 0) continue;
      arrays_[k].bytes = std::max(arrays_[k].bytes, bytes);
      return k;
    }
    arrays_.push_back({name, array_use::room, bytes, place, {}});
    return arrays_.size() - 1;
  }
  /// Those that digests and checkpoints have.
  [[nodiscard]] state_shape const& shape() const noexcept { return shape_; }
  void count(memory_table& table) const noexcept {
    for (declared const& each : arrays_) table.*each.place.row += Storage::allocation_size(each.bytes, each.place.cache_offset);
  }
  /// Allocates all, filled with zeros. Enqueues.
  void allocate(Storage const& storage, queue& q) {
    for (declared& each : arrays_) {
      each.memory = storage.allocate(each.bytes, each.place.cache_offset);
      clear(q, each);
    }
  }
  /// Fills what wires keep with zeros. Enqueues.
  void forget_feedback(queue& q) {
    replace();
    for (declared const& each : arrays_) {
      if (each.use == array_use::feedback) clear(q, each);
    }
  }
  /// Fills an array of the shape with zeros. Enqueues.
  void clear(queue& q, std::size_t kept) const { clear(q, arrays_[kept_[kept]]); }

  /// Arrays of the shape get other values than rounds give them, on every rank; how often that was.
  void replace() noexcept { ++replaced_; }
  [[nodiscard]] std::uint64_t replaced() const noexcept { return replaced_; }

  template <class T>
  [[nodiscard]] T* as(std::size_t number) const noexcept {
    return arrays_[number].memory.template as<T>();
  }
  /// Where its numbers lie: a pointer, or an int8_place.
  template <class T>
  [[nodiscard]] pointer_to<T> place(std::size_t number) const noexcept {
    if constexpr (std::is_same_v<T, int8_blocks>) {
      auto* const codes = as<std::int8_t>(number);
      return {codes, as<std::uint8_t>(number) + int8_blocks::count_of(arrays_[number].bytes), 0};
    } else {
      return as<T>(number);
    }
  }
  /// Numbers of an array, padding included.
  [[nodiscard]] std::size_t elements(array_extent extent) const noexcept {
    return extent == array_extent::shard ? shares_.slice_size() : shares_.padded_size();
  }
  /// By position, what a wire keeps of this rank's gradients that it has not sent; empty where none does so in `T`. In
  /// int8_blocks an int8_place.
  template <class T = typename Storage::gradient_type>
  [[nodiscard]] auto feedback() const noexcept {
    constexpr bool packed = std::is_same_v<T, int8_blocks>;
    using found = std::conditional_t<packed, int8_place, std::span<T>>;
    for (std::size_t k = 0; k < kept_.size(); ++k) {
      kept_array const& each = shape_.kept[k];
      if (each.use != array_use::feedback || each.extent != array_extent::whole || each.type != element_type_of<T>() ||
          each.packed != packed)
        continue;
      if constexpr (packed) {
        return place<T>(kept_[k]);
      } else {
        return found{as<T>(kept_[k]), shares_.size()};
      }
    }
    return found();
  }
  /// visit(number in the shape, place) for each array of the shape.
  template <class Visitor>
  void for_kept(Visitor&& visit) const {
    for (std::size_t k = 0; k < kept_.size(); ++k) typed(k, [&](auto values) { visit(k, values); });
  }
  /// visit(number in the shape, place, first trainable element, count) for the ranges of each array of the shape. Of
  /// shares that all ranks have, the first one's.
  template <class Visitor>
  void for_elements(Visitor&& visit) const {
    for_kept([&](std::size_t array, auto values) {
      if (shape_.extent(array) == array_extent::shard && rank_ >= shares_.ranks()) return;
      for_elements_of(shape_.extent(array), shares_, rank_, [&](std::size_t index, std::size_t first, std::size_t count) {
        visit(array, values + index, first, count);
      });
    });
  }

  /// Of its elements from the first on.
  [[nodiscard]] digest_key key(std::size_t array, std::size_t first) const noexcept {
    return key_of(first, array, shape_, rank_, ranks_);
  }
  /// This rank's part of the state's digest, without the numbers (world_digest.hpp).
  [[nodiscard]] std::uint64_t part_of_digest(queue& q) const {
    std::uint64_t sum = 0;
    for_elements([&](std::size_t array, auto values, std::size_t first, std::size_t count) {
      visit_on_host(q, values, count, [&](auto const* from, std::size_t index, std::size_t n) {
        sum += digest_of(from, n, key(array, first + index));
      });
    });
    return sum;
  }
  /// 64-bit hash of this rank's arrays, and of the updates committed: a rank may own nothing.
  [[nodiscard]] std::uint64_t digest(queue& q, std::uint64_t steps) const {
    std::uint64_t hash = 0x243f6a8885a308d3ULL + steps;
    for_kept([&](std::size_t array, auto values) {
      const std::size_t count = shape_.extent(array) == array_extent::shard ? shares_.count(rank_) : shares_.size();
      visit_on_host(q, values, count, [&](auto const* from, std::size_t, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          hash = (hash ^ bits_of(from[i])) * 0x9fb21c651e98df25ULL;
          hash ^= hash >> 32U;
        }
      });
    });
    return hash;
  }

 private:
  struct declared {
    char const* room;
    array_use use;
    std::size_t bytes;
    array_place place;
    typename Storage::buffer memory;
  };

  /// It is the name of files, beside those that every checkpoint has.
  static void require_name(kept_array const& what) {
    std::string const& name = what.name;
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const bool is_taken = name == "shown" || name == "arriving" || name == "frozen" || name == "trainer" ||
                          (name == state_shape::average && what.start != array_start::parameters);
    if (name.empty() || name.front() == '.' || name.find_first_not_of(plain) != std::string::npos || is_taken)
      throw usage_error({}, text("no array of the state may be called '", std::string_view(name), "'"),
                        text("Name a feedback, or an array of a wire, by letters, digits and _, as a file"));
  }
  static void clear(queue& q, declared const& of) { Storage::clear(q, of.memory.template as<std::byte>(), of.bytes); }
  template <class T, class Visitor>
  static void visit_on_host(queue& q, T* from, std::size_t count, Visitor&& visit) {
    Storage::visit_on_host(q, static_cast<T const*>(from), count, visit);
  }
  /// The same of packed numbers, which are visited as bfloat16.
  template <class Visitor>
  static void visit_on_host(queue& q, int8_place from, std::size_t count, Visitor&& visit) {
    constexpr std::size_t most = std::size_t{1} << 18U, size = int8_blocks::block_size;
    std::vector<std::int8_t> codes;
    std::vector<std::uint8_t> exponents;
    std::vector<bfloat16> numbers;
    const auto fetch = [&q]<class T>(T const* there, std::size_t n, std::vector<T>& to) {
      to.resize(n);
      Storage::visit_on_host(q, there, n, [&](T const* here, std::size_t index, std::size_t m) {
        std::copy_n(here, m, to.begin() + static_cast<std::ptrdiff_t>(index));
      });
    };
    for (std::size_t i = 0, n = 0; i < count; i += n) {
      const std::size_t behind = (from.first + i) % size;
      n = std::min(most - behind, count - i);
      const std::size_t blocks = (behind + n + size - 1) / size;
      fetch(static_cast<std::int8_t const*>(from.codes + i - behind), blocks * size, codes);
      fetch(static_cast<std::uint8_t const*>(&from.exponent(i)), blocks, exponents);
      numbers.resize(n);
      (int8_place{codes.data(), exponents.data(), 0} + behind).unpack(numbers.data(), n);
      visit(static_cast<bfloat16 const*>(numbers.data()), i, n);
    }
  }
  template <class Visitor>
  void typed(std::size_t kept, Visitor&& visit) const {
    if (shape_.kept[kept].packed) return visit(place<int8_blocks>(kept_[kept]));
    const auto as_type = [&]<class T>(std::type_identity<T>) {
      if constexpr (may_have<T>) visit(arrays_[kept_[kept]].memory.template as<T>());
    };
    switch (shape_.type(kept)) {
      case element_type::float32: return as_type(std::type_identity<float>());
      case element_type::float64: return as_type(std::type_identity<double>());
      case element_type::bfloat16: return as_type(std::type_identity<bfloat16>());
      case element_type::float16: return as_type(std::type_identity<half>());
    }
  }

  partition shares_;
  int rank_, ranks_;
  state_shape shape_;
  std::vector<std::size_t> kept_;  // by their number in the shape: which array it is
  std::vector<declared> arrays_;
  std::uint64_t replaced_ = 0;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
