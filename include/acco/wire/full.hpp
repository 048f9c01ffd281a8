// SPDX-License-Identifier: Apache-2.0
// Numbers travel as they are: a reduce-scatter of gradients, an all-gather of parameters.
#pragma once

#include <cstddef>
#include <type_traits>

#include "acco/collective/backend.hpp"
#include "acco/encoding/encoding.hpp"
#include "acco/storage/lane.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where the backend leaves sums in the gradient's type, or cannot add to its destination, they arrive in a room of their own,
/// and an update stage takes them from there.
template <class Storage>
class reducer<full, Storage> : public keeps_nothing {
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;
  template <class Backend>
  static constexpr bool sums_elsewhere = !std::is_same_v<reduced_by<Backend, gradient_type, sum_type>, sum_type>;

 public:
  explicit reducer(full = {}) noexcept {}

  template <class Backend>
  void declare(round_view<Storage>& v, bool adds) {
    const std::size_t sums = traits_of<Backend>.accumulates || !adds ? 0 : v.shares.slice_size() * sizeof(sum_type);
    from_received_ = sums_elsewhere<Backend>;
    adds_received_ = !from_received_ && sums != 0;
    received_ = v.declare_received(from_received_ ? v.shares.slice_size() * sizeof(gradient_type) : sums);
  }
  template <class Stages, class Backend>
  void reduce(Stages& stages, round_view<Storage>& v, Backend& world) {
    stages.each(lane::network, [&](std::size_t k) {
      bucket const b = v.shares[k];
      const partial<gradient_type const> from({v.gradients(b), v.whole_of(b)});
      if constexpr (sums_elsewhere<Backend>) {
        world.reduce_scatter(v.queue, from, sharded<gradient_type>({received<gradient_type>(v) + b.offset, b.share}));
      } else if (!v.adds) {
        world.reduce_scatter(v.queue, from, sharded<sum_type>(v.sums(b)));
      } else if constexpr (traits_of<Backend>.accumulates) {
        world.reduce_scatter(v.queue, from, sharded<sum_type>(v.sums(b)), accumulate);
      } else {
        world.reduce_scatter(v.queue, from, sharded<sum_type>({received<sum_type>(v) + b.offset, b.share}));
      }
      v.sends(collective::reduce_scatter, from.local().size_bytes());
    });
  }
  template <class Measure>
  void take(round_view<Storage>& v, std::size_t k, Measure const& measure) {
    bucket const b = v.shares[k];
    if (from_received_) return measure.taking(k, static_cast<gradient_type const*>(received<gradient_type>(v)), v.adds);
    if (adds_received_ && v.adds)
      Storage::add(v.queue, static_cast<sum_type const*>(received<sum_type>(v)) + b.offset, v.sums(b).data(), b.share);
    measure(k);
  }
  void find_non_finite(round_view<Storage>& v) const {
    round_numbers* const n = v.numbers;
    Storage::find_non_finite(v.queue, &n->not_finite, v.carried.local().data(), v.shares.size(), &n->found, &n->first);
  }

 private:
  template <class T>
  [[nodiscard]] T* received(round_view<Storage> const& v) const noexcept {
    return v.arrays.template as<T>(received_);
  }
  std::size_t received_ = 0;
  bool from_received_ = false, adds_received_ = false;
};

template <class Storage>
class gatherer<full, Storage> {
 public:
  explicit gatherer(full = {}) noexcept {}
  void declare(round_view<Storage>&) const noexcept {}
  void encode(round_view<Storage>&, std::size_t) const noexcept {}
  template <class Stages, class Backend>
  void gather(Stages& stages, round_view<Storage>& v, Backend& world) const {
    stages.each(lane::network, [&](std::size_t k) { v.all_gather(world, v.shares[k], v.arriving); });
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
