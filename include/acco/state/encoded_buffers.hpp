// SPDX-License-Identifier: Apache-2.0
// What encoded rounds send and receive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "acco/encoding/encoding.hpp"
#include "acco/layout/partition.hpp"
#include "acco/observe/memory_table.hpp"

namespace ACCO_NAMESPACE {

/// Owns two buffers: `leaving` holds this rank's encoded gradients, a slice for every rank; in `arriving` the other ranks'
/// gradients for this one lie, where the backend does not hand them over in pieces, and later all ranks' parameters.
template <class Storage>
class encoded_buffers {
 public:
  encoded_buffers(partition shares, bool gradients_arrive) : shares_(shares), gradients_arrive_(gradients_arrive) {}

  /// Makes room for rounds that travel like this.
  template <class Gradients, class Parameters>
  void add(coded<Gradients, Parameters> const&) noexcept {
    if constexpr (encoding<Gradients>) {
      leaving_bytes_ = std::max(leaving_bytes_, whole<Gradients>());
      if (gradients_arrive_) arriving_bytes_ = std::max(arriving_bytes_, whole<Gradients>());
    }
    if constexpr (encoding<Parameters>) arriving_bytes_ = std::max(arriving_bytes_, whole<Parameters>());
  }
  void count(memory_table& table) const noexcept {
    table.encoded += Storage::allocation_size(leaving_bytes_, stagger) + Storage::allocation_size(arriving_bytes_, stagger + 1);
  }
  void allocate(Storage const& storage, typename Storage::queue& queue) {
    leaving_ = storage.allocate(leaving_bytes_, stagger);
    arriving_ = storage.allocate(arriving_bytes_, stagger + 1);
    Storage::clear(queue, leaving_.template as<std::byte>(), leaving_bytes_);
    Storage::clear(queue, arriving_.template as<std::byte>(), arriving_bytes_);
  }

  template <encoding Encoding>
  [[nodiscard]] std::span<std::byte> leaving() const noexcept {
    return {leaving_.template as<std::byte>(), whole<Encoding>()};
  }
  template <encoding Encoding>
  [[nodiscard]] std::span<std::byte> arriving() const noexcept {
    return {arriving_.template as<std::byte>(), whole<Encoding>()};
  }
  /// A rank's own encoded slice of what arrives everywhere.
  template <encoding Encoding>
  [[nodiscard]] std::span<std::byte> slice(int rank) const noexcept {
    const std::size_t bytes = encoded_size<Encoding>(shares_.slice_size());
    return arriving<Encoding>().subspan(static_cast<std::size_t>(rank) * bytes, bytes);
  }

 private:
  static constexpr std::size_t stagger = 18;
  template <encoding Encoding>
  [[nodiscard]] std::size_t whole() const noexcept {
    const std::size_t slice = shares_.slice_size();
    return slice == 0 ? 0 : encoded_size<Encoding>(slice) * (shares_.padded_size() / slice);
  }

  partition shares_;
  bool gradients_arrive_;
  std::size_t leaving_bytes_ = 0, arriving_bytes_ = 0;
  typename Storage::buffer leaving_, arriving_;
};

}  // namespace ACCO_NAMESPACE
