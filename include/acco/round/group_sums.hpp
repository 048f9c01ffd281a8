// SPDX-License-Identifier: Apache-2.0
// Which gradients a rank encodes, and for whom: over one level its own, for every rank; over two levels the exact sum of its
// group, for the ranks of its place in every group (qgZ of ZeRO++, arXiv 2306.10209, with a first hop that loses nothing).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "acco/collective/backend.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/layout/partition.hpp"
#include "acco/observe/memory_table.hpp"
#include "acco/round/stagger.hpp"
#include "acco/storage/coding.hpp"
#include "acco/storage/elementwise.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Over one level: this rank's own gradients, a share of every bucket for each rank.
template <class Storage, class Backend>
class encoded_addends {
 public:
  using value_type = typename Storage::gradient_type;

  encoded_addends(partition shares, Backend const& backend)
      : shares_(shares), sources_(static_cast<std::size_t>(backend.size())) {}

  /// Shares of a bucket that this rank encodes, and from how many ranks its own arrives.
  [[nodiscard]] std::size_t shares_of_a_bucket() const noexcept { return static_cast<std::size_t>(shares_.ranks()); }
  [[nodiscard]] std::size_t sources() const noexcept { return sources_; }
  /// All its numbers, padding included.
  [[nodiscard]] std::size_t size() const noexcept { return shares_.padded_size(); }

  void add(bool) noexcept {}
  void count(memory_table&) const noexcept {}
  void allocate(Storage const&) noexcept {}
  void exchange(typename Storage::queue& queue, Backend& backend, std::span<std::byte const> leaving,
                std::span<std::byte> arriving) const {
    backend.all_to_all(queue, leaving, arriving);
  }
  /// Enqueues: `all` becomes what each source of codes weighs; *mine is this rank's, or this group's.
  void gather_weights(typename Storage::queue& queue, Backend& backend, double const* mine, double const*, double* all) const {
    backend.all_gather(queue, sharded<double const>({mine, 1}), replicated<double>({all, sources_}));
  }

 private:
  partition shares_;
  std::size_t sources_;
};

/// Over two levels: the sum over this rank's group, of which each of its m ranks has a part of g shares of every bucket. What
/// encodings lose is lost of that: an m-th of the gradients' number on a rank.
template <class Storage, two_levels Backend>
class encoded_addends<Storage, Backend> {
 public:
  using gradient_type = typename Storage::gradient_type;
  using value_type = typename Storage::sum_type;
  using queue_type = typename Storage::queue;

  encoded_addends(partition shares, Backend const& backend)
      : shares_(shares), groups_(static_cast<std::size_t>(backend.groups())) {}

  [[nodiscard]] std::size_t shares_of_a_bucket() const noexcept { return groups_; }
  [[nodiscard]] std::size_t sources() const noexcept { return groups_; }
  [[nodiscard]] std::size_t size() const noexcept { return shares_.slice_size() * groups_; }
  /// Where a bucket's begin among its numbers.
  [[nodiscard]] std::size_t begin(bucket const& b) const noexcept { return b.offset * groups_; }

  /// Some round encodes; `keeps`: of gradients that the accumulator keeps, and the trainer adds to meanwhile.
  void add(bool keeps) noexcept {
    encodes_ = true;
    keeps_ = keeps_ || keeps;
  }
  void count(memory_table& table) const noexcept {
    table.encoded +=
        Storage::allocation_size(sums_bytes(), stagger::encoded) + Storage::allocation_size(kept_bytes(), stagger::encoded + 1);
  }
  void allocate(Storage const& storage) {
    sums_ = storage.allocate(sums_bytes(), stagger::encoded);
    kept_ = storage.allocate(kept_bytes(), stagger::encoded + 1);
  }

  /// At once: a copy of the carried gradients, which cannot be summed while the trainer waits.
  void keep(queue_type& queue, std::span<gradient_type const> carried) {
    Storage::copy(queue, carried.data(), kept_.template as<gradient_type>(), carried.size());
  }
  [[nodiscard]] std::span<gradient_type const> kept() const noexcept {
    return {kept_.template as<gradient_type>(), shares_.padded_size()};
  }
  /// Enqueues *group = the sum of *mine over the group.
  static void weigh(queue_type& queue, Backend& backend, double const* mine, double* group) {
    backend.inside(
        queue, [&](auto& level) { level.all_reduce(queue, partial<double const>({mine, 1}), replicated<double>({group, 1})); });
  }
  /// Enqueues this rank's part of the group's sum of a bucket; `from` are the gradients of all.
  void sum(queue_type& queue, Backend& backend, bucket const& b, std::span<gradient_type const> from) const {
    const partial<gradient_type const> in(from.subspan(b.begin, b.share * static_cast<std::size_t>(shares_.ranks())));
    backend.inside(queue, [&](auto& level) { level.reduce_scatter(queue, in, sharded<value_type>(part(b))); });
  }
  /// That part, once it is summed.
  [[nodiscard]] std::span<value_type const> sum_of(bucket const& b) const noexcept { return part(b); }
  /// Enqueues: encodes that. What is refused of a sum is nobody's: whoever wants to know looks at the carried gradients.
  template <encoding Encoding>
  void encode(queue_type& queue, Encoding const& e, bucket const& b, std::byte* to, coding::refused bad) const {
    Storage::encode(queue, e, static_cast<value_type const*>(part(b).data()), begin(b), groups_, b.share, to, bad);
  }
  /// Enqueues the same with `keep` times what was lost before, where *weight is positive: of a group that brings nothing, nothing
  /// of that leaves, and all of it stays. `lost` has the bucket's, as if the loss scale were 1; it is `scale` now.
  template <encoding Encoding, class Residual>
  void encode_with_lost(queue_type& queue, Encoding const& e, bucket const& b, Residual lost, double keep, double scale,
                        double const* weight, std::byte* to, coding::refused bad) const {
    queue.enqueue(
        [=, from = static_cast<value_type const*>(part(b).data()), first = begin(b), shares = groups_, count = b.share] {
          Residual kept = lost;
          for (std::size_t k = 0; k < shares; ++k, kept = coding::behind_share(kept, count)) {
            value_type const* const values = from + k * count;
            std::byte* const bytes = to + k * encoded_size<Encoding>(count);
            if (*weight > 0) {
              coding::encode_with_lost(e, values, kept, keep * scale, first + k * count, count, bytes, bad, scale);
            } else {
              coding::encode_values(e, values, first + k * count, count, bytes, bad);
            }
          }
        });
  }
  /// Between the ranks of this rank's place.
  static void exchange(queue_type& queue, Backend& backend, std::span<std::byte const> leaving, std::span<std::byte> arriving) {
    backend.between(queue, [&](auto& level) { level.all_to_all(queue, leaving, arriving); });
  }
  void gather_weights(queue_type& queue, Backend& backend, double const*, double const* group, double* all) const {
    backend.between(queue, [&](auto& level) {
      level.all_gather(queue, sharded<double const>({group, 1}), replicated<double>({all, groups_}));
    });
  }

 private:
  [[nodiscard]] std::size_t sums_bytes() const noexcept { return encodes_ ? size() * sizeof(value_type) : 0; }
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return keeps_ ? shares_.padded_size() * sizeof(gradient_type) : 0; }
  [[nodiscard]] std::span<value_type> part(bucket const& b) const noexcept {
    return {sums_.template as<value_type>() + begin(b), groups_ * b.share};
  }

  partition shares_;
  std::size_t groups_;
  bool encodes_ = false, keeps_ = false;
  typename Storage::buffer sums_, kept_;
};

}  // namespace ACCO_SIMD_NAMESPACE
