// SPDX-License-Identifier: Apache-2.0
// What encoded rounds send and receive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "acco/encoding/encoding.hpp"
#include "acco/layout/partition.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/round/stagger.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Owns two buffers: `leaving` holds this rank's encoded gradients, for each bucket a share for every rank; in `arriving` the
/// other ranks' gradients for this one lie, and later all ranks' parameters.
template <class Storage>
class encoded_buffers {
 public:
  explicit encoded_buffers(partition shares) : shares_(shares) {}

  /// Makes room for rounds that travel like this.
  template <class Gradients, class Parameters>
  void add(coded<Gradients, Parameters> const&) noexcept {
    if constexpr (encoding<Gradients>) {
      leaving_bytes_ = std::max(leaving_bytes_, whole<Gradients>());
      arriving_bytes_ = std::max(arriving_bytes_, whole<Gradients>());
    }
    if constexpr (encoding<Parameters>) arriving_bytes_ = std::max(arriving_bytes_, whole<Parameters>());
  }
  void count(memory_table& table) const noexcept {
    table.encoded += Storage::allocation_size(leaving_bytes_, stagger::encoded) +
                     Storage::allocation_size(arriving_bytes_, stagger::encoded + 1);
  }
  void allocate(Storage const& storage, typename Storage::queue& queue) {
    leaving_ = storage.allocate(leaving_bytes_, stagger::encoded);
    arriving_ = storage.allocate(arriving_bytes_, stagger::encoded + 1);
    Storage::clear(queue, leaving_.template as<std::byte>(), leaving_bytes_);
    Storage::clear(queue, arriving_.template as<std::byte>(), arriving_bytes_);
  }

  /// A bucket's encoded numbers: all shares of what leaves, or of what arrives.
  template <encoding Encoding>
  [[nodiscard]] std::span<std::byte> leaving(bucket const& b) const noexcept {
    return {leaving_.template as<std::byte>() + begin<Encoding>(b), ranks() * encoded_size<Encoding>(b.share)};
  }
  template <encoding Encoding>
  [[nodiscard]] std::span<std::byte> arriving(bucket const& b) const noexcept {
    return {arriving_.template as<std::byte>() + begin<Encoding>(b), ranks() * encoded_size<Encoding>(b.share)};
  }
  /// A rank's own share of what arrives everywhere.
  template <encoding Encoding>
  [[nodiscard]] std::span<std::byte> share(bucket const& b, int rank) const noexcept {
    const std::size_t bytes = encoded_size<Encoding>(b.share);
    return arriving<Encoding>(b).subspan(static_cast<std::size_t>(rank) * bytes, bytes);
  }

 private:
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(shares_.ranks()); }
  /// Where a bucket's begin: the buckets before it are full.
  template <encoding Encoding>
  [[nodiscard]] std::size_t begin(bucket const& b) const noexcept {
    return b.index * ranks() * encoded_size<Encoding>(shares_[0].share);
  }
  template <encoding Encoding>
  [[nodiscard]] std::size_t whole() const noexcept {
    const bucket last = shares_[shares_.buckets() - 1];
    return begin<Encoding>(last) + ranks() * encoded_size<Encoding>(last.share);
  }

  partition shares_;
  std::size_t leaving_bytes_ = 0, arriving_bytes_ = 0;
  typename Storage::buffer leaving_, arriving_;
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
