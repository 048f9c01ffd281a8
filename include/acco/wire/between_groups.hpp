// SPDX-License-Identifier: Apache-2.0
// Gradients over two levels: summed in full inside a group, in a code between groups (code/between_groups.hpp).
//
//   network   | RS 0 inside | RS 1 ... |            | A2A 0 between | ...
//   update                              encode 0, ...                 take 0, ... | ... settle
//
// A rank has the sum of its group where its place's shares are: the g shares of each bucket whose owners are the ranks
// of its place. What follows is the round of a world of g ranks, one a group, over that part of the arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "acco/code/between_groups.hpp"
#include "acco/code/encoding.hpp"
#include "acco/layout/partition.hpp"
#include "acco/storage/lane.hpp"
#include "acco/wire/coded.hpp"
#include "acco/wire/round_view.hpp"

#include "acco/hide_macros.hpp"

namespace ACCO_SIMD_NAMESPACE {

template <class Wire, class Storage>
class reducer<between_groups<Wire>, Storage> final : public reducer_in_use<Storage> {
  using gradient_type = typename Storage::gradient_type;
  static_assert(std::is_same_v<gradient_type, typename Storage::sum_type>,
                "acco: between_groups encodes the sums of groups as gradients: take a storage whose gradients have the sums' "
                "type");

 public:
  using typename reducer_in_use<Storage>::stages_type;
  using typename reducer_in_use<Storage>::view_type;
  using typename reducer_in_use<Storage>::world_type;

  explicit reducer(between_groups<Wire> const& code) : coder_(static_cast<Wire const&>(code)) {}

  [[nodiscard]] bool sums_groups() const noexcept override { return true; }
  void declare(view_type& v, world_type const& world, bool adds) override {
    groups_ = world.groups();
    part_.emplace(v.shares.part(v.rank / groups_ * groups_, groups_));
    sums_ = v.arrays.declare_room("sums of a group", part_->padded_size() * sizeof(gradient_type),
                                  {stagger::encoded, &memory_table::encoded});
    view_type of_group = group_of(v, {});
    coder_.name_state(name_of_groups(v));
    coder_.declare(of_group, world, adds);
  }
  void reduce(stages_type& stages, view_type& v, world_type& world) override {
    stages.each(lane::network, [&](std::size_t k) {
      bucket const b = v.shares[k];
      const partial<gradient_type const> from({v.gradients(b), v.whole_of(b)});
      const std::size_t count = b.share * static_cast<std::size_t>(groups_);
      world.inside()->reduce_scatter(
          v.queue, from, sharded<gradient_type>({sums(v) + b.offset * static_cast<std::size_t>(groups_), count}), false);
      v.ring_bytes += bytes_sent(collective::reduce_scatter, v.ranks() / groups_, from.local().size_bytes());
    });
    view_type of_group = group(v);
    coder_.reduce(stages, of_group, *world.between());
    v.ring_bytes += of_group.ring_bytes;
  }
  void take(view_type& v, std::size_t k, squares_in_use<Storage>& squares) override {
    view_type of_group = group(v);
    coder_.take(of_group, k, squares);
  }
  /// Not what encoders saw of groups' sums: every rank looks at its own.
  void find_non_finite(view_type& v) const override {
    round_numbers* const n = v.numbers;
    Storage::find_non_finite(v.queue, &n->not_finite, v.carried.local().data(), v.shares.size(), &n->found, &n->first);
  }
  void settle(view_type& v, std::size_t k) override {
    view_type of_group = group(v);
    coder_.settle(of_group, k);
  }

 private:
  /// What a group keeps lies where its part is: it fits no other groups, and no other shares of no other elements.
  [[nodiscard]] std::string name_of_groups(view_type const& v) const {
    std::uint64_t shares = 0xcbf29ce484222325ULL;  // FNV-1a, of numbers
    const auto add = [&](std::uint64_t number) { shares = (shares ^ number) * 0x100000001b3ULL; };
    add(v.shares[0].share);
    add(v.shares.padded_size());
    for (std::size_t k = 0; k < v.layout.tensor_count(); ++k)
      add(2 * v.layout[k].size + (v.layout.groups()[v.layout[k].group].frozen ? 1 : 0));
    return "." + std::to_string(groups_) + "x" + std::to_string(v.ranks() / groups_) + "." + std::to_string(shares % 1000000007);
  }
  [[nodiscard]] gradient_type* sums(view_type const& v) const noexcept { return v.arrays.template as<gradient_type>(sums_); }
  /// The round of groups.
  [[nodiscard]] view_type group(view_type const& v) const {
    return group_of(v, {static_cast<gradient_type const*>(sums(v)), part_->padded_size()});
  }
  [[nodiscard]] view_type group_of(view_type const& v, std::span<gradient_type const> sums) const {
    view_type of{v.queue, *part_, v.rank % groups_, groups_, v.arrays, v.layout};
    of.numbers = v.numbers;
    of.reduced = v.reduced;
    of.carried = partial<gradient_type const>(sums);
    of.adds = v.adds;
    of.contributes = true;
    of.rounding = v.rounding == 0 ? 0 : rounding_seed(v.steps + 1, of.rank, groups_);
    of.steps = v.steps;
    of.rate = v.rate;
    of.loss_scale = v.loss_scale;
    return of;
  }

  reducer<Wire, Storage> coder_;
  std::optional<partition> part_;
  int groups_ = 0;
  std::size_t sums_ = 0;  // the number of an array
};

}  // namespace ACCO_SIMD_NAMESPACE

#include "acco/restore_macros.hpp"
