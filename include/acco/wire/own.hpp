// SPDX-License-Identifier: Apache-2.0
// Gradients do not travel: every owner estimates all ranks' sum from its own rank's share.
#pragma once

#include <cstddef>

#include "acco/code/encoding.hpp"
#include "acco/storage/lane.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// What both have in common: a copy of this rank's share, in the gradient's type, taken before the accumulator is added
/// to.
template <class Storage>
class own_share : public reducer_in_use<Storage> {
 protected:
  using gradient_type = typename Storage::gradient_type;

 public:
  using typename reducer_in_use<Storage>::stages_type;
  using typename reducer_in_use<Storage>::view_type;
  using typename reducer_in_use<Storage>::world_type;

  [[nodiscard]] bool keeps() const noexcept override { return true; }
  [[nodiscard]] bool found_in_shard() const noexcept override { return true; }

  void declare(view_type& v, world_type const&, bool) override {
    received_ = v.declare_received(v.shares.slice_size() * sizeof(gradient_type));
  }
  void encode_kept(view_type& v) const override {
    Storage::forget(v.queue, v.refused_gradients());
    for (std::size_t k = 0; k < v.shares.buckets(); ++k) {
      bucket const b = v.shares[k];
      Storage::copy(v.queue, v.own_gradients(b), received(v) + b.offset, b.share);
    }
  }
  void find_non_finite(view_type& v) const override {
    round_numbers* const n = v.numbers;
    Storage::find_non_finite(v.queue, &n->not_finite, static_cast<gradient_type const*>(received(v)), v.shares.count(v.rank),
                             &n->found, &n->first);
  }

 protected:
  void copy(round_view<Storage>& v) const {
    if (v.encoded_early) return;  // it is done
    for (std::size_t k = 0; k < v.shares.buckets(); ++k) {
      bucket const b = v.shares[k];
      Storage::convert(v.queue, v.own_gradients(b), received(v) + b.offset, b.share);
    }
  }
  [[nodiscard]] gradient_type* received(round_view<Storage> const& v) const noexcept {
    return v.arrays.template as<gradient_type>(received_);
  }

 private:
  std::size_t received_ = 0;
};

/// The copy stands for all ranks' sum once it is scaled from this rank's weight to theirs.
template <class Storage>
class reducer<own_slice, Storage> final : public own_share<Storage> {
 public:
  using typename own_share<Storage>::stages_type;
  using typename own_share<Storage>::view_type;
  using typename own_share<Storage>::world_type;

  [[nodiscard]] bool stands_for_all() const noexcept override { return true; }
  explicit reducer(own_slice = {}) noexcept {}

  void reduce(stages_type& stages, view_type& v, world_type&) override {
    stages.once(lane::network, [&] {
      this->copy(v);
      Storage::run(v.queue, weigh_own{v.numbers});
    });
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    squares.take(k, static_cast<typename Storage::gradient_type const*>(this->received(v)), v.adds);
  }
};

/// The copy, and the others' mean gradient of the last step for their samples: before the first there is none.
template <class Storage>
class reducer<own_corrected, Storage> final : public own_share<Storage> {
 public:
  using typename own_share<Storage>::stages_type;
  using typename own_share<Storage>::view_type;
  using typename own_share<Storage>::world_type;

  [[nodiscard]] bool learns() const noexcept override { return true; }
  explicit reducer(own_corrected = {}) noexcept {}

  void reduce(stages_type& stages, view_type& v, world_type&) override {
    stages.once(lane::network, [&] {
      this->copy(v);
      Storage::run(v.queue, mix_own{v.numbers, v.steps > 0, v.loss_scale});
    });
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    bucket const b = v.shares[k];
    Storage::combine(v.queue, &v.numbers->mixed,
                     static_cast<typename Storage::gradient_type const*>(this->received(v) + b.offset),
                     static_cast<typename Storage::master_type const*>(v.others + b.offset), v.sums(b).data(), v.real(b));
    squares.measure(k);
  }
  /// Of the gradients of a step that is committed, those of the other ranks: their mean, for the estimates to come. In
  /// front of the first update: its parameters may come to lie where the carried gradients are.
  void learn(stages_type& stages, view_type& v) override {
    stages.once(lane::network, [&] { Storage::run(v.queue, weigh_others{v.numbers}); });
    stages.each(lane::update, [&](std::size_t k) {
      bucket const b = v.shares[k];
      Storage::combine(v.queue, &v.numbers->others, static_cast<typename Storage::sum_type const*>(v.sums(b).data()),
                       v.own_gradients(b), v.others + b.offset, v.real(b));
    });
  }
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
