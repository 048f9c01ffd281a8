// SPDX-License-Identifier: Apache-2.0
// Numbers travel as they are: a reduce-scatter of gradients, an all-gather of parameters.
#pragma once

#include <cstddef>

#include "acco/code/encoding.hpp"
#include "acco/storage/lane.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// Where the backend leaves sums in the gradient's type, or cannot add to its destination, they arrive in a room of
/// their own, and an update stage takes them from there.
template <class Storage>
class reducer<full, Storage> final : public reducer_in_use<Storage> {
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;

 public:
  using typename reducer_in_use<Storage>::stages_type;
  using typename reducer_in_use<Storage>::view_type;
  using typename reducer_in_use<Storage>::world_type;

  explicit reducer(full = {}) noexcept {}

  void declare(view_type& v, world_type const& world, bool adds) override {
    const std::size_t sums = world.traits.accumulates || !adds ? 0 : v.shares.slice_size() * sizeof(sum_type);
    from_received_ = world.sums_in_gradients;
    adds_received_ = !from_received_ && sums != 0;
    received_ = v.declare_received(from_received_ ? v.shares.slice_size() * sizeof(gradient_type) : sums);
  }
  void reduce(stages_type& stages, view_type& v, world_type& world) override {
    stages.each(lane::network, [&](std::size_t k) {
      bucket const b = v.shares[k];
      const partial<gradient_type const> from({v.gradients(b), v.whole_of(b)});
      if (from_received_) {
        world.reduce_scatter_in_gradients(v.queue, from,
                                          sharded<gradient_type>({received<gradient_type>(v) + b.offset, b.share}));
      } else if (adds_received_ && v.adds) {
        world.reduce_scatter(v.queue, from, sharded<sum_type>({received<sum_type>(v) + b.offset, b.share}), false);
      } else {
        world.reduce_scatter(v.queue, from, sharded<sum_type>(v.sums(b)), v.adds);
      }
      v.sends(collective::reduce_scatter, from.local().size_bytes());
    });
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    bucket const b = v.shares[k];
    if (from_received_) return squares.take(k, static_cast<gradient_type const*>(received<gradient_type>(v)), v.adds);
    if (adds_received_ && v.adds)
      Storage::add(v.queue, static_cast<sum_type const*>(received<sum_type>(v)) + b.offset, v.sums(b).data(), b.share);
    squares.measure(k);
  }
  void find_non_finite(view_type& v) const override {
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
class gatherer<full, Storage> final : public gatherer_in_use<Storage> {
 public:
  using typename gatherer_in_use<Storage>::stages_type;
  using typename gatherer_in_use<Storage>::view_type;
  using typename gatherer_in_use<Storage>::world_type;

  explicit gatherer(full = {}) noexcept {}
  void gather(stages_type& stages, view_type& v, world_type& world) override {
    stages.each(lane::network, [&](std::size_t k) { v.all_gather(world, v.shares[k], v.arriving); });
  }
};

/// Every rank has made every update.
template <class Storage>
class gatherer<updated_by_all, Storage> final : public gatherer_in_use<Storage> {
 public:
  explicit gatherer(updated_by_all = {}) noexcept {}
  void gather(typename gatherer_in_use<Storage>::stages_type&, typename gatherer_in_use<Storage>::view_type&,
              typename gatherer_in_use<Storage>::world_type&) override {}
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
