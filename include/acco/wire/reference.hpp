// SPDX-License-Identifier: Apache-2.0
// Gradients against a reference point, for schedule/masha.hpp. Some rounds carry gradients at that point, in full, and
// every rank keeps its own. The rounds after send differences to them, by another wire:
//
//   update    subtract own reference | [that wire: encode, sum] | add mean reference, squares | ... settle
//
// The mean is kept by its owners, in a slot of the rule, which extrapolates with it.
#pragma once

#include <cstddef>
#include <type_traits>

#include "acco/code/between_groups.hpp"
#include "acco/code/encoding.hpp"
#include "acco/code/feedback.hpp"
#include "acco/storage/lane.hpp"
#include "acco/wire/coded.hpp"
#include "acco/wire/full.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

/// A reducer around another one.
template <class Wire, class Storage>
class around_reducer : public reducer_in_use<Storage> {
 public:
  using typename reducer_in_use<Storage>::stages_type;
  using typename reducer_in_use<Storage>::view_type;
  using typename reducer_in_use<Storage>::world_type;

  explicit around_reducer(Wire const& of) : of_(of) {}

  [[nodiscard]] bool has_tiles() const noexcept override { return of_.has_tiles(); }
  void declare(view_type& v, world_type const& world, bool adds) override { of_.declare(v, world, adds); }
  void reduce(stages_type& stages, view_type& v, world_type& world) override { of_.reduce(stages, v, world); }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override { of_.take(v, k, squares); }
  void find_non_finite(view_type& v) const override { of_.find_non_finite(v); }
  void settle(view_type& v, std::size_t k) override { of_.settle(v, k); }

 protected:
  using gradient_type = typename Storage::gradient_type;
  using sum_type = typename Storage::sum_type;
  static_assert(std::is_same_v<sum_type, typename Storage::master_type> && std::is_same_v<gradient_type, sum_type>,
                "acco: a reference point needs a storage whose gradients and sums have the masters' type: else what is "
                "subtracted and what is added round apart");
  static constexpr char const* own_reference = "reference";

  reducer<Wire, Storage> of_;
};

/// Every rank keeps g_i / W of its own gradients, W the weight of all ranks' samples: the sum over ranks is the mean.
template <class Storage>
class reducer<reference_gradients, Storage> final : public around_reducer<full, Storage> {
  using around = around_reducer<full, Storage>;
  using typename around::gradient_type;
  using typename around::sum_type;

 public:
  using typename around::view_type;
  using typename around::world_type;

  explicit reducer(reference_gradients = {}) : around(full{}) {}

  void declare(view_type& v, world_type const& world, bool adds) override {
    around::declare(v, world, adds);
    kept_ = v.arrays.template declare<gradient_type>({.name = around::own_reference, .extent = array_extent::whole},
                                                     {stagger::encoded + 1, &memory_table::encoded});
  }
  void settle(view_type& v, std::size_t k) override {
    bucket const b = v.shares[k];
    round_numbers* const n = v.numbers;
    if (k == 0) Storage::run(v.queue, keep_reference{n});
    auto const* const sums = static_cast<sum_type const*>(v.sums(b).data());
    Storage::combine(v.queue, &n->others, v.gradients(b), v.gradients(b), v.arrays.template as<gradient_type>(kept_) + b.begin,
                     v.whole_of(b));
    Storage::combine(v.queue, &n->others, sums, sums, v.reference.gradient + b.offset, b.share);
    Storage::clear_if(v.queue, &n->apply, v.reference.ahead + b.offset, b.share);
  }

 private:
  std::size_t kept_ = 0;
};

/// g_i minus W times what is kept, and W times the mean for their sum: whatever `Wire` loses, it loses of the
/// differences. A rank without samples sends what it keeps, which is in the mean.
template <class Wire, class Storage>
class reducer<against_reference<Wire>, Storage> final : public around_reducer<Wire, Storage> {
  static_assert(!sums_groups<Wire>, "acco: differences to a reference point are each rank's own: they need no between_groups");
  static_assert(!low_rank<Wire> && !planned_wire<Wire>,
                "acco: differences to a reference point go in full, in an encoding of blocks, or in one with_feedback");
  static_assert(!sums_states<Wire> && !looks_ahead<Wire>,
                "acco: differences to a reference point go with error_feedback, or with none");
  static_assert(!means_senders<Wire> && !unscaled<Wire>,
                "acco: this code says nothing of sizes, and differences to a reference point must vanish: take block_sign "
                "with error feedback, which has a scale");
  using around = around_reducer<Wire, Storage>;
  using typename around::gradient_type;

 public:
  using typename around::stages_type;
  using typename around::view_type;
  using typename around::world_type;

  explicit reducer(against_reference<Wire> const& code) : around(code) {}

  void reduce(stages_type& stages, view_type& v, world_type& world) override {
    auto const* const kept = v.arrays.template as<gradient_type>(v.arrays.number_of(around::own_reference));
    v.contributes = true;
    stages.once(lane::update, [&] { Storage::run(v.queue, weigh_reference{v.numbers, v.loss_scale}); });
    stages.each(lane::update, [&](std::size_t k) {
      bucket const b = v.shares[k];  // the round owns its gradients: no other is computed in their memory
      Storage::combine(v.queue, &v.numbers->mixed, v.gradients(b), kept + b.begin, const_cast<gradient_type*>(v.gradients(b)),
                       v.whole_of(b));
    });
    around::reduce(stages, v, world);
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    behind_sum measuring(v, squares);
    around::take(v, k, measuring);
  }

 private:
  /// Squares are of the sum with the mean.
  class behind_sum final : public squares_in_use<Storage> {
   public:
    behind_sum(view_type& v, squares_in_use<Storage>& of) noexcept : v_(v), of_(of) {}
    void measure(std::size_t k) override {
      bucket const b = v_.shares[k];
      typename Storage::sum_type* const sums = v_.sums(b).data();
      Storage::combine(v_.queue, &v_.numbers->others, static_cast<typename Storage::sum_type const*>(sums),
                       static_cast<typename Storage::master_type const*>(v_.reference.gradient + b.offset), sums, b.share);
      of_.measure(k);
    }
    void take(std::size_t k, gradient_type const* from, bool adds) override {
      of_.take(k, from, adds);
      measure(k);
    }

   private:
    view_type& v_;
    squares_in_use<Storage>& of_;
  };
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
