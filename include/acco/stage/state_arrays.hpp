// SPDX-License-Identifier: Apache-2.0
// The arrays of one rank's optimizer: each is declared once, by who works on it, before any is allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "acco/observe/memory_table.hpp"
#include "acco/version.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

enum class array_use {
  state,     ///< part of the optimizer's state
  feedback,  ///< what a wire keeps of gradients that it has not sent; forgotten where the parameters are replaced
  room       ///< only the round in flight needs it
};

struct array_spec {
  char const* name;                 ///< a literal
  array_use use;                    ///< what it is for
  std::size_t bytes;                ///< 0: nothing is allocated
  std::size_t cache_offset;         ///< stagger.hpp
  std::size_t memory_table::* row;  ///< the row of the memory table that counts it
};

/// Owns the arrays. Declared while the optimizer is made, allocated once, by the trainer's thread; then read by anybody.
template <class Storage>
class state_arrays {
 public:
  /// Returns the array's number. A room whose name is declared already is the same one, and as large as the larger asks for:
  /// wires share rooms.
  std::size_t declare(array_spec const& spec) {
    for (std::size_t k = 0; k < arrays_.size(); ++k) {
      if (spec.use != array_use::room || std::strcmp(arrays_[k].spec.name, spec.name) != 0) continue;
      arrays_[k].spec.bytes = std::max(arrays_[k].spec.bytes, spec.bytes);
      return k;
    }
    arrays_.push_back({spec, {}});
    return arrays_.size() - 1;
  }
  void count(memory_table& table) const noexcept {
    for (array const& each : arrays_) table.*each.spec.row += Storage::allocation_size(each.spec.bytes, each.spec.cache_offset);
  }
  /// Allocates all, filled with zeros. Enqueues.
  void allocate(Storage const& storage, typename Storage::queue& queue) {
    for (array& each : arrays_) {
      each.memory = storage.allocate(each.spec.bytes, each.spec.cache_offset);
      Storage::clear(queue, each.memory.template as<std::byte>(), each.spec.bytes);
    }
  }
  /// Fills the arrays of a use with zeros. Enqueues.
  void clear(typename Storage::queue& queue, array_use use) const {
    for (array const& each : arrays_) {
      if (each.spec.use == use) Storage::clear(queue, each.memory.template as<std::byte>(), each.spec.bytes);
    }
  }
  /// visit(spec, pointer) for the arrays of a use, in the order of their declaration.
  template <class Visitor>
  void for_each(array_use use, Visitor&& visit) const {
    for (array const& each : arrays_) {
      if (each.spec.use == use) visit(each.spec, each.memory.template as<std::byte>());
    }
  }
  template <class T>
  [[nodiscard]] T* as(std::size_t number) const noexcept {
    return arrays_[number].memory.template as<T>();
  }

 private:
  struct array {
    array_spec spec;
    typename Storage::buffer memory;
  };
  std::vector<array> arrays_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
