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

namespace ACCO_SIMD_NAMESPACE {

/// Owns two buffers: `leaving` holds the gradients that this rank has encoded, for each bucket a share for every rank that gets
/// one (round/group_sums.hpp); in the other one those for this rank arrive, `gradients`, and later all ranks' `parameters`.
template <class Storage>
class encoded_buffers {
 public:
  /// `gradients`: shares of a bucket that are encoded by each rank; `sources`: from how many ranks one arrives.
  encoded_buffers(partition shares, std::size_t gradients, std::size_t sources)
      : shares_(shares), gradients_(gradients), sources_(sources), parameters_(static_cast<std::size_t>(shares.ranks())) {}

  /// Makes room for rounds that travel like this.
  template <class Gradients, class Parameters>
  void add(coded<Gradients, Parameters> const&) noexcept {
    if constexpr (encoding<Gradients>) {
      leaving_bytes_ = std::max(leaving_bytes_, whole<Gradients>(gradients_));
      arriving_bytes_ = std::max(arriving_bytes_, whole<Gradients>(sources_));
    }
    if constexpr (encoding<Parameters>) arriving_bytes_ = std::max(arriving_bytes_, whole<Parameters>(parameters_));
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

  /// A bucket's encoded numbers: all shares of what leaves, or of what arrives, by `Encoding`, which `Wire` is or has chosen.
  template <encoding Wire, encoding Encoding>
  [[nodiscard]] std::span<std::byte> leaving(bucket const& b) const noexcept {
    return {leaving_.template as<std::byte>() + begin<Wire>(b, gradients_), gradients_ * encoded_size<Encoding>(b.share)};
  }
  template <encoding Wire, encoding Encoding>
  [[nodiscard]] std::span<std::byte> gradients(bucket const& b) const noexcept {
    return {arriving_.template as<std::byte>() + begin<Wire>(b, sources_), sources_ * encoded_size<Encoding>(b.share)};
  }
  template <encoding Wire, encoding Encoding>
  [[nodiscard]] std::span<std::byte> parameters(bucket const& b) const noexcept {
    return {arriving_.template as<std::byte>() + begin<Wire>(b, parameters_), parameters_ * encoded_size<Encoding>(b.share)};
  }
  /// A rank's own share of the parameters.
  template <encoding Wire, encoding Encoding>
  [[nodiscard]] std::span<std::byte> share(bucket const& b, int rank) const noexcept {
    const std::size_t bytes = encoded_size<Encoding>(b.share);
    return parameters<Wire, Encoding>(b).subspan(static_cast<std::size_t>(rank) * bytes, bytes);
  }

 private:
  /// Where a bucket's begin: the buckets before it are full.
  template <encoding Encoding>
  [[nodiscard]] std::size_t begin(bucket const& b, std::size_t shares) const noexcept {
    return b.index * shares * encoded_size<Encoding>(shares_[0].share);
  }
  template <encoding Encoding>
  [[nodiscard]] std::size_t whole(std::size_t shares) const noexcept {
    const bucket last = shares_[shares_.buckets() - 1];
    return begin<Encoding>(last, shares) + shares * encoded_size<Encoding>(last.share);
  }

  partition shares_;
  std::size_t gradients_, sources_, parameters_;  // shares of a bucket
  std::size_t leaving_bytes_ = 0, arriving_bytes_ = 0;
  typename Storage::buffer leaving_, arriving_;
};

}  // namespace ACCO_SIMD_NAMESPACE
